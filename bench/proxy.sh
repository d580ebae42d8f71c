#!/usr/bin/env bash
# CPU time and instructions per proxied request, Tidegate against HAProxy: the same four
# back-ends, keep-alive on both sides, one worker each, samples of both taken in turn.
#
#   bench/proxy.sh [ROUNDS] [SECONDS]     default: 9 rounds of 2 seconds per sample
#
# The proxy runs on CPU 1, load generator (wrk) and back-end (nginx) on CPU 0. Both proxies tell
# the back-end the client's address, protocol and host; neither writes an access log. If control
# groups can be made, each proxy gets 40 % of its CPU, so that it is always busy although one CPU
# drives it; else it idles in between, and its wake-ups are measured too.
#
# CPU time is the kernel's own account of the process, divided by the requests that wrk had
# answered; its ratio is the median over rounds, each against the HAProxy sample of that round.
# On a machine that does other things it is off by 10 % and more. Instructions are steady to
# about 2 %: by hardware counters (perf) where the machine has some, user and kernel; else by
# callgrind (valgrind), user only.
#
# Needs haproxy, nginx, wrk, curl, taskset, two CPUs; and perf or valgrind for instructions.
set -euo pipefail

rounds=${1:-9}
seconds=${2:-2}
connections=${CONNECTIONS:-64}
# Below the ports that the kernel gives to clients.
base=${PORT:-$((20000 + $$ % 10000))}
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin

for tool in haproxy nginx wrk curl taskset cargo; do
    command -v "$tool" > /dev/null || { echo "SKIPPED: $tool is not installed"; exit 0; }
done
[ "$(nproc)" -ge 2 ] || { echo "SKIPPED: needs two CPUs"; exit 0; }

work=$(mktemp -d)
groups=()
declare -A pid
finish() {
    for name in "${!pid[@]}"; do kill "${pid[$name]}" 2> /dev/null || true; done
    wait 2> /dev/null || true
    for group in "${groups[@]}"; do rmdir "$group" 2> /dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

(cd "$here" && cargo build --quiet --release --package tidegate-proxy --example bench_proxy)
program=${CARGO_TARGET_DIR:-$here/target}/release/examples/bench_proxy

# The back-ends: one nginx process behind four ports.
mkdir "$work/www" "$work/logs"
head -c 1024 /dev/zero | tr '\0' 'x' > "$work/www/1k"
head -c 16384 /dev/zero | tr '\0' 'x' > "$work/www/16k"
chmod 755 "$work" "$work/www"
chmod 644 "$work/www"/*
backends=()
for offset in 1 2 3 4; do backends+=("127.0.0.2:$((base + offset))"); done
{
    echo "worker_processes 1; daemon off; pid $work/nginx.pid; error_log $work/logs/nginx error;"
    echo "events { worker_connections 4096; }"
    echo "http { access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000;"
    echo "open_file_cache max=16; client_body_temp_path $work/logs; proxy_temp_path $work/logs;"
    echo "fastcgi_temp_path $work/logs; uwsgi_temp_path $work/logs; scgi_temp_path $work/logs;"
    echo "server { root $work/www;"
    for backend in "${backends[@]}"; do echo "listen $backend backlog=4096;"; done
    echo "} }"
} > "$work/nginx.conf"
{
    echo "global"
    echo "    nbthread 1"
    echo "    maxconn 4096"
    echo "defaults"
    echo "    mode http"
    echo "    http-reuse always"
    echo "    option forwardfor"
    echo "    timeout client 60s"
    echo "    timeout server 60s"
    echo "    timeout connect 2s"
    echo "    timeout http-request 10s"
    echo "    timeout http-keep-alive 60s"
    echo "frontend in"
    echo "    bind 127.0.0.1:$((base + 10))"
    echo "    http-request set-header X-Forwarded-Proto http"
    echo "    http-request set-header X-Forwarded-Host %[req.hdr(host)]"
    echo "    default_backend out"
    echo "backend out"
    echo "    balance roundrobin"
    for index in 0 1 2 3; do echo "    server n$index ${backends[$index]}"; done
} > "$work/haproxy.cfg"

names=(haproxy tidegate)
declare -A port=([haproxy]=$((base + 10)) [tidegate]=$((base + 11)))
# The measured proxy ends with its input.
mkfifo "$work/input"
exec 3<> "$work/input"

# start NAME [COMMAND…]: starts a proxy on CPU 1, under a command if one is given.
start() {
    local name=$1
    shift
    if [ "$name" = haproxy ]; then
        taskset -c 1 "$@" haproxy -q -db -f "$work/haproxy.cfg" &
    else
        taskset -c 1 "$@" "$program" "127.0.0.1:${port[$name]}" "${backends[@]}" \
            < "$work/input" > /dev/null &
    fi
    pid[$name]=$!
    curl --silent --fail --output /dev/null --retry 100 --retry-connrefused --retry-delay 0 \
        --retry-max-time 30 "http://127.0.0.1:${port[$name]}/1k"
}

stop() {
    kill "${pid[$1]}"
    wait "${pid[$1]}" 2> /dev/null || true
    unset "pid[$1]"
}

# load NAME SIZE SECONDS: prints how many requests were answered.
load() {
    taskset -c 0 wrk -t1 -c"$connections" -d"${3}s" --timeout 20s \
        "http://127.0.0.1:${port[$1]}/$2" > "$work/wrk"
    if grep -q 'Non-2xx\|Socket errors' "$work/wrk"; then
        { echo "errors with $1:"; cat "$work/wrk"; } >&2
        return 1
    fi
    awk '/requests in/ { print $1 }' "$work/wrk"
}

# cpu PID: nanoseconds on the CPU so far.
cpu() {
    cat "/proc/$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# cap NAME: gives a proxy 40 % of its CPU.
cap() {
    local group
    for group in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
        group=$group/tidegate-bench-$$-$1
        mkdir "$group" 2> /dev/null || continue
        groups+=("$group")
        if [ -e "$group/cpu.cfs_quota_us" ]; then
            echo 20000 > "$group/cpu.cfs_period_us" && echo 8000 > "$group/cpu.cfs_quota_us"
        elif [ -e "$group/cpu.max" ]; then
            echo "8000 20000" > "$group/cpu.max"
        else
            continue
        fi
        echo "${pid[$1]}" > "$group/cgroup.procs" && return 0
    done 2> /dev/null
    return 1
}

taskset -c 0 nginx -e "$work/logs/nginx" -c "$work/nginx.conf" & pid[nginx]=$!
for backend in "${backends[@]}"; do
    curl --silent --fail --output /dev/null --retry 50 --retry-connrefused --retry-delay 0 \
        --retry-max-time 10 "http://$backend/1k"
done
kill -0 "${pid[nginx]}" || { echo "nginx did not start" >&2; exit 1; }

# Instructions: lines of size, name, user, kernel ("-" where it cannot be seen).
perf stat -e instructions:u,instructions:k -o "$work/probe" true 2> /dev/null || true
counter=none
if grep -q 'instructions:u' "$work/probe" 2> /dev/null &&
    ! grep -q 'not supported\|not counted' "$work/probe"; then
    counter=perf
elif command -v valgrind > /dev/null; then
    counter=callgrind
fi
: > "$work/instructions"
if [ "$counter" = callgrind ]; then
    for name in "${names[@]}"; do
        for size in 1k 16k; do
            rm -f "$work/callgrind"*
            start "$name" valgrind --quiet --tool=callgrind --instr-atstart=no \
                --callgrind-out-file="$work/callgrind"
            load "$name" "$size" 1 > /dev/null
            callgrind_control -i on "${pid[$name]}" > /dev/null 2>&1
            requests=$(load "$name" "$size" 6)
            callgrind_control -i off "${pid[$name]}" > /dev/null 2>&1
            callgrind_control -d "${pid[$name]}" > /dev/null 2>&1
            stop "$name"
            awk -v size="$size" -v name="$name" -v requests="$requests" '
                /^totals:/ { sum += $2 } END { print size, name, sum / requests, "-" }' \
                "$work/callgrind"* >> "$work/instructions"
        done
    done
fi

for name in "${names[@]}"; do start "$name"; done
capped="with 40 % of a CPU each"
for name in "${names[@]}"; do cap "$name" || capped="not held back: no control groups here"; done
for name in "${names[@]}"; do load "$name" 1k 1 > /dev/null; done

if [ "$counter" = perf ]; then
    for size in 1k 16k; do
        for name in "${names[@]}"; do
            perf stat -x, -e instructions:u,instructions:k -p "${pid[$name]}" -o "$work/perf" &
            perf_pid=$!
            requests=$(load "$name" "$size" 5)
            kill -INT "$perf_pid"
            wait "$perf_pid" || true
            awk -F, -v size="$size" -v name="$name" -v requests="$requests" '
                /instructions:u/ { user = $1 } /instructions:k/ { kernel = $1 }
                END { print size, name, user / requests, kernel / requests }' "$work/perf" \
                >> "$work/instructions"
        done
    done
fi

: > "$work/cpu"
for ((round = 1; round <= rounds; round++)); do
    for size in 1k 16k; do
        for name in $(shuf -e "${names[@]}"); do
            before=$(cpu "${pid[$name]}")
            requests=$(load "$name" "$size" "$seconds")
            after=$(cpu "${pid[$name]}")
            echo "$size $name $round $before $after $requests" >> "$work/cpu"
        done
    done
done

version=$(haproxy -v | awk 'NR == 1 { print $3 }')
echo "Tidegate against HAProxy $version, one worker, $connections connections, $capped"
echo "instructions: $counter; CPU: medians of $rounds rounds"
echo
awk '
function median(list, count,    i, j, held) {
    for (i = 2; i <= count; i++) {
        held = list[i]
        for (j = i - 1; j > 0 && list[j] > held; j--) list[j + 1] = list[j]
        list[j + 1] = held
    }
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}
function number(value, form) { return value == "-" || value == "" ? "-" : sprintf(form, value) }
function over(ours, theirs) { return ours == "-" || ours == "" ? "-" : sprintf("%.3f", ours / theirs) }
FILENAME ~ /instructions$/ { user[$1, $2] = $3; kernel[$1, $2] = $4; next }
{
    if ($3 > rounds) rounds = $3
    micros[$1, $2, $3] = ($5 - $4) / 1000 / $6
}
END {
    print "| body | proxy | user instructions | kernel instructions | CPU us per request |"
    print "|---|---|---|---|---|"
    split("1k 16k", sizes, " ")
    split("haproxy tidegate", names, " ")
    for (s = 1; s <= 2; s++) {
        size = sizes[s]
        for (n = 1; n <= 2; n++) {
            for (r = 1; r <= rounds; r++) list[r] = micros[size, names[n], r]
            printf "| %s | %s | %s | %s | %.1f |\n", size, names[n],
                number(user[size, names[n]], "%.0f"), number(kernel[size, names[n]], "%.0f"),
                median(list, rounds)
        }
        for (r = 1; r <= rounds; r++) list[r] = micros[size, "tidegate", r] / micros[size, "haproxy", r]
        printf "| %s | ratio | **%s** | **%s** | **%.3f** |\n", size,
            over(user[size, "tidegate"], user[size, "haproxy"]),
            over(kernel[size, "tidegate"], kernel[size, "haproxy"]), median(list, rounds)
    }
}' "$work/instructions" "$work/cpu"
