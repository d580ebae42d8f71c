#!/usr/bin/env bash
# Runs programs under another kernel of Debian's, in an emulated machine.
# usage: scripts/kernel-vm.sh 6.1|6.12 PROGRAM [ARGUMENT...]
# Ends with the program's exit code; with 77 and a reason if the machine cannot be had here.
set -euo pipefail

series=$1
program=$(readlink -f "$2")
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
cache=$here/target/kernels
limit=${LIMIT:-240}

cannot() { echo "kernel-vm: $*" >&2; exit 77; }

for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio dpkg-deb:dpkg ldd:libc-bin; do
  command -v "${tool%%:*}" >/dev/null || cannot "${tool%%:*} is missing, of ${tool#*:}"
done
[ "$(uname -m)" = x86_64 ] || cannot "the kernels are for x86_64"

# The newest kernel of the series, unpacked and never installed. Packages are named 6.1.0-50 and
# 6.12.117+deb12.
package=$(apt-cache search --names-only "^linux-image-${series//./\\.}\\.[0-9].*cloud-amd64\$" | cut -d' ' -f1 | sort -V | tail -1)
[ -n "$package" ] || cannot "no package of Linux $series is known here (apt-get update?)"
kernel=$cache/$package
if [ ! -e "$kernel/vmlinuz" ]; then
  fresh=$(mktemp -d)
  chmod 755 "$fresh"
  (cd "$fresh" && apt-get download -qq "$package" >/dev/null 2>&1) || cannot "$package cannot be fetched"
  dpkg-deb --extract "$fresh"/*.deb "$fresh/tree"
  mkdir -p "$kernel"
  find "$fresh/tree" -name 'veth.ko*' -exec cp {} "$kernel/" \;
  cp "$fresh"/tree/boot/vmlinuz-* "$kernel/vmlinuz.new"
  mv "$kernel/vmlinuz.new" "$kernel/vmlinuz"
  rm -rf "$fresh"
fi

# What the machine begins with: busybox, the program, its libraries.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,modules,lib64}
cp -L "$(command -v busybox)" "$root/bin/busybox"
cp "$program" "$root/program"
tools=()
ip=$(command -v ip || true)
[ -z "$ip" ] || { cp -L "$ip" "$root/bin/ip"; tools+=("$ip"); }
ldd "$program" ${tools[@]+"${tools[@]}"} | awk '/=> \//{print $3} /^[ \t]*\/lib/{print $1}' | sort -u | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
for module in "$kernel"/veth.ko*; do
  case $module in
    *.xz) xz -dc "$module" >"$root/modules/$(basename "${module%.xz}")" ;;
    *.ko) cp "$module" "$root/modules/" ;;
  esac
done
printf '%s\n' "$@" >"$root/arguments"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /dev/shm /run/netns
mount -t tmpfs shm /dev/shm
for module in /modules/*.ko; do [ ! -e "$module" ] || insmod "$module"; done
ip link set lo up 2>/dev/null
echo "kernel-vm: Linux $(uname -r)"
xargs -a /arguments /program
code=$?
echo "kernel-vm: exit code $code"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) >"$root.cpio"
trap 'rm -rf "$root" "$root.cpio" "$root.log"' EXIT

# One thread for both CPUs: with one each, the emulator may run code that the other CPU has just
# patched away (tracepoints come and go in these tests), which no machine does: "Oops: int3".
timeout "$limit" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -cpu max -smp 2 -m 1024 \
  -nodefaults -no-user-config -display none -no-reboot -serial stdio \
  -kernel "$kernel/vmlinuz" -initrd "$root.cpio" \
  -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off random.trust_cpu=on" \
  </dev/null | tee "$root.log" || {
  # A program that hangs has failed; a machine that does not come up cannot be had here.
  if grep -q '^kernel-vm: Linux' "$root.log"; then
    echo "kernel-vm: the program did not end within $limit s" >&2
    exit 1
  fi
  cannot "the machine did not come up within $limit s"
}
code=$(sed -n 's/^kernel-vm: exit code \([0-9]*\).*/\1/p' "$root.log" | tail -1)
[ -n "$code" ] || { echo "kernel-vm: the machine ended before the program" >&2; exit 1; }
exit "$code"
