#!/usr/bin/env bash
# Figure 2's method: every program beside a VM that computes, by the host's slice, against itself alone with half of the CPUs ("equal-capped
# solo run"). ROUNDS=n for fewer than 5; about half an hour with 5. Takes root, and a quiet machine.
#
# The cap is what any host has, with or without a cpu controller: real-time programs (stress-ng at FIFO 1) that take 10 ms of every 20 of CPUs 0
# and 1. Each keeps its own time, so the two vCPUs do not stop at the same moment, as under Xen's cap.
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test experiments >&2
caps=()
# Only what was started here, by its pid; stress-ng ends its own children.
trap 'for pid in "${caps[@]}"; do kill "$pid" 2>/dev/null || true; done; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

scenario experiments/slices/corun.toml ${ROUNDS:+--rounds "$ROUNDS"}
for cpu in 0 1; do
    chrt --fifo 1 stress-ng --quiet --cpu 1 --taskset "$cpu" --cpu-load 50 --cpu-load-slice 10 --sched fifo --sched-prio 1 &
    caps+=($!)
done
# What the cap left is part of the result: CPU time of a loop on each CPU, of 2 s.
for cpu in 0 1; do
    # shellcheck disable=SC2016 # the inner shell's
    taskset -c "$cpu" timeout 2 bash -c 'trap "times; exit" TERM; while :; do :; done' | head -n 1
done >"$folder/capped-share.txt"
scenario experiments/slices/capped.toml ${ROUNDS:+--rounds "$ROUNDS"}

jq -n -r --slurpfile corun "$folder/corun.json" --slurpfile capped "$folder/capped.json" '
    def two: . * 100 | round / 100;
    "workload: items/s alone with half of the CPUs, then time beside the other VM over that, by slice (below 1: it got more than its half)",
    ($capped[0].summary[] as {$workload, $items_per_second_median} |
        "\($workload): \($items_per_second_median | two); " + ([$corun[0].summary[] | select(.workload == $workload) |
            "\(.slice) \($items_per_second_median / .items_per_second_median | two)"] | join(", ")))
' | tee "$folder/capped-compared.txt"
