#!/usr/bin/env bash
# How often is `gleaner ab` wrong? The same mode twice, again and again: whatever it then says helps or hurts is a false
# verdict. On the machine as it is, beside its usual noise.
#
#   experiments/ab-null/run.sh [BINARY] [COMPARISONS]      default: target/gleaner, 200 of each program
#
# A line for each program: comparisons, how many said helps, hurts, no difference, inconclusive; and the share that said
# helps or hurts. More than 5 % would break what docs/results.md promises.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}")
comparisons=${2:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 3000000 /dev/urandom >"$work/data"

# Each takes a tenth of a second: what is compared is noise, and short runs have most of it.
declare -A programs=(
    [computes]="gzip -c $work/data"
    [hands-over]="$gleaner workload relay --threads 2 --items 4000"
)
echo "program comparisons helps hurts no-difference inconclusive false-ratio"
for program in computes hands-over; do
    : >"$work/verdicts"
    for ((n = 0; n < comparisons; n++)); do
        # shellcheck disable=SC2086 # the command is a list of words
        "$gleaner" ab --quiet -n 5 --warmup 1 --modes off,off --json - -- ${programs[$program]} 2>/dev/null |
            jq -r .told_verdict >>"$work/verdicts"
    done
    awk -v name="$program" '
        { count[$0]++ }
        END {
            printf "%s %d %d %d %d %d %.3f\n", name, NR, count["helps"], count["hurts"], count["no difference"],
                count["inconclusive"], (count["helps"] + count["hurts"]) / NR
        }' "$work/verdicts"
done
