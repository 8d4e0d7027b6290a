#!/usr/bin/env bash
# Slices asked for against slices delivered, and what enforcing them cost: two that compute all the time share each CPU.
#
#   SECONDS_EACH=5 ROUNDS=3 SLICES="30ms 10ms 5ms 1ms 500us 100us" experiments/slices/delivered.sh [threads|guests|tickless]
#
#   threads   two plain threads, pinned to the last CPU (default)
#   guests    two QEMU guests with two vCPUs each, under emulation, pinned to CPUs 0 and 1; each vCPU computes
#   tickless  two such guests, of which vCPU 1 computes on CPU 1 without a guest tick (nohz_full=1), and all else is on CPU 0: nearest
#             to KVM, where no thread of the emulator wakes for a guest's timer
#
# Every slice once a round, in random order, enforced; and 1ms not enforced, which is what the kernel alone makes of it. About
# (number of slices + 1) * SECONDS_EACH * ROUNDS seconds.
mode=${1:-threads}
case $mode in threads | guests | tickless) ;; *) echo "usage: $0 [threads|guests|tickless]" >&2; exit 2 ;; esac
. "$(dirname "$0")/../lib.sh" "$@"
slices=${SLICES:-30ms 10ms 5ms 1ms 500us 100us}
rounds=${ROUNDS:-3} each=${SECONDS_EACH:-5}
pids=() folder_of_run=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-slices.XXXXXX")
# Only what was started here, by its pid.
# shellcheck disable=SC2317 # called by the trap
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$folder_of_run"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_threads() {
    local cpu
    cpu=$(($(nproc) - 1))
    for _ in 1 2; do
        taskset -c "$cpu" sh -c 'while :; do :; done' &
        pids+=($!)
    done
    which=(--tid "${pids[@]}")
}

# The QEMU process below the guest.sh of this pid.
qemu_of() { pgrep -P "$1" -x qemu-system-x86 || for child in $(pgrep -P "$1"); do qemu_of "$child"; done; }

# boot_guests CPUS APPEND: two guests that compute on these vCPUs.
boot_guests() {
    local kernel longest qemu
    kernel=$(testbed/fetch-kernel.sh 6.1 | awk 'END { print $2 }')
    longest=$((120 + (rounds * ($(wc -w <<<"$slices") + 1) * (each + 5))))
    # shellcheck disable=SC2016 # the guest expands them
    printf '#!/bin/sh\nfor cpu in %s; do taskset $((1 << cpu)) sh -c "while :; do :; done" & done\nsleep %s\n' "$1" "$longest" >"$folder_of_run/compute.sh"
    which=(--vm)
    for _ in 1 2; do
        taskset -c 0,1 testbed/guest.sh --memory 256 --append "$2" --timeout $((longest + 60)) "$kernel" "$folder_of_run/compute.sh" 2 >/dev/null &
        pids+=($!)
        for _ in $(seq 100); do qemu=$(qemu_of $!) && [[ -n $qemu ]] && break; sleep 0.1; done
        which+=("$qemu")
    done
    say "guests are booting"
    sleep "${BOOT_SECONDS:-20}"
}

start_guests() {
    boot_guests "0 1" ""
    # One vCPU of each guest on each CPU, so that who competes with whom does not change.
    for qemu in "${which[@]:1}"; do
        for task in /proc/"$qemu"/task/*; do
            case $(<"$task/comm") in
                "CPU "[01]/*) taskset -cp "$(sed 's/CPU \([01]\).*/\1/' "$task/comm")" "${task##*/}" >/dev/null ;;
                # The emulator's own threads wake at every guest timer, a thousand times a second, and each time end somebody's slice;
                # under KVM the kernel does their work. As batch threads they wait for their turn.
                *) chrt --batch --pid 0 "${task##*/}" ;;
            esac
        done
    done
}

start_tickless() {
    boot_guests 1 nohz_full=1
    for qemu in "${which[@]:1}"; do
        for task in /proc/"$qemu"/task/*; do
            case $(<"$task/comm") in
                "CPU 1/"*) taskset -cp 1 "${task##*/}" >/dev/null ;;
                *) taskset -cp 0 "${task##*/}" >/dev/null ;;
            esac
        done
    done
}

"start_$mode"
for ((round = 1; round <= rounds; round++)); do
    # shellcheck disable=SC2086 # words
    for slice in $(printf '%s\n' $slices default | shuf); do
        ask=(--slice "$slice") name=$slice
        [[ $slice != default ]] || { ask=(--slice 1ms --no-enforce); name=1ms-not-enforced; }
        "$gleaner" host slice "${which[@]}" "${ask[@]}" --for "${each}s" --json "$folder/$mode-$name-$round.json" >"$folder_of_run/said"
        say "round $round $name: $(head -n 1 "$folder_of_run/said")"
    done
done
{
    echo "$mode: medians of $rounds rounds of $each s: asked for; delivered p50 and p90, us; p50 by asked for; enforcement, % of a CPU; awake, %"
    for slice in $slices 1ms-not-enforced; do
        printf '%s: ' "$slice"
        jq -s -r 'def med: sort | if length == 0 then null else .[(length - 1) / 2 | floor] end; def us: if . == null then "-" else . / 100 | round / 10 end;
            def pc: if . == null then "-" else . * 10000 | round / 100 end;
            ([.[].delivered_p50_ns | values] | med) as $p50 | [($p50 | us), ([.[].delivered_p90_ns | values] | med | us),
            (if $p50 then $p50 / .[0].requested_ns * 1000 | round / 1000 else "-" end), ([.[].enforcement_cpu_ratio | values] | med | pc),
            ([.[].cpus[].awake_ratio] | med | pc)] | map(tostring) | join(" ")' "$folder/$mode-$slice"-[0-9]*.json
    done
} | tee "$folder/$mode.txt"
