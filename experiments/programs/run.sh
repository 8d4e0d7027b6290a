#!/usr/bin/env bash
# Table 1 and Figures 5 and 7: every built-in program, off and full, on this machine and in test-bed guests beside a VM that computes.
#
#   experiments/programs/run.sh [machine] [beside-matmul] [relay] [policies]      default: machine beside-matmul relay
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
wanted=" ${*:-machine beside-matmul relay} "

# On this machine: about 1.5 s a run.
declare -A items
# shellcheck source=/dev/null
. experiments/programs/items.sh
if [[ $wanted == *" machine "* ]]; then
    for name in "${!items[@]}"; do
        say "this machine: $name"
        "$gleaner" ab -n "${PAIRS:-10}" --json "$folder/machine-$name.json" -- "$gleaner" workload "$name" --threads 2 --items "${items[$name]}" >"$folder/machine-$name.txt"
        tail -n 3 "$folder/machine-$name.txt"
    done
fi
for name in beside-matmul relay policies; do
    [[ $wanted != *" $name "* ]] || scenario "experiments/programs/$name.toml"
done
