#!/bin/bash
# What a busy neighbour on the host's CPUs keeps beside a guest with four vCPUs: `gleaner workload matmul` for ten
# seconds, alone and while a program runs in the guest under `--policy off`, on one vCPU by hand, and under
# `--policy consolidate`. Prints the neighbour's items a second, and as shares of what it has alone.
#
#   neighbour.sh KERNEL KEEPER ["ROLE OPTIONS"...]
#
# A role is a program of `gleaner workload` (default relay). KEEPER is programs/keeper.c, compiled with -static.
set -eu
[[ $# -ge 2 && -r $1 && -r $2 ]] || { sed -n '6,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
kernel=$(realpath "$1") keeper=$(realpath "$2")
cd "$(dirname "$0")/../.."
shift 2
at=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || :; rm -rf "$at"' EXIT
neighbour() { target/gleaner workload matmul --for 10s | sed -n 's/.*, \([0-9.]*\) items\/s$/\1/p'; }
alone=$(neighbour)
echo "alone $alone"
for role in "${@:-relay}"; do
    for mode in "gleaner run -q --policy off --" "taskset -c 0" "gleaner run -q --policy consolidate --"; do
        cat >"$at/in-guest.sh" <<IN
#!/bin/sh
keeper sched_switch sched_waking sched_process_exec sched_process_fork sys_enter irq_handler_entry softirq_entry &
sleep 3
$mode gleaner workload $role --for 45s
IN
        bash testbed/guest.sh --timeout 100 --binary target/gleaner --file "$keeper:/bin/keeper" "$kernel" \
            "$at/in-guest.sh" 4 >"$at/log" 2>&1 &
        # It has booted, and a trial is over or goes on.
        sleep 28
        share=$(neighbour)
        wait
        echo "$role, $mode: $share, $(awk "BEGIN { printf \"%.2f\", $share / $alone }") of alone; in the guest:" \
            "$(grep -o '[0-9.]* items/s' "$at/log" | tail -1)"
    done
done
