#!/usr/bin/env bash
# CPU and instructions per proxied request, Tidegate against HAProxy: the same four back-ends,
# keep-alive on both sides, one worker each, in interleaved rounds.
#
#   bench/proxy.sh [ROUNDS] [SECONDS]     default: 5 rounds of 4 seconds per sample
#
# The proxy runs on CPU 1, load generator (wrk) and back-end (nginx) on CPU 0. Both proxies tell
# the back-end the client's address, protocol and host; neither writes an access log. Counted by
# perf over the proxy's process while wrk runs, divided by the requests that wrk had answered.
# Instructions are steady to about 2 %; CPU time on a shared machine is not, so its ratio is the
# median over rounds, each against the HAProxy sample of the same round.
#
# Needs haproxy, nginx, wrk, perf (with access to the hardware counters), curl, taskset, two CPUs.
set -euo pipefail

rounds=${1:-5}
seconds=${2:-4}
connections=${CONNECTIONS:-64}
base=${PORT:-18080}
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/sbin

for tool in haproxy nginx wrk perf curl taskset cargo; do
    command -v "$tool" > /dev/null || { echo "SKIPPED: $tool is not installed"; exit 0; }
done
[ "$(nproc)" -ge 2 ] || { echo "SKIPPED: needs two CPUs"; exit 0; }

work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$work"
}
trap finish EXIT

perf stat -e instructions:u,instructions:k -o "$work/probe" true 2> /dev/null ||
    { echo "SKIPPED: perf may not read the hardware counters here"; exit 0; }
if grep -q 'not supported\|not counted' "$work/probe"; then
    echo "SKIPPED: this machine has no hardware counters"
    exit 0
fi

(cd "$here" && cargo build --quiet --release --package tidegate-proxy --example bench_proxy)
proxy=${CARGO_TARGET_DIR:-$here/target}/release/examples/bench_proxy

mkdir "$work/www" "$work/logs"
head -c 1024 /dev/zero | tr '\0' 'x' > "$work/www/1k"
head -c 16384 /dev/zero | tr '\0' 'x' > "$work/www/16k"
chmod 755 "$work" "$work/www"
chmod 644 "$work/www"/*
backends=()
{
    echo "worker_processes 1; daemon off; pid $work/nginx.pid; error_log $work/logs/nginx error;"
    echo "events { worker_connections 4096; }"
    echo "http { access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000;"
    echo "open_file_cache max=16; client_body_temp_path $work/logs; proxy_temp_path $work/logs;"
    echo "fastcgi_temp_path $work/logs; uwsgi_temp_path $work/logs; scgi_temp_path $work/logs;"
    echo "server { root $work/www;"
    for offset in 1 2 3 4; do
        backends+=("127.0.0.2:$((base + offset))")
        echo "listen 127.0.0.2:$((base + offset)) backlog=4096;"
    done
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

taskset -c 0 nginx -e "$work/logs/nginx" -c "$work/nginx.conf" & pids+=($!)
taskset -c 1 haproxy -q -db -f "$work/haproxy.cfg" & pids+=($!)
haproxy_pid=$!
taskset -c 1 "$proxy" "127.0.0.1:$((base + 11))" "${backends[@]}" & pids+=($!)
tidegate_pid=$!
for port in $((base + 10)) $((base + 11)); do
    curl --silent --fail --output /dev/null --retry 50 --retry-connrefused --retry-delay 0 \
        --retry-max-time 10 "http://127.0.0.1:$port/1k"
done

# sample NAME PID PORT SIZE ROUND: appends "size name round requests user kernel clock"
sample() {
    local url="http://127.0.0.1:$3/$4"
    taskset -c 0 wrk -t1 -c"$connections" -d1s "$url" > /dev/null
    perf stat -x, -e instructions:u,instructions:k,task-clock -p "$2" -o "$work/perf" -- \
        taskset -c 0 wrk -t1 -c"$connections" -d"${seconds}s" "$url" > "$work/wrk"
    if grep -q 'Non-2xx\|Socket errors' "$work/wrk"; then
        echo "errors with $1:" >&2
        cat "$work/wrk" >&2
        exit 1
    fi
    awk -F, -v size="$4" -v name="$1" -v round="$5" \
        -v requests="$(awk '/requests in/ { print $1 }' "$work/wrk")" '
        /instructions:u/ { user = $1 } /instructions:k/ { kernel = $1 } /task-clock/ { clock = $1 }
        END { print size, name, round, requests, user, kernel, clock }' "$work/perf" \
        >> "$work/samples"
}

for ((round = 1; round <= rounds; round++)); do
    for size in 1k 16k; do
        if ((round % 2)); then
            sample haproxy $haproxy_pid $((base + 10)) $size $round
            sample tidegate $tidegate_pid $((base + 11)) $size $round
        else
            sample tidegate $tidegate_pid $((base + 11)) $size $round
            sample haproxy $haproxy_pid $((base + 10)) $size $round
        fi
    done
done

awk -v connections="$connections" -v version="$(haproxy -v | awk 'NR == 1 { print $3 }')" '
function median(list, count,    i, j, held) {
    for (i = 2; i <= count; i++) {
        held = list[i]
        for (j = i - 1; j > 0 && list[j] > held; j--) list[j + 1] = list[j]
        list[j + 1] = held
    }
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}
function over(size, name, what,    round, list) {
    for (round = 1; round <= rounds; round++) list[round] = value[size, name, round, what]
    return median(list, rounds)
}
function paired(size, what,    round, list) {
    for (round = 1; round <= rounds; round++)
        list[round] = value[size, "tidegate", round, what] / value[size, "haproxy", round, what]
    return median(list, rounds)
}
{
    if ($3 > rounds) rounds = $3
    value[$1, $2, $3, "user"] = $5 / $4
    value[$1, $2, $3, "kernel"] = $6 / $4
    value[$1, $2, $3, "all"] = ($5 + $6) / $4
    value[$1, $2, $3, "cpu"] = $7 * 1000 / $4
}
END {
    printf "Tidegate against HAProxy %s, one worker, %d connections, medians of %d rounds\n\n",
        version, connections, rounds
    printf "| body | proxy | instructions | user | kernel | CPU us |\n|---|---|---|---|---|---|\n"
    split("1k 16k", sizes, " ")
    for (s = 1; s <= 2; s++) {
        size = sizes[s]
        split("haproxy tidegate", names, " ")
        for (n = 1; n <= 2; n++)
            printf "| %s | %s | %d | %d | %d | %.1f |\n", size, names[n],
                over(size, names[n], "all"), over(size, names[n], "user"),
                over(size, names[n], "kernel"), over(size, names[n], "cpu")
        printf "| %s | ratio | **%.3f** | %.3f | %.3f | **%.3f** |\n", size, paired(size, "all"),
            paired(size, "user"), paired(size, "kernel"), paired(size, "cpu")
    }
}' "$work/samples"
