#!/usr/bin/env bash
# Table 1 and Figures 5 and 7: every built-in program, off and full, on this machine and in test-bed guests beside a VM that computes.
#
#   experiments/programs/run.sh [machine] [beside-matmul] [pipeline] [policies]      default: machine beside-matmul pipeline
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
wanted=" ${*:-machine beside-matmul pipeline} "

# On this machine: about 1.5 s a run.
# shellcheck source=/dev/null
. experiments/programs/items.sh
if [[ $wanted == *" machine "* ]]; then
    for name in "${!items[@]}"; do
        say "this machine: $name"
        "$gleaner" ab -n "${PAIRS:-10}" --json "$folder/machine-$name.json" -- "$gleaner" workload "$name" --items "${items[$name]}" >"$folder/machine-$name.txt"
        tail -n 3 "$folder/machine-$name.txt"
    done
fi
for name in beside-matmul pipeline policies; do
    [[ $wanted != *" $name "* ]] || scenario "experiments/programs/$name.toml"
done
