#!/usr/bin/env bash
# Slows what is marked down to a rate, at one interface, with HTB and, if wanted, an 802.1Q VLAN.
# usage: shape.sh start|stop|show INTERFACE
#
#   RATE=2mbit        what all marked traffic together gets
#   LINK=1gbit        what all others get: the speed of the interface, or a little less
#   DSCP=8            code point that is slowed (tidegate throttle … --dscp 8); empty: none
#   MARK=             SO_MARK that is slowed, like 7 (--mark 7); needs the kernel's fw classifier
#   VLAN=             number of a VLAN to make on the interface and to shape; empty: the interface itself
#   PCP=1             priority in the VLAN's tag of what is slowed by SO_PRIORITY
#
# SO_PRIORITY 65556 (--so-priority 65556) is the slow class by itself: HTB takes a priority for a class,
# here 1:14 in hexadecimal.
# Ends with 77 and a reason where the kernel lacks what is asked for.
set -euo pipefail

readonly FAST=1:a SLOW=1:14 PRIORITY=65556
RATE=${RATE:-2mbit} LINK=${LINK:-1gbit} DSCP=${DSCP-8} MARK=${MARK-} VLAN=${VLAN-} PCP=${PCP:-1}

usage() { sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//' >&2; exit 2; }
cannot() { echo "shape: $*" >&2; exit 77; }

[ $# = 2 ] || usage
order=$1 interface=$2
device=$interface${VLAN:+.$VLAN}

# Filters by code point: the byte after the version in both families, without the two bits of ECN.
by_dscp() {
  local byte
  byte=$(printf '0x%02x' $((DSCP << 2)))
  tc filter add dev "$device" parent 1: protocol ip prio 1 u32 \
    match ip dsfield "$byte" 0xfc classid "$SLOW" || cannot "the kernel has no u32 classifier"
  tc filter add dev "$device" parent 1: protocol ipv6 prio 2 u32 \
    match ip6 priority "$byte" 0xfc classid "$SLOW"
}

by_mark() {
  tc filter add dev "$device" parent 1: protocol all prio 3 handle "$MARK" fw classid "$SLOW" \
    || cannot "the kernel has no fw classifier for marks: use DSCP or SO_PRIORITY"
}

start() {
  if [ -n "$VLAN" ]; then
    ip link add link "$interface" name "$device" type vlan id "$VLAN" \
      egress-qos-map "$PRIORITY:$PCP" || cannot "the kernel has no 802.1Q VLANs"
    ip link set "$device" up
  fi
  tc qdisc add dev "$device" root handle 1: htb default a || cannot "the kernel has no HTB"
  tc class add dev "$device" parent 1: classid "$FAST" htb rate "$LINK" quantum 60000
  tc class add dev "$device" parent 1: classid "$SLOW" htb rate "$RATE" ceil "$RATE" burst 15k quantum 1514
  [ -z "$DSCP" ] || by_dscp
  [ -z "$MARK" ] || by_mark
}

stop() {
  if [ -n "$VLAN" ]; then
    ip link del "$device"
  else
    tc qdisc del dev "$device" root
  fi
}

case $order in
  start)
    # Half of it is worse than nothing.
    trap '[ $? = 0 ] || stop 2>/dev/null || true' EXIT
    start
    ;;
  stop) stop ;;
  show) tc -s class show dev "$device" ;;
  *) usage ;;
esac
