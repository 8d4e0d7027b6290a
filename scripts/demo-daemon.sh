#!/usr/bin/env bash
# The second part of the demonstration: a daemon manages Redis and its one client, first alone, and then beside a
# program that computes. It says what was won each time, and why.
#
#   scripts/demo-daemon.sh [BINARY]      default: target/gleaner
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}") || true
[[ -x $gleaner ]] || { echo "demo: ${1:-target/gleaner} is not there: run make build" >&2; exit 1; }
# shellcheck source=scripts/demo-lib.sh
. "$root/scripts/demo-lib.sh"
leave_out() { printf 'The daemon is left out: %s\n' "$*"; exit 0; }
if "$gleaner" status >/dev/null 2>&1; then
    leave_out "one runs here already (gleaner status)"
fi
reason=""
has jq redis-check-rdb redis-benchmark redis-cli || leave_out "$reason"

# What the daemon may change, by this machine's own files.
settings() { cat /sys/module/haltpoll/parameters/* /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us 2>/dev/null || true; }
before=$(settings)

# until_true SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [[ $SECONDS -lt $end ]] || return
        sleep 0.2
    done
}

link_redis_server
"$work/redis-server" --port 0 --unixsocket "$work/redis.sock" --save "" --appendonly no >"$work/redis-log" &
redis=$!
until_true 30 redis-cli -s "$work/redis.sock" ping || leave_out "Redis does not start: $(tail -n 1 "$work/redis-log")"
sh -c 'while redis-benchmark -s "$1" -c 1 -n 100000 -t get -q; do :; done' sh "$work/redis.sock" >/dev/null 2>&1 &

cat >"$work/gleaner.toml" <<CONFIG
[metrics]
listen = "unix:$work/metrics.sock"

[group.redis]
pid = $redis
profile = "latency"
CONFIG
headline "A daemon that manages Redis (gleaner config check, gleaner daemon)"
sed 's/^/  /' "$work/gleaner.toml"
"$gleaner" config check "$work/gleaner.toml"
"$gleaner" daemon --config "$work/gleaner.toml" 2>"$work/daemon-log" &
daemon=$!

# trials_of GROUP: how many trials it had that ended.
trials_of() { "$gleaner" status --json 2>/dev/null | jq --arg name "$1" '[.groups[] | select(.name == $name) | .trial // empty] | length'; }
was_tried() { [[ $(trials_of "$1") -gt 0 ]]; }
until_true 60 was_tried redis || true
headline "Redis and its client, alone (gleaner status, gleaner explain redis)"
"$gleaner" status
"$gleaner" explain redis | tail -n 14
headline "One screen of gleaner top (gleaner top --once --group redis)"
"$gleaner" top --once --group redis

"$gleaner" workload matmul --threads 1 --for 300s >/dev/null &
cat >>"$work/gleaner.toml" <<CONFIG

[group.matmul]
pid = $!
CONFIG
headline "A neighbour comes: a thread that computes, and needs a vCPU of its own (gleaner reload)"
"$gleaner" reload
# The next trial of Redis says what is won beside it.
won() { "$gleaner" status --json 2>/dev/null | jq -c '.groups[] | select(.name == "redis") | .trial'; }
alone=$(won)
differs() { [[ $(won) != "$alone" ]]; }
until_true 45 differs || true
"$gleaner" status
"$gleaner" explain redis | tail -n 12
"$gleaner" explain matmul | tail -n 6

headline "Does the machine have what was set (gleaner verify)"
"$gleaner" verify || true
if command -v curl >/dev/null; then
    headline "Metrics (curl --unix-socket)"
    curl -s --unix-socket "$work/metrics.sock" http://localhost/metrics | grep -E '^gleaner_(group|retained)' || true
fi
kill "$daemon"
wait "$daemon" || true
if [[ $(settings) == "$before" ]]; then
    printf '\nThe daemon has ended, and this machine is as it was.\n'
else
    printf '\nThe daemon has ended, and this machine is NOT as it was:\n' >&2
    exit 1
fi
