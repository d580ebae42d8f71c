#!/usr/bin/env bash
# Makes a container image of a program that is built: the program and the libraries that it is linked with.
# usage: scripts/container.sh PROGRAM FOLDER [NAME]
# FOLDER/root is the image's content. With NAME the image is built by buildah, podman or docker, whichever is there.
set -euo pipefail

[ $# -ge 2 ] && [ $# -le 3 ] || { echo "usage: scripts/container.sh PROGRAM FOLDER [NAME]" >&2; exit 2; }
program=$(readlink -f "$1")
[ -x "$program" ] || { echo "container: $1 is no program: build it with make build" >&2; exit 1; }
name=${3:-}
builder=
if [ -n "$name" ]; then
  for builder in buildah podman docker ""; do
    [ -z "$builder" ] || ! command -v "$builder" >/dev/null || break
  done
  [ -n "$builder" ] || { echo "container: none of buildah, podman and docker is installed" >&2; exit 1; }
fi
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."

root=$folder/root
rm -rf "$root"
umask 022
mkdir -p "$root/etc/tidegate" "$root/usr/bin" "$root/var/lib/tidegate"
install -m 755 "$program" "$root/usr/bin/tidegate"
strip --strip-debug "$root/usr/bin/tidegate"
# Lines like `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)` and `/lib64/ld-linux-x86-64.so.2 (0x…)`; a static program has
# none.
libraries=$(ldd "$program" 2>/dev/null | sed -nE 's|^.*[[:space:]](/[^ ]+) \(0x[0-9a-f]+\)$|\1|p') || libraries=
if ldd "$program" 2>/dev/null | grep 'not found' >&2; then
  echo "container: libraries of $program are missing here" >&2
  exit 1
fi
for library in $libraries; do
  install -D -m 755 "$library" "$root$library"
done
echo 'tidegate:x:65532:65532::/nonexistent:/nonexistent' >"$root/etc/passwd"
echo 'tidegate:x:65532:' >"$root/etc/group"
chmod 644 "$root/etc/passwd" "$root/etc/group"
# Of the image's user in an image that is built by root; others build it so that all is theirs.
[ "$(id -u)" != 0 ] || chown 65532:65532 "$root/var/lib/tidegate"

[ -n "$name" ] || exit 0
"$builder" build --file contrib/container/Containerfile --tag "$name" "$folder"
