#!/usr/bin/env bash
# Runs programs under another kernel of Debian's, in an emulated machine.
# usage: scripts/kernel-vm.sh [--rdma] [--cable ADDRESS OWN OTHER] [--with PROGRAM]... 6.1|6.12 PROGRAM [ARGUMENT...]
# The program has those variables of the environment that begin with TIDEGATE_, of one line.
# Ends with the program's exit code; with 77 and a reason if the machine cannot be had here.
# --rdma: the machine has an RDMA device without a card, rxe0 on its loopback interface, and the library to use it.
# Take 6.1 for that: later kernels carry RDMA out in a queue of work that starves under load.
# --cable: with --rdma, a card eth0 with this IPv4 address, and rxe0 on it. OWN and OTHER are sockets in the file system, one
# for each end of the cable: another machine has them the other way round.
# --with: the machine has this program too, under the same path.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

flavour=cloud-amd64 rdma= cable=() others=()
usage() { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }

while [ $# -gt 0 ]; do
  case $1 in
    # The kernels for clouds have no RDMA without a card.
    --rdma) flavour=amd64 rdma=yes; shift ;;
    --cable) [ $# -ge 4 ] || usage; cable=("$2" "$3" "$4"); shift 4 ;;
    --with) [ $# -ge 2 ] || usage; others+=("$(readlink -e "$2")") || { echo "kernel-vm: there is no $2" >&2; exit 2; }; shift 2 ;;
    -*) usage ;;
    *) break ;;
  esac
done
[ $# -ge 2 ] || usage
series=$1
program=$(readlink -e "$2") || { echo "kernel-vm: there is no $2" >&2; exit 2; }
shift 2
if [ ${#cable[@]} -gt 0 ]; then
  [ -n "$rdma" ] || usage
  [[ ${cable[0]} =~ ^([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})$ ]] || { echo "kernel-vm: ${cable[0]} is no IPv4 address" >&2; exit 2; }
  # Two cards of one network need two addresses.
  mac=$(printf '52:54:00:%02x:%02x:%02x' "$((10#${BASH_REMATCH[2]}))" "$((10#${BASH_REMATCH[3]}))" "$((10#${BASH_REMATCH[4]}))")
  [[ ${cable[1]}${cable[2]} != *,* ]] || { echo "kernel-vm: a socket's path has a comma" >&2; exit 2; }
fi
here=$(cd "$(dirname "$0")/.." && pwd)
cache=$here/target/kernels
limit=${LIMIT:-240}

cannot() { echo "kernel-vm: $*" >&2; exit 77; }

needed=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio dpkg-deb:dpkg ldd:libc-bin)
[ -z "$rdma" ] || needed+=(rdma:iproute2 tc:iproute2 modprobe:kmod)
for tool in "${needed[@]}"; do
  command -v "${tool%%:*}" >/dev/null || cannot "${tool%%:*} is missing, of ${tool#*:}"
done
[ "$(uname -m)" = x86_64 ] || cannot "the kernels are for x86_64"

verbs=/usr/lib/x86_64-linux-gnu
driver=
if [ -n "$rdma" ]; then
  [ -e "$verbs/libibverbs.so.1" ] || cannot "libibverbs.so.1 is missing, of libibverbs1"
  driver=$(find "$verbs/libibverbs" -name 'librxe-rdmav*.so' 2>/dev/null | head -1)
  [ -n "$driver" ] || cannot "librxe is missing, of ibverbs-providers"
fi

# Keeps the modules of RDMA without a card, of the emulated network card and of bad networks, numbered in the order in which they are loaded. The
# checksum that rxe asks for is not among those that it is known to need.
rdma_modules() {
  local release number=10 file
  release=$(ls "$1/lib/modules")
  depmod --basedir "$1" "$release"
  for module in crc32_generic rdma_rxe sch_netem e1000; do
    modprobe --dirname "$1" --set-version "$release" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$1/order"
  while read -r file; do
    cp "$file" "$kernel/rdma-$number-$(basename "$file")"
    number=$((number + 1))
  done <"$1/order"
}

# The newest kernel of the series, unpacked and never installed. Packages are named 6.1.0-50 and
# 6.12.117+deb12, with the flavour behind.
package=$(apt-cache search --names-only "^linux-image-${series//./\\.}\\.[0-9][^-]*(-[0-9]+)?-$flavour\$" | cut -d' ' -f1 | sort -V | tail -1)
[ -n "$package" ] || cannot "no package of Linux $series is known here (apt-get update?)"
kernel=$cache/$package
mkdir -p "$cache"
# Two machines that begin at once unpack it once.
exec 9>"$cache/lock"
flock 9
# One that was unpacked by an older version of this script lacks what was added.
lacks=
[ -z "$rdma" ] || compgen -G "$kernel/rdma-*-e1000.ko*" >/dev/null || lacks=yes
if [ -n "$lacks" ] || [ ! -e "$kernel/vmlinuz" ]; then
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  chmod 755 "$fresh"
  (cd "$fresh" && apt-get download -qq "$package" >/dev/null 2>&1) || cannot "$package cannot be fetched"
  dpkg-deb --extract "$fresh"/*.deb "$fresh/tree"
  mkdir -p "$kernel"
  find "$fresh/tree" -name 'veth.ko*' -exec cp {} "$kernel/" \;
  [ -z "$rdma" ] || rdma_modules "$fresh/tree"
  cp "$fresh"/tree/boot/vmlinuz-* "$kernel/vmlinuz.new"
  mv "$kernel/vmlinuz.new" "$kernel/vmlinuz"
  rm -rf "$fresh"
fi
exec 9>&-

# What the machine begins with: busybox, the program, its libraries.
root=$(mktemp -d)
machine=
# A machine does not outlive its script.
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null; rm -rf "$root" "$root.cpio" "$root.log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,modules,lib64}
cp -L "$(command -v busybox)" "$root/bin/busybox"
# Programs without what debuggers read, which is most of them: it would be unpacked into the machine's memory.
slim() { mkdir -p "$(dirname "$2")" && { strip -o "$2" "$1" 2>/dev/null || cp "$1" "$2"; }; }
slim "$program" "$root/program"
for other in ${others[@]+"${others[@]}"}; do slim "$other" "$root$other"; done
tools=()
ip=$(command -v ip || true)
[ -z "$ip" ] || { cp -L "$ip" "$root/bin/ip"; tools+=("$ip"); }
if [ -n "$rdma" ]; then
  for tool in rdma tc; do
    cp -L "$(command -v "$tool")" "$root/bin/$tool"
    tools+=("$(command -v "$tool")")
  done
  # Loaded by the program while it runs, each by its name.
  for loaded in "$verbs/libibverbs.so.1" "$driver"; do
    mkdir -p "$root$(dirname "$loaded")"
    cp -L "$loaded" "$root$loaded"
    tools+=("$loaded")
  done
  mkdir -p "$root/etc/libibverbs.d"
  echo "driver rxe" >"$root/etc/libibverbs.d/rxe.driver"
fi
ldd "$program" ${others[@]+"${others[@]}"} ${tools[@]+"${tools[@]}"} | awk '/=> \//{print $3} /^[ \t]*\/lib/{print $1}' | sort -u | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
network=()
if [ ${#cable[@]} -gt 0 ]; then
  echo "${cable[0]}" >"$root/cable"
  network=(
    -netdev "dgram,id=cable,local.type=unix,local.path=${cable[1]},remote.type=unix,remote.path=${cable[2]}"
    -device "e1000,netdev=cable,mac=$mac"
  )
fi
for module in "$kernel"/rdma-*.ko* "$kernel"/veth.ko*; do
  case $module in
    *.xz) xz -dc "$module" >"$root/modules/$(basename "${module%.xz}")" ;;
    *.ko) cp "$module" "$root/modules/" ;;
  esac
done
[ $# -eq 0 ] || printf '%s\n' "$@" >"$root/arguments"
# Quoted as any shell reads it.
env | grep '^TIDEGATE_[A-Z0-9_]*=' | sed "s/'/'\\\\''/g; s/^\([^=]*\)=\(.*\)\$/export \1='\2'/" >"$root/environment" || true
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin TIDEGATE_EMULATED=1
. /environment
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
[ -n "$(ls -A /tmp)" ] || mount -t tmpfs tmp /tmp
[ -n "$(ls -A /run)" ] || mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /dev/shm /run/netns
mount -t tmpfs shm /dev/shm
for module in /modules/*.ko; do [ ! -e "$module" ] || insmod "$module"; done
ip link set lo up 2>/dev/null
if [ -e /bin/rdma ]; then
  ulimit -l unlimited
  interface=lo
  if [ -e /cable ]; then
    interface=eth0
    ip address add "$(cat /cable)/24" dev eth0
    ip link set eth0 up
  fi
  /bin/rdma link add rxe0 type rxe netdev "$interface" || echo "kernel-vm: no RDMA device"
fi
echo "kernel-vm: Linux $(uname -r)"
set --
[ ! -e /arguments ] || while read -r argument; do set -- "$@" "$argument"; done </arguments
/program "$@"
code=$?
echo "kernel-vm: exit code $code"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) >"$root.cpio"

# One thread for both CPUs: with one each, the emulator may run code that the other CPU has just
# patched away (tracepoints come and go in these tests), which no machine does: "Oops: int3". But then one CPU that always
# has work holds up the other for milliseconds: THREADS=multi is for what measures that, and attaches little.
exec 8> >(tee "$root.log")
tee=$!
timeout "$limit" qemu-system-x86_64 -machine q35 -accel "tcg,thread=${THREADS:-single}" -cpu max -smp 2 -m 1024 \
  -nodefaults -no-user-config -display none -no-reboot -serial stdio ${network[@]+"${network[@]}"} \
  -kernel "$kernel/vmlinuz" -initrd "$root.cpio" \
  -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off random.trust_cpu=on" \
  </dev/null >&8 &
machine=$!
ended=0
wait "$machine" || ended=$?
machine=
exec 8>&-
wait "$tee"
[ "$ended" -eq 0 ] || {
  # A program that hangs has failed; a machine that does not come up cannot be had here.
  if grep -q '^kernel-vm: Linux' "$root.log"; then
    printf '\nkernel-vm: the program did not end within %s s\n' "$limit"
    exit 1
  fi
  cannot "the machine did not come up within $limit s"
}
code=$(sed -n 's/^kernel-vm: exit code \([0-9]*\).*/\1/p' "$root.log" | tail -1)
[ -n "$code" ] || { printf '\nkernel-vm: the machine ended before the program\n'; exit 1; }
exit "$code"
