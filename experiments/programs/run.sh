#!/usr/bin/env bash
# Table 1 and Figures 5 and 7: every built-in program, off and full, on this machine and in test-bed guests beside a VM
# that computes.
#
# ROUNDS=n: rounds of the scenarios instead of their own; PAIRS=n, SECONDS_EACH=n: of `machine`, instead of 10 pairs of
# 4 s. Each mode fills the same folder. How long, where nothing else is said planned at 5 s a step; beside-matmul took
# 11 s a step, so rather twice that:
#
#   machine         10 programs, 11 pairs         20 minutes
#   beside-matmul   231 steps                     43 minutes (measured)
#   relay           25 steps, 20 to 60 s each     10 minutes (measured: 523 s)
#   policies        810 steps                     80 minutes
#   vcpus           565 steps                     55 minutes
#   pinned          310 steps                     30 minutes
#   overhead        80 steps                      10 minutes
#
#   experiments/programs/run.sh [machine] [beside-matmul] [relay] [policies] [vcpus] [pinned] [overhead]      default:
#       machine beside-matmul relay
for which in "$@"; do
    case $which in machine | beside-matmul | relay | policies | vcpus | pinned | overhead) ;; *) echo "usage: $0 [machine] [beside-matmul] [relay] [policies] [vcpus] [pinned] [overhead]" >&2; exit 2 ;; esac
done
. "$(dirname "$0")/../lib.sh" "$@"
wanted=" ${*:-machine beside-matmul relay} "
declare -A items
# shellcheck source=/dev/null
. experiments/programs/items.sh
results=()
for which in $wanted; do
    if [[ $which == machine ]]; then
        for name in "${!items[@]}"; do results+=("$folder/machine-$name.json"); done
    else
        results+=("$folder/$which.json")
    fi
done
fresh "${results[@]}"
scripts/setup.sh build test >&2

# On this machine: about 4 s a run, so that what is learnt in the first second pays.
if [[ $wanted == *" machine "* ]]; then
    for name in "${!items[@]}"; do
        count=$(items_for "$name" "${SECONDS_EACH:-4}")
        say "this machine: $name, $count items"
        compare "machine-$name" -n "${PAIRS:-10}" -- "$gleaner" workload "$name" --threads 2 --items "$count"
        tail -n 3 "$folder/machine-$name.txt"
    done
fi
for name in beside-matmul relay policies vcpus pinned overhead; do
    [[ $wanted != *" $name "* ]] || scenario "experiments/programs/$name.toml" ${ROUNDS:+--rounds "$ROUNDS"}
done
