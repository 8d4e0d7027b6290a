#!/usr/bin/env bash
# Both papers' scheduling results, simulated. Results depend on nothing but the arguments, so the machine may be busy.
#
#   experiments/simulator/run.sh [SEED]     default: 1
. "$(dirname "$0")/../lib.sh" "$@"
laboratory
seed=${1:-1}

say "all tables and figures, seed $seed"
nice -n 19 "$lab" sim reproduce all --seed "$seed" --json "$folder/reproductions-$seed.json" >"$folder/reproductions-$seed.txt"
grep "predicted rows agree" "$folder/reproductions-$seed.txt" | tail -n 20
