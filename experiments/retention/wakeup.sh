#!/usr/bin/env bash
# What a wake-up costs after 1 ms of idling: halted, polled by the kernel for up to 5 ms, and under `gleaner run
# --profile latency`, in turn. Prints p50 and p99 in us, round by round, then medians. A minute for five rounds; root.
# Without the haltpoll driver the kernel's part is left out.
#
#   experiments/retention/wakeup.sh [GLEANER] [ROUNDS]
set -euo pipefail

gleaner=$(readlink -f "${1:-target/gleaner}") rounds=${2:-5}
parameters=/sys/module/haltpoll/parameters/guest_halt_poll
work=$(mktemp -d)
declare -A had
modes=(halted kernel gleaner)
[[ -e /sys/devices/system/cpu/cpu0/cpuidle/state0 ]] || modes=(halted gleaner)
for name in ns grow grow_start; do had[$name]=$(<"${parameters}_$name"); done
# parameters NS GROW GROW_START: sets them, and each vCPU's limit to 0.
parameters() {
    echo "$1" >"${parameters}_ns"
    echo "$2" >"${parameters}_grow"
    echo "$3" >"${parameters}_grow_start"
    local file value
    for file in /sys/devices/system/cpu/cpu*/cpuidle/state0/disable; do [[ -e $file ]] || continue; value=$(<"$file"); echo "$value" >"$file"; done
}
finish() { parameters "${had[ns]}" "${had[grow]}" "${had[grow_start]}"; rm -rf "$work"; }
trap finish EXIT
# probe NAME [COMMAND...]: setting C, the waiter on another vCPU that nobody of probe keeps awake.
probe() {
    local name=$1
    shift
    "$@" "$gleaner" probe --gap 1ms --samples 2000 --json "$work/probe.json" >/dev/null 2>&1
    jq -r --arg name "$name" '.settings[] | select(.setting == "C") | "\($name) \(.p50_ns / 1000) \(.p99_ns / 1000)"' \
        "$work/probe.json" | tee -a "$work/all"
}
for _ in $(seq "$rounds"); do
    probe halted
    if [[ ${#modes[@]} -eq 3 ]]; then
        parameters 4294967295 0 5000000
        probe kernel
        parameters "${had[ns]}" "${had[grow]}" "${had[grow_start]}"
    fi
    probe gleaner "$gleaner" run --quiet --profile latency --
done
for name in "${modes[@]}"; do
    for column in 2 3; do
        awk -v name="$name" -v column=$column '$1 == name { print $column }' "$work/all" | sort -n |
            sed -n "$(((rounds + 1) / 2))p"
    done | paste -sd' ' | sed "s/^/median $name /"
done
