#!/usr/bin/env bash
# Retention in guests without a cpuidle driver, kernel by kernel, alone and beside a VM that multiplies matrices. Seven
# minutes for five rounds of one kernel, alone; twice that beside.
#
#   experiments/retention/guests.sh [--rounds N] [--beside] KERNEL...
. "$(dirname "$0")/../lib.sh" "$@"
rounds=5 beside=
while [[ ${1:-} == --* ]]; do
    case $1 in
        --rounds) rounds=$2; shift 2 ;;
        --beside) beside=-beside; shift ;;
        *) echo "unknown option $1" >&2; exit 2 ;;
    esac
done
[[ $# -gt 0 ]] || { echo "which kernel? 6.1, 6.12, 6.18 or new" >&2; exit 2; }
scripts/setup.sh build test >&2
for kernel; do
    name=guests-$kernel$beside
    fresh "$folder/$name.json"
    neighbour='s/^workloads = \["nothing"\]/workloads = [{ program = "matmul", threads = 2, granularity = "20us" }]/'
    sed -e "s/^kernel = .*/kernel = \"$kernel\"/" -e "s/^name = \"retention-guests\"/name = \"${name//./-}\"/" \
        ${beside:+-e "$neighbour"} experiments/retention/guests.toml >"$folder/$name.toml"
    scenario "$folder/$name.toml" --rounds "$rounds"
done
