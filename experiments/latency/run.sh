#!/usr/bin/env bash
# Latency at low load: Redis asked at a fixed rate by an open-loop client that measures from the intended send time; by
# policy and profile, in random order within each round.
#
#   ROUNDS=5 SECONDS_EACH=8 SEED=n experiments/latency/run.sh [RATE...]      default: 100 500; 9 minutes (60 runs of
#       about 9 s)
#   ROUNDS=5 experiments/latency/run.sh guest      in a VM of the test bed, alone and beside another; 26 minutes (60
#       steps of 26 s)
#
# The seed of the order is drawn unless given, and stands in order.txt.
. "$(dirname "$0")/../lib.sh" "$@"
if [[ ${1:-} == guest ]]; then
    fresh "$folder/guest.json"
    scripts/setup.sh build test bed >&2
    scenario experiments/latency/guest.toml ${ROUNDS:+--rounds "$ROUNDS"}
    experiments/latency/summary.sh "$folder/guest.json" | tee "$folder/guest-table.txt"
    exit
fi
rates=("$@")
[[ $# -gt 0 ]] || rates=(100 500)
rounds=${ROUNDS:-5}
policies=(off observe retain-frugal retain-balanced retain-latency full-latency)
declare -A options=([off]="--policy off" [observe]="--policy observe" [retain-frugal]="--policy retain --profile frugal" [retain-balanced]="--policy retain --profile balanced"
    [retain-latency]="--policy retain --profile latency" [full-latency]="--policy full --profile latency")
for rate in "${rates[@]}"; do
    for name in "${policies[@]}"; do
        for ((round = 1; round <= rounds; round++)); do fresh "$folder/$rate-$name-$round.json" "$folder/$rate-$name-$round-run.json"; done
    done
done
scripts/setup.sh experiments >&2
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-latency.XXXXXX")
port=${PORT:-16379}
server=""
trap '[[ -z $server ]] || kill $server 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
seed=$(random_seed)
echo "seed $seed" >>"$folder/order.txt"
for ((round = 1; round <= rounds; round++)); do
    # A rate's policies stay together, so that those which are compared ran within a minute.
    for rate in $(shuffled "$seed/$round" "${rates[@]}"); do
        for name in $(shuffled "$seed/$round/$rate" "${policies[@]}"); do
            echo "round $round rate $rate $name" >>"$folder/order.txt"
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
experiments/latency/summary.sh "$folder" | tee "$folder/summary.txt"
