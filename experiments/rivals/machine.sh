#!/usr/bin/env bash
# haltpoll itself, on a guest that has it: plain halt, haltpoll and Gleaner, the same programs in the same rounds, on
# this machine. Needs root and the haltpoll idle driver in force (`/sys/devices/system/cpu/cpuidle/current_driver`); how
# long it polls can be set while the machine runs. What was set before is put back at the end, after a signal, and by a
# process of its own within a second of a kill -9; `before.txt` of the folder has it too.
#
#   experiments/rivals/machine.sh [PROGRAM...]      default: seven of experiments/programs/items.sh; about a quarter of
#       an hour
#
# ROUNDS=n (5), SECONDS_EACH=n (4: of a run under plain halt), SEED=n (of the order within rounds; drawn unless given).
. "$(dirname "$0")/../lib.sh" "$@"
poll=/sys/module/haltpoll/parameters/guest_halt_poll_ns
driver=$(cat /sys/devices/system/cpu/cpuidle/current_driver 2>/dev/null || true)
[[ $driver == haltpoll && -w $poll ]] || { say "the idle driver here is '$driver', not haltpoll, or $poll cannot be written: boot with cpuidle_haltpoll.force=1, on KVM, and be root"; exit 1; }
declare -A items
# shellcheck source=/dev/null
. experiments/programs/items.sh
programs=("$@")
[[ $# -gt 0 ]] || programs=(pipeline barrier fork-join task-queue relay request-reply block-io)
for name in "${programs[@]}"; do
    [[ -n ${items[$name]:-} ]] || { say "'$name' is no built-in program of experiments/programs/items.sh"; exit 2; }
done
fresh "$folder/machine.jsonl"
# 200 us is the kernel's own default (drivers/cpuidle/governors/haltpoll.c).
modes=(plain haltpoll full full-latency haltpoll-full)
declare -A polls=([plain]=0 [haltpoll]=200000 [full]=0 [full-latency]=0 [haltpoll-full]=200000)
declare -A options=([plain]="--policy off" [haltpoll]="--policy off" [full]="--policy full" [full-latency]="--policy full --profile latency" [haltpoll-full]="--policy full")
before=$(cat "$poll")
echo "$before" >"$folder/before.txt"
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-rivals.XXXXXX")
trap 'echo "$before" >"$poll"; rm -rf "$work"' EXIT
# The guardian: what no trap can undo.
setsid bash -c 'while kill -0 "$1" 2>/dev/null; do sleep 1; done; echo "$2" >"$3"' guardian $$ "$before" "$poll" >/dev/null 2>&1 &
trap 'exit 130' INT
trap 'exit 143' TERM
seed=$(random_seed)
echo "seed $seed" >>"$folder/order.txt"
# What a wake-up takes where idle vCPUs halt and where they poll.
for ns in 0 200000 0 200000; do
    echo "$ns" >"$poll"
    echo "guest_halt_poll_ns $ns"
    for gap in 1000 100; do "$gleaner" probe --gap-us "$gap" --samples 1000; done
done >"$folder/probe.txt"
declare -A counts
echo 0 >"$poll"
for name in "${programs[@]}"; do counts[$name]=$(items_for "$name" "${SECONDS_EACH:-4}"); done
for ((round = 1; round <= ${ROUNDS:-5}; round++)); do
    for name in $(shuffled "$seed/$round" "${programs[@]}"); do
        for mode in $(shuffled "$seed/$round/$name" "${modes[@]}"); do
            echo "${polls[$mode]}" >"$poll"
            # shellcheck disable=SC2086 # words
            "$gleaner" run --quiet ${options[$mode]} --json "$work/run.json" -- "$gleaner" workload "$name" --threads 2 --items "${counts[$name]}" --json \
                >"$work/out.json" 2>"$work/errors" || { tail -n 5 "$work/errors" >&2; exit 1; }
            jq -c --arg program "$name" --arg mode "$mode" --argjson round "$round" --slurpfile out "$work/out.json" \
                '{program: $program, mode: $mode, round: $round, items: $out[0].items, wall_ns, cpu_time_ns, retained_ns, steal_ns, timeout_ns, guard_trips,
                  retention_cost_ratio, observer: .means.observer, active_vcpus_mean, warnings, latency: $out[0].latency}' "$work/run.json" >>"$folder/machine.jsonl"
        done
        say "round $round $name"
    done
done
experiments/rivals/machine-table.sh "$folder/machine.jsonl" | tee "$folder/machine-table.txt"
