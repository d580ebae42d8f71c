#!/usr/bin/env bash
# Builds the binary that is put before real servers: target/release/tidegate, without debug information,
# which goes to target/release/tidegate.debug; debuggers and profilers find it there.
# usage: scripts/build.sh [PROFILE]
#
# libelf and zlib, which load the kernel's programs, are linked statically where their archives are
# installed: the binary then needs nothing but the C library.
set -euo pipefail

profile=${1:-release}
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# The compiler looks into this folder first and finds no shared library there. libelf of newer systems
# needs libzstd, so the archives stand in one group, which is a linker script by libelf's name.
archives="$target/static-libs"
mkdir -p "$archives"
archives=$(cd "$archives" && pwd)
archive() { local path; path=$(cc -print-file-name="$1"); [ "$path" != "$1" ] && echo "$path"; }
static=
if elf=$(archive libelf.a) && zlib=$(archive libz.a); then
  zstd=$(archive libzstd.a) || zstd=
  echo "GROUP ( $elf $zlib $zstd )" >"$archives/libelf.a"
  echo "GROUP ( $zlib )" >"$archives/libz.a"
  export LIBBPF_SYS_LIBRARY_PATH="$archives${LIBBPF_SYS_LIBRARY_PATH:+:$LIBBPF_SYS_LIBRARY_PATH}"
  static=yes
else
  echo "build: libelf.a and libz.a are not installed: the binary will need both as shared libraries" >&2
fi

cargo build --profile "$profile" --locked --package tidegate

folder=$profile
[ "$profile" != dev ] || folder=debug
binary="$target/$folder/tidegate"
needed=$(readelf --dynamic "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if [ -n "$static" ] && grep -qE '^lib(elf|z|zstd)\.' <<<"$needed"; then
  echo "build: $binary still needs $(echo $needed)" >&2
  exit 1
fi

# cargo links anew only what has changed: what is stripped already stays as it is.
if readelf --section-headers --wide "$binary" | grep -q '\.debug_info'; then
  objcopy --only-keep-debug "$binary" "$binary.debug"
  (cd "$(dirname "$binary")" && objcopy --strip-debug --add-gnu-debuglink=tidegate.debug tidegate)
fi
glibc=$(readelf --version-info "$binary" | grep -oE 'GLIBC_[0-9.]+' | sort -V | tail -1)
echo "$binary: $(du -h "$binary" | cut -f1), needs $glibc or later and $(echo $needed)"
