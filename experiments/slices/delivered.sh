#!/usr/bin/env bash
# Slices asked for against slices delivered, and what enforcing them cost: two that compute all the time share each CPU.
#
#   SECONDS_EACH=5 ROUNDS=3 SLICES="30ms 10ms 5ms 1ms 500us 100us" experiments/slices/delivered.sh
#       [threads|guests|tickless]
#
#   threads   two plain threads, pinned to the last CPU (default)
#   guests    two QEMU guests with two vCPUs each, under emulation, pinned to CPUs 0 and 1; each vCPU computes
#   tickless  two such guests, of which vCPU 1 computes on CPU 1 without a guest tick (nohz_full=1), and all else is on
#       CPU 0: nearest
#             to KVM, where no thread of the emulator wakes for a guest's timer
#
# Every slice once a round, in random order, enforced; and 1ms not enforced, which is what the kernel alone makes of it.
# About (number of slices + 1) * SECONDS_EACH * ROUNDS seconds: two minutes.
#
# What was measured while the host took more than STEAL_MAX (5 %) of the CPUs' time, or while those that compute used
# less than USED_MIN (85 %) of their CPUs, says nothing of slices: it is measured again, TRIES (5) times at most, and
# kept apart in rejected/. Each run has a folder of its own (RUN=name): medians are of one run.
mode=${1:-threads}
case $mode in threads | guests | tickless) ;; *) echo "usage: $0 [threads|guests|tickless]" >&2; exit 2 ;; esac
. "$(dirname "$0")/../lib.sh" "$@"
slices=${SLICES:-30ms 10ms 5ms 1ms 500us 100us}
rounds=${ROUNDS:-3} each=${SECONDS_EACH:-5} tries=${TRIES:-5}
if compgen -G "$folder/$mode-*.json" >/dev/null; then
    say "$folder has $mode-*.json of another run; set RUN=name for a folder beside it"
    exit 1
fi
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
    cpus=$cpu which=(--tid "${pids[@]}")
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
    cpus="0 1"
    boot_guests "0 1" ""
    # One vCPU of each guest on each CPU, so that who competes with whom does not change.
    for qemu in "${which[@]:1}"; do
        for task in /proc/"$qemu"/task/*; do
            case $(<"$task/comm") in
                "CPU "[01]/*) taskset -cp "$(sed 's/CPU \([01]\).*/\1/' "$task/comm")" "${task##*/}" >/dev/null ;;
                # The emulator's own threads wake at every guest timer; under KVM the kernel does their work. As batch
                # threads they wait for their turn. `tickless` has them on another CPU, and long slices are kept there.
                *) chrt --batch --pid 0 "${task##*/}" ;;
            esac
        done
    done
}

start_tickless() {
    cpus=1
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

# Stolen time of the CPUs that are shared, and all their time, in ticks.
stolen() {
    # shellcheck disable=SC2086 # words
    awk -v wanted="$(printf ' cpu%s' $cpus) " 'index(wanted, " " $1 " ") { stolen += $9; for (i = 2; i <= 9; i++) all += $i } END { print stolen, all }' /proc/stat
}
# used RESULT: CPU time of those that compute by the time of their CPUs.
used() {
    # shellcheck disable=SC2086 # words
    jq --arg mode "$mode" --argjson cpus "$(wc -w <<<$cpus)" '([.threads[] | select($mode != "tickless" or .vcpu == 1) | .run_ns] | add) / .wall_ns / $cpus' "$1"
}
# measure NAME ROUND OPTION...: one that says something, or none.
measure() {
    local name=$1 round=$2 file try before after
    shift 2
    for ((try = 1; try <= tries; try++)); do
        file=$folder_of_run/$mode-$name-$round.json
        before=$(stolen)
        "$gleaner" host slice "${which[@]}" "$@" --for "${each}s" --json "$file" >"$folder_of_run/said"
        after=$(stolen)
        if awk -v before="$before" -v after="$after" -v used="$(used "$file")" -v steal_max="${STEAL_MAX:-0.05}" -v used_min="${USED_MIN:-0.85}" \
            -v what="$name round $round try $try" 'BEGIN { split(before, b); split(after, a); steal = a[2] > b[2] ? (a[1] - b[1]) / (a[2] - b[2]) : 0
                good = steal <= steal_max && used >= used_min
                printf "%s: steal %.3f, used %.3f%s\n", what, steal, used, good ? "" : ": rejected"; exit !good }' >>"$folder/$mode-rounds.txt"; then
            mv "$file" "$folder/"
            say "round $round $name: $(head -n 1 "$folder_of_run/said")"
            return
        fi
        say "$(tail -n 1 "$folder/$mode-rounds.txt")"
        mkdir -p "$folder/rejected"
        mv "$file" "$folder/rejected/$mode-$name-$round-$try.json"
    done
    say "round $round $name: none of $tries tries was on a quiet machine; left out"
}

"start_$mode"
for ((round = 1; round <= rounds; round++)); do
    # shellcheck disable=SC2086 # words
    for slice in $(printf '%s\n' $slices default | shuf); do
        if [[ $slice == default ]]; then
            measure 1ms-not-enforced "$round" --slice 1ms --no-enforce
        else
            measure "$slice" "$round" --slice "$slice"
        fi
    done
done
{
    echo "$mode: medians of at most $rounds rounds of $each s (n): asked for; n; delivered p50 and p90, us; p50 by asked for; % of a CPU: tickers (mean of the CPUs), asking, both; awake, %"
    for slice in $slices 1ms-not-enforced; do
        compgen -G "$folder/$mode-$slice-[0-9]*.json" >/dev/null || { echo "$slice: nothing measured"; continue; }
        printf '%s: ' "$slice"
        # In `tickless` the guests' other vCPUs hardly run, and what does is cut short by the emulator: theirs are no
        # slices.
        jq -s -r -L "$here" --arg mode "$mode" 'include "lib"; def pc: if . == null then "-" else . * 100 | digits(2) end;
            def delivered($name): [.[] | if $mode == "tickless" then .threads[] | select(.vcpu == 1) else . end | .[$name] | values] | med;
            delivered("delivered_p50_ns") as $p50 | [length, ($p50 | us | digits(1)), (delivered("delivered_p90_ns") | us | digits(1)),
            (if $p50 then $p50 / .[0].requested_ns | digits(3) else "-" end),
            ([.[].enforcement_cpu_ratio | values] | med | pc), ([.[].asking_cpu_ratio | values] | med | pc),
            ([.[] | (.enforcement_cpu_ratio // 0) + (.asking_cpu_ratio // 0)] | med | pc),
            ([.[].cpus[].awake_ratio] | med | pc)] | map(tostring) | join(" ")' "$folder/$mode-$slice"-[0-9]*.json
    done
} | tee "$folder/$mode.txt"
