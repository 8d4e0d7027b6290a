#!/usr/bin/env bash
# The second part of the demonstration: one daemon manages Redis and a program that computes, and says why.
#
#   scripts/demo-daemon.sh [BINARY]      default: target/gleaner
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}") || true
[[ -x $gleaner ]] || { echo "demo: ${1:-target/gleaner} is not there: run make build" >&2; exit 1; }
if "$gleaner" status >/dev/null 2>&1; then
    echo "demo: a daemon runs here already: gleaner status"
    exit 0
fi

for program in redis-check-rdb redis-benchmark redis-cli; do
    command -v "$program" >/dev/null || { echo "demo: $program is missing: run scripts/setup.sh demo" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-demo.XXXXXX")
# In redis-tools the server has another name, and is what it is called as.
ln -s "$(command -v redis-check-rdb)" "$work/redis-server"
started=()
# finish: ends what was started here, newest first.
finish() {
    local i
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do
        kill "${started[i]}" 2>/dev/null || true
        wait "${started[i]}" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
headline() { printf '\n== %s\n\n' "$*"; }
# What the daemon may change, by this machine's own files.
settings() { cat /sys/module/haltpoll/parameters/* /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us 2>/dev/null || true; }
before=$(settings)

"$work/redis-server" --port 0 --unixsocket "$work/redis.sock" --save "" --appendonly no >/dev/null &
redis=$!
started+=("$redis")
until redis-cli -s "$work/redis.sock" ping >/dev/null 2>&1; do sleep 0.05; done
while :; do redis-benchmark -s "$work/redis.sock" -c 1 -n 100000 -t get -q >/dev/null 2>&1 || break; done &
started+=("$!")
"$gleaner" workload matmul --threads 1 --for 300s >/dev/null &
matmul=$!
started+=("$matmul")

cat >"$work/gleaner.toml" <<CONFIG
[metrics]
listen = "unix:$work/metrics.sock"

[group.redis]
pid = $redis
profile = "latency"

[group.matmul]
pid = $matmul
CONFIG
headline "A daemon with two groups (gleaner config check, gleaner daemon)"
sed 's/^/  /' "$work/gleaner.toml"
"$gleaner" config check "$work/gleaner.toml"
"$gleaner" daemon --config "$work/gleaner.toml" 2>"$work/log" &
daemon=$!
started+=("$daemon")
# Until both were tried, or half a minute.
for _ in {1..60}; do
    sleep 0.5
    tried=$("$gleaner" status --json 2>/dev/null | jq '[.groups[] | select(.name == "redis") | .trial // empty] | length' || echo 0)
    [[ ${tried:-0} -eq 0 ]] || break
done
sleep 2
headline "How things stand (gleaner status)"
"$gleaner" status
headline "One screen of gleaner top (gleaner top --once --group redis)"
"$gleaner" top --once --group redis
headline "Why (gleaner explain redis, gleaner explain matmul)"
"$gleaner" explain redis | tail -n 14
"$gleaner" explain matmul | tail -n 8
headline "Does the machine have what was set (gleaner verify)"
"$gleaner" verify || true
if command -v curl >/dev/null; then
    headline "Metrics (curl --unix-socket)"
    curl -s --unix-socket "$work/metrics.sock" http://localhost/metrics | grep -E '^gleaner_(group|retained)'
fi
kill "$daemon"
wait "$daemon"
if [[ $(settings) == "$before" ]]; then
    printf '\nThe daemon has ended, and this machine is as it was.\n'
else
    printf '\nThe daemon has ended, and this machine is NOT as it was:\n' >&2
    exit 1
fi
