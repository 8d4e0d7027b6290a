#!/usr/bin/env bash
# Table 1 and Figures 5 and 7: every built-in program, off and full, on this machine and in test-bed guests beside a VM that computes.
#
# ROUNDS=n: rounds of the scenarios instead of their own.
#
#   experiments/programs/run.sh [machine] [beside-matmul] [relay] [policies] [vcpus]      default: machine beside-matmul relay
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
wanted=" ${*:-machine beside-matmul relay} "

# On this machine: about 4 s a run, so that what is learnt in the first second pays.
declare -A items
# shellcheck source=/dev/null
. experiments/programs/items.sh
if [[ $wanted == *" machine "* ]]; then
    for name in "${!items[@]}"; do
        count=$(items_for "$name" "${SECONDS_EACH:-4}")
        say "this machine: $name, $count items"
        "$gleaner" ab -n "${PAIRS:-10}" --json "$folder/machine-$name.json" -- "$gleaner" workload "$name" --threads 2 --items "$count" >"$folder/machine-$name.txt"
        tail -n 3 "$folder/machine-$name.txt"
    done
fi
for name in beside-matmul relay policies vcpus; do
    [[ $wanted != *" $name "* ]] || scenario "experiments/programs/$name.toml" ${ROUNDS:+--rounds "$ROUNDS"}
done
