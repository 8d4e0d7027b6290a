#!/usr/bin/env bash
# Latency at low load: Redis asked at a fixed rate by an open-loop client that measures from the intended send time; by policy and
# profile, interleaved. About four minutes.
#
#   ROUNDS=3 SECONDS_EACH=8 experiments/latency/run.sh [RATE...]      default: 100 500
#   ROUNDS=5 experiments/latency/run.sh guest                         in a VM of the test bed, alone and beside another; 15 minutes
. "$(dirname "$0")/../lib.sh" "$@"
if [[ ${1:-} == guest ]]; then
    scripts/setup.sh build test bed >&2
    scenario experiments/latency/guest.toml ${ROUNDS:+--rounds "$ROUNDS"}
    exit
fi
scripts/setup.sh experiments >&2
rates=("$@")
[[ $# -gt 0 ]] || rates=(100 500)
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-latency.XXXXXX")
port=${PORT:-16379}
server=""
trap '[[ -z $server ]] || kill $server 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
declare -A options=([off]="--policy off" [retain-frugal]="--policy retain --profile frugal" [retain-balanced]="--policy retain --profile balanced"
    [retain-latency]="--policy retain --profile latency" [full-latency]="--policy full --profile latency")
for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
    for rate in "${rates[@]}"; do
        for name in $(printf '%s\n' "${!options[@]}" | shuf --random-source=<(yes "$round$rate")); do
            # shellcheck disable=SC2086 # words
            "$gleaner" run --quiet ${options[$name]} --json "$folder/$rate-$name-$round-run.json" -- \
                redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$work" >"$work/redis.log" 2>&1 &
            server=$!
            for _ in $(seq 100); do redis-cli -p "$port" ping >/dev/null 2>&1 && break; sleep 0.1; done
            "$gleaner" workload open-loop --connect "127.0.0.1:$port" --rate "$rate" --threads 4 --seconds "${SECONDS_EACH:-8}" \
                --json "$folder/$rate-$name-$round.json" >/dev/null
            kill $server
            wait $server || true
            server=""
            say "round $round rate $rate $name: p50 $(jq '.latency.p50_ns' "$folder/$rate-$name-$round.json") p99 $(jq '.latency.p99_ns' "$folder/$rate-$name-$round.json")"
        done
    done
done
{
    echo "rate policy: medians of rounds, us: p50 p99 p99.9 (retained s)"
    for rate in "${rates[@]}"; do
        for name in off retain-frugal retain-balanced retain-latency full-latency; do
            printf '%s %s: ' "$rate" "$name"
            jq -s -r 'def med: sort | .[(length - 1) / 2 | floor]; [([.[].latency.p50_ns] | med), ([.[].latency.p99_ns] | med), ([.[].latency.p999_ns] | med)] | map(. / 100 | round / 10) | join(" ")' \
                $(ls "$folder"/"$rate-$name"-[0-9].json)
        done
    done
} | tee "$folder/summary.txt"
