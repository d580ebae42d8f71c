#!/usr/bin/env bash
# Runs the units of contrib/systemd under a real systemd: start, reload, upgrade, crash, stop; and the hooks of docs/moves.md.
# usage: scripts/systemd.sh PROGRAM
# TIDEGATE_UNITS is a folder with other units of the same names, as of a package; one may run as a user `tidegate`.
# Ends with 77 and a reason where no systemd can run. It is the first process of namespaces of its own, and sees of this
# machine only programs and libraries, which it cannot change.
set -euo pipefail

program=$(readlink -f "$1")
here=$(cd "$(dirname "$0")/.." && pwd)
units=${TIDEGATE_UNITS:-$here/contrib/systemd}
systemd=/lib/systemd/systemd
limit=20

cannot() { echo "systemd: $*" >&2; exit 77; }

# The other side: the first process of the namespaces makes its root and becomes systemd.
if [ "${3:-}" = boot ]; then
  root=$2
  read -r pid _ </proc/self/stat
  mount --make-rprivate /
  mount -t tmpfs root "$root"
  cd "$root"
  mkdir -p usr etc/systemd/system etc/tidegate var/log var/lib var/tmp run tmp home root proc sys dev old
  for folder in bin sbin lib lib64; do
    if [ -L "/$folder" ]; then ln -s "usr/$folder" "$folder"
    elif [ -d "/$folder" ]; then mkdir "$folder"; mount --bind "/$folder" "$folder"; mount -o remount,bind,ro "$folder"; fi
  done
  mount --bind /usr usr
  mount -o remount,bind,ro usr
  mount -t tmpfs local usr/local
  mkdir usr/local/bin
  cp "$program" usr/local/bin/tidegate
  mount -t proc proc proc
  mount --bind proc/sys proc/sys
  mount -o remount,bind,ro proc/sys
  mount -t sysfs -o ro sysfs sys
  mount -t cgroup2 cgroup sys/fs/cgroup
  mount -t tmpfs dev dev
  for device in null zero full random urandom tty; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
  ln -s /proc/self/fd dev/fd
  mkdir dev/shm dev/pts
  mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  for folder in dev/shm run tmp; do mount -t tmpfs "$(basename $folder)" $folder; done
  cp /etc/passwd /etc/group etc/
  if ! grep -q '^tidegate:' etc/passwd && grep -q '^User=tidegate$' "$units/tidegate.service"; then
    echo 'tidegate:x:987:987::/nonexistent:/usr/sbin/nologin' >>etc/passwd
    echo 'tidegate:x:987:' >>etc/group
  fi
  printf 'passwd: files systemd\ngroup: files systemd\nhosts: files\n' >etc/nsswitch.conf
  tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
  cp "$units"/*.service etc/systemd/system/
  if [ -d /etc/nginx ]; then
    cp -a /etc/nginx etc/
    rm -f etc/nginx/sites-enabled/*
    mkdir -p var/log/nginx var/lib/nginx
  fi
  cat >etc/systemd/system/node.service <<'UNIT'
[Service]
DynamicUser=yes
ExecStart=/usr/local/bin/tidegate run /etc/tidegate/node.toml
UNIT
  cat >etc/systemd/system/tidegate-test.target <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target
UNIT
  # A node is another front-end, whose admin interface answers /livez.
  cat >etc/tidegate/node.toml <<'FILE'
[admin]
address = "127.0.0.1:8000"
[[listener]]
address = "127.0.0.1:8001"
[[site]]
name = "none"
[[node]]
name = "none"
site = "none"
address = "127.0.0.1:9"
FILE
  cat >etc/tidegate/tidegate.toml <<'FILE'
[load]
key_file = "/run/credentials/tidegate.service/master.key"
[[listener]]
address = "127.0.0.1:80"
[[site]]
name = "shop"
[[node]]
name = "n1"
site = "shop"
address = "127.0.0.1:8000"
FILE
  usr/local/bin/tidegate key new etc/tidegate/master.key >/dev/null
  usr/local/bin/tidegate key derive --master etc/tidegate/master.key n1 -o etc/tidegate/node.key
  ip link set lo up
  pivot_root . old
  cd /
  echo "$pid" >"/old$root.pid"
  umount -l /old
  # Credentials are mounted elsewhere and come by propagation, which systemd leaves to what contains it.
  mount --make-rshared /
  exec env -i container=test PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "$systemd" --unit=tidegate-test.target --log-target=journal --show-status=0
fi

[ -x "$systemd" ] || cannot "no systemd is installed ($systemd)"
[ "$(id -u)" = 0 ] || cannot "it takes root"
for tool in unshare:util-linux nsenter:util-linux pivot_root:util-linux ip:iproute2 curl:curl; do
  command -v "${tool%%:*}" >/dev/null || cannot "${tool%%:*} is missing, of ${tool#*:}"
done
unified=
for folder in /sys/fs/cgroup /sys/fs/cgroup/unified; do
  [ "$(stat -f -c %T "$folder" 2>/dev/null)" != cgroup2fs ] || unified=$folder
done
[ -n "$unified" ] || cannot "no control groups of version 2 are mounted"

root=$(mktemp -d)
group=$unified/tidegate-systemd-$$
init=
client=
end() {
  [ -z "$client" ] || kill "$client" 2>/dev/null || true
  [ -z "$init" ] || kill -KILL "$init" 2>/dev/null || true
  wait
  # The last processes leave their groups a moment after their end.
  for _ in $(seq 50); do
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
    [ -d "$group" ] || break
    sleep 0.1
  done
  rm -rf "$root" "$root.pid" "$root.log" "$root.failed"
}
trap end EXIT
trap 'exit 1' TERM INT
mkdir "$group" 2>/dev/null || cannot "no group can be made in $unified: not permitted"

# The group of the one that makes the namespaces is the root of all groups in them.
(
  echo "$BASHPID" >"$group/cgroup.procs"
  exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child "$0" "$program" "$root" boot
) >"$root.log" 2>&1 </dev/null &
outer=$!

# Waits for something, for so long at the most.
within() {
  local tenths=$((limit * 10))
  until "$@" >/dev/null 2>&1; do
    [ $((tenths -= 1)) -gt 0 ] || return 1
    sleep 0.1
  done
}
booted() { [ -s "$root.pid" ] || ! kill -0 "$outer" 2>/dev/null; }
within booted || cannot "no namespaces: $(cat "$root.log")"
[ -s "$root.pid" ] || cannot "no namespaces: $(tail -n 1 "$root.log")"
init=$(cat "$root.pid")

inside() { nsenter --target "$init" --all -- "$@"; }
within inside systemctl is-active tidegate-test.target || cannot "systemd does not come up: $(tail -n 1 "$root.log")"

failed() {
  echo "systemd: $*" >&2
  inside systemctl status --no-pager --full tidegate >&2 || true
  inside journalctl --no-pager --lines 60 >&2 || true
  exit 1
}
property() { inside systemctl show --value --property "$1" tidegate; }
is() { [ "$(property "$1")" = "$2" ]; }
answers() { inside curl --silent --fail --max-time 5 --output /dev/null "http://127.0.0.1/livez"; }
tidegate() { inside /usr/local/bin/tidegate "$@"; }
step() { echo "systemd: $*"; }

inside systemctl start node
within inside curl --silent --fail http://127.0.0.1:8000/livez || failed "the node does not serve"

# Type=notify: it is started when it serves, not before.
inside systemctl start tidegate || failed "it does not start"
is ActiveState active && is NotifyAccess main || failed "it is not active"
answers || failed "it is started and does not serve"
first=$(property MainPID)
step "started: process $first serves"

inside systemctl start tidegate-agent || failed "the agent does not start"
has() { tidegate status | grep -q "$1"; }
reads() { tidegate status | grep -E '^ +n1 +up' | grep -qvw none; }
within reads || { inside journalctl --no-pager --unit tidegate-agent >&2; failed "the agent's loads are not read"; }
step "agent: loads come by $(tidegate status | awk '$1 == "n1" && $2 == "up" { print $3 }')"

# Requests go on from here to the end of the upgrades.
mkdir "$root.failed"
(
  while [ ! -e "$root.failed/end" ]; do answers || echo "at $(date +%T.%N)" >>"$root.failed/requests"; done
) &
client=$!

printf '[[node]]\nname = "n2"\nsite = "shop"\naddress = "127.0.0.1:8000"\n' | inside tee -a /etc/tidegate/tidegate.toml >/dev/null
inside systemctl reload tidegate || failed "it does not reload"
within has n2 || failed "a reload does not bring the file's new node"
within is ActiveState active && is MainPID "$first" || failed "a reload has changed the service"
step "reloaded: n2 is there"

inside sh -c 'echo nonsense >>/etc/tidegate/tidegate.toml'
inside systemctl reload tidegate || true
bad() { inside curl --silent http://127.0.0.1:9900/metrics | grep -q '^tidegate_reloads_total{result="failed"} 1$'; }
within bad || failed "a reload of a file with an error does not say so"
within is ActiveState active && answers || failed "a file with an error ends the service"
inside sed -i '$d' /etc/tidegate/tidegate.toml
step "a file with an error changes nothing"

upgraded() { [ "$(property MainPID)" != "$1" ] && [ "$(property MainPID)" != 0 ]; }
tidegate upgrade >/dev/null || failed "no upgrade"
within upgraded "$first" || failed "an upgrade does not change the main process"
second=$(property MainPID)
gone() { ! inside kill -0 "$1"; }
within gone "$first" || failed "the former process does not end"
is ActiveState active && is MainPID "$second" && answers || failed "the service does not outlive its former process"
step "upgraded: process $second is the service"

inside systemctl kill --kill-whom=main --signal=USR2 tidegate
within upgraded "$second" || failed "SIGUSR2 does not change the main process"
third=$(property MainPID)
within gone "$second" || failed "the second process does not end"
is ActiveState active && is NRestarts 0 || failed "SIGUSR2 restarts the service"
step "upgraded by SIGUSR2: process $third"

touch "$root.failed/end"
wait "$client"
[ ! -e "$root.failed/requests" ] || failed "requests were lost: $(head -n 3 "$root.failed/requests")"
step "no request was lost"

tidegate node add n3 127.0.0.1:8000 --site shop >/dev/null || failed "no node can be added"
inside systemctl kill --kill-whom=main --signal=KILL tidegate
restarted() { is NRestarts 1 && is ActiveState active && answers; }
within restarted || failed "a process that took over is not restarted when it crashes"
within has n3 || failed "a node that was added is gone after a crash"
step "killed and started again: process $(property MainPID)"

# The watchdog: a process that stands still is killed and started anew, one that goes on is not.
inside mkdir -p /run/systemd/system/tidegate.service.d
printf '[Service]\nWatchdogSec=5s\n' | inside tee /run/systemd/system/tidegate.service.d/watchdog.conf >/dev/null
inside systemctl daemon-reload
inside systemctl restart tidegate || failed "it does not start with a watchdog"
fourth=$(property MainPID)
tidegate upgrade >/dev/null || failed "no upgrade with a watchdog"
within upgraded "$fourth" || failed "an upgrade with a watchdog does not change the main process"
within gone "$fourth" || failed "the former process does not end"
fifth=$(property MainPID)
before=$(property WatchdogTimestampMonotonic)
heard() { [ "$(property WatchdogTimestampMonotonic)" -gt "$before" ]; }
within heard && is MainPID "$fifth" || failed "the watchdog hears nothing of a process that took over"
inside systemctl kill --kill-whom=main --signal=STOP tidegate
revived() { [ "$(property MainPID)" != "$fifth" ] && is NRestarts 1 && is ActiveState active && answers; }
within revived || failed "a process that stands still is not started anew"
[[ $(inside journalctl --no-pager --unit tidegate) == *"Watchdog timeout"* ]] || failed "it was not the watchdog that ended it"
inside rm -r /run/systemd/system/tidegate.service.d
inside systemctl daemon-reload
step "stood still: killed by the watchdog and started again: process $(property MainPID)"

inside systemctl stop tidegate || failed "it does not stop"
is ActiveState inactive && is Result success || failed "it stops as a failure: $(property Result)"
! inside test -d /sys/fs/cgroup/system.slice/tidegate.service || failed "processes are left"
step "stopped: $(property Result)"

# A socket unit: a client that comes while nothing runs waits for the service that it starts.
printf '[Socket]\nListenStream=127.0.0.1:80\n' | inside tee /etc/systemd/system/tidegate.socket >/dev/null
inside systemctl daemon-reload
inside systemctl start tidegate.socket
is ActiveState inactive || failed "a socket unit starts it before there is a client"
active() { is ActiveState active; }
answers && within active || failed "a client of the socket unit gets no answer"
inside systemctl restart tidegate && answers || failed "it does not restart with a socket unit"
inside systemctl stop tidegate.socket tidegate || failed "it does not stop with a socket unit"
step "started by a client of its socket unit"

# An agent whose hook has systemd test nginx and reload it: docs/moves.md, word for word.
if [ ! -x /usr/sbin/nginx ] || [ ! -d /etc/nginx ]; then
  step "no hooks: nginx is not installed"
  exit 0
fi
write() { inside tee "$1" >/dev/null; }
master=/etc/tidegate/master.key
for node in b2 s1; do tidegate key derive --master $master $node -o /etc/tidegate/$node.key >/dev/null; done
write /etc/systemd/system/nginx-test.service <<'UNIT'
[Service]
Type=oneshot
ExecStart=/usr/sbin/nginx -t
UNIT
inside mkdir -p /etc/systemd/system/tidegate-agent.service.d
write /etc/systemd/system/tidegate-agent.service.d/hooks.conf <"$here/contrib/systemd/tidegate-agent-hooks.conf"
{
  cat <<'FILE'
[agent]
listen = "0.0.0.0:9901"
key_file = "/run/credentials/tidegate-agent.service/node.key"
[agent.moves]
port = 8080
state = "/var/lib/tidegate-agent"
FILE
  for site in blog shop; do
    cat <<FILE
[[agent.moves.site]]
name = "$site"
template = "vhost.template"
target = "/etc/nginx/sites-enabled/tidegate.conf"
commands = [["/usr/bin/systemctl", "start", "nginx-test"], ["/usr/bin/systemctl", "reload", "nginx"]]
timeout = "10s"
FILE
  done
} | write /etc/tidegate/agent.toml
vhost='server { listen 127.0.0.1:8080; location / { return 200 "{site}"; } }'
echo "$vhost" | write /etc/tidegate/vhost.template
echo "${vhost/\{site\}/blog}" | write /etc/nginx/sites-enabled/tidegate.conf
{
  cat <<'FILE'
[load]
key_file = "/run/credentials/tidegate.service/master.key"
[[listener]]
address = "127.0.0.1:80"
[reconfigure]
enabled = true
engine = "region"
home = "udp://127.0.0.1:9901"
home_key_name = "n1"
drain = "5s"
hook = "20s"
FILE
  for site in blog shop; do
    printf '[[site]]\nname = "%s"\nhosts = ["%s.example"]\nnodes = { min = 1 }\n' $site $site
  done
  printf '[[node]]\nname = "%s"\nsite = "%s"\naddress = "%s"\nload = { transport = "udp", address = "127.0.0.1:%s" }\n' \
    n1 blog 127.0.0.1:8080 9901 b2 blog 127.0.0.1:8000 9902 s1 shop 127.0.0.1:8000 9903
} | write /etc/tidegate/tidegate.toml
inside systemctl daemon-reload
inside systemctl restart tidegate-agent || failed "an agent with hooks does not start"
port=9902
for node in b2 s1; do
  inside systemd-run --quiet --unit=agent-$node /usr/local/bin/tidegate agent --listen 127.0.0.1:$port --key-file /etc/tidegate/$node.key
  port=$((port + 1))
done
inside systemctl start nginx || failed "nginx does not start"
inside systemctl start tidegate || failed "a front-end with moves does not start"
unmoved() {
  inside journalctl --no-pager --unit tidegate-agent --unit nginx --unit nginx-test >&2
  tidegate moves >&2
  failed "$@"
}
ready() { tidegate move n1 shop --dry-run; }
within ready || unmoved "no node can be moved: $(ready 2>&1)"
serves() { [ "$(inside curl --silent --fail http://127.0.0.1:8080/)" = "$1" ]; }
serves blog || unmoved "nginx does not serve the blog"
tidegate move n1 shop >/dev/null || unmoved "a node does not move"
within serves shop || unmoved "the hook does not set nginx up for the shop"
step "moved: systemd has tested and reloaded nginx"

echo "${vhost/location/nonsense}" | write /etc/tidegate/vhost.template
! said=$(tidegate move n1 blog 2>&1) || unmoved "a node moves though nginx refuses its file"
[[ $said == *"its hook failed with exit code 1: it is back at shop"* ]] || unmoved "a hook that fails is not said: $said"
serves shop || unmoved "nginx does not serve the shop any more"
inside systemctl reload nginx || unmoved "nginx's file is not what it was"
step "not moved: nginx refuses the file, and serves on as before"
