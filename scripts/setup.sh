#!/usr/bin/env bash
# Installs what a command of the Makefile needs and this machine lacks, from Debian's packages.
# usage: scripts/setup.sh build|test
# Without a compiler nothing works, so that is an error. What only some tests need is not: they
# say SKIPPED and why.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

have cargo || { echo "setup: cargo is missing: install Rust with rustup (https://rustup.rs)" >&2; exit 1; }

# command:package, for what must be there and for what should.
must=(cc:gcc make:make)
should=()
if [ "${1:-build}" = test ]; then
  should=(git:git curl:curl nginx:nginx-light chromium:chromium valgrind:valgrind)
fi

missing() {
  local pair
  for pair in "$@"; do have "${pair%%:*}" || [ -x "/usr/sbin/${pair%%:*}" ] || echo "${pair#*:}"; done
}

install() {
  local as=()
  [ "$(id -u)" = 0 ] || { have sudo && as=(sudo -n); } || return 1
  "${as[@]}" apt-get update -qq >/dev/null &&
    DEBIAN_FRONTEND=noninteractive "${as[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need=$(missing "${must[@]}")
[ -z "$need" ] || install $need || { echo "setup: please install: $need" >&2; exit 1; }
want=$(missing ${should[@]+"${should[@]}"})
[ -z "$want" ] || install $want || echo "setup: could not install: $(echo $want) (tests that need them will be skipped)" >&2
