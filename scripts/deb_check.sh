#!/usr/bin/env bash
# Installs a package of scripts/deb.sh into a copy of a system, looks at what it does there, replaces it, and purges it.
# usage: scripts/deb_check.sh PACKAGE [ROOT]
# ROOT is the folder of a Debian system, as of `debootstrap --variant=minbase bookworm ROOT`; without it the copy is one of
# the system that runs. Nothing of either is changed: the copy is an overlay in namespaces of its own.
# Ends with 77 and a reason where that cannot be.
set -euo pipefail

cannot() { echo "deb: $*" >&2; exit 77; }
step() { echo "deb: $*"; }
failed() { echo "deb: $*" >&2; exit 1; }

# The other side: in namespaces of its own, with the folder of the overlay.
if [ "${4:-}" = inside ]; then
  package=$1 lower=$2 work=$3
  mount --make-rprivate /
  mount -t tmpfs overlay "$work"
  mkdir "$work/upper" "$work/work" "$work/root"
  root=$work/root
  mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/upper,workdir=$work/work" "$root" 2>/dev/null ||
    cannot "no overlay can be mounted: not permitted"
  mount -t proc proc "$root/proc"
  [ -c "$root/dev/null" ] || mount --rbind /dev "$root/dev"
  mkdir -p "$root/run" "$root/tmp"
  mount -t tmpfs run "$root/run"
  mount -t tmpfs tmp "$root/tmp"
  cp "$package" "$root/tmp/tidegate.deb"
  run() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
  # The files of the system, but for what dpkg and user management keep of all packages and users.
  inventory() {
    run find /etc /usr /var -xdev -path /var/lib/dpkg -prune -o ! -type d -print |
      grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|^/var/log/dpkg.log$' | sort
  }

  ! run dpkg -s tidegate >/dev/null 2>&1 || cannot "a package tidegate is installed"
  inventory >"$work/before"
  run dpkg -i /tmp/tidegate.deb >"$work/log" 2>&1 || { cat "$work/log" >&2; failed "it cannot be installed"; }
  step "installed: $(run tidegate --version)"
  run getent passwd tidegate >/dev/null || failed "there is no user tidegate"
  run dpkg --verify tidegate || failed "files are not as in the package"
  ! run find /etc/systemd/system -name 'tidegate*' | grep . || failed "a service is enabled that has no configuration"
  run tidegate check /etc/tidegate/example.toml >/dev/null || failed "the example is wrong"
  step "nothing is enabled, and the example is sound"

  # The user's number and the rights are what a switch to it takes.
  run sh -c 'cp /etc/tidegate/example.toml /etc/tidegate/tidegate.toml &&
    printf "[process]\nuser = \"tidegate\"\n" >>/etc/tidegate/tidegate.toml && tidegate check /etc/tidegate/tidegate.toml' \
    >/dev/null || failed "the package's user cannot be named in the configuration"
  run tidegate key new /etc/tidegate/master.key >/dev/null || failed "no key can be made"
  run dpkg -i /tmp/tidegate.deb >"$work/log" 2>&1 || { cat "$work/log" >&2; failed "it cannot be installed again"; }
  run test -s /etc/tidegate/tidegate.toml && run test -s /etc/tidegate/master.key || failed "an upgrade loses a file"
  step "replaced: configuration and key are there"

  run dpkg --remove tidegate >"$work/log" 2>&1 || { cat "$work/log" >&2; failed "it cannot be removed"; }
  run test -s /etc/tidegate/tidegate.toml || failed "a removal takes the configuration away"
  run dpkg --purge tidegate >"$work/log" 2>&1 || { cat "$work/log" >&2; failed "it cannot be purged"; }
  inventory >"$work/after"
  diff "$work/before" "$work/after" || failed "a purge leaves files"
  ! run getent passwd tidegate >/dev/null || failed "a purge leaves the user"
  ! run test -e /etc/tidegate || failed "a purge leaves /etc/tidegate"
  step "purged: nothing is left"
  exit 0
fi

package=$(readlink -f "$1")
lower=$(readlink -f "${2:-/}")
[ "$(id -u)" = 0 ] || cannot "it takes root"
for tool in unshare:util-linux chroot:coreutils dpkg:dpkg; do
  command -v "${tool%%:*}" >/dev/null || cannot "${tool%%:*} is missing, of ${tool#*:}"
done
[ -x "$lower/usr/bin/dpkg" ] || cannot "$lower has no dpkg"
[ -x "$lower/usr/sbin/adduser" ] || cannot "$lower has no adduser"
unshare --mount --uts true 2>/dev/null || cannot "no namespaces: not permitted"
work=$(mktemp -d)
trap 'rmdir "$work"' EXIT
unshare --mount --uts "$0" "$package" "$lower" "$work" inside
