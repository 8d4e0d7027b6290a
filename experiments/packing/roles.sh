#!/bin/sh
# What threads that take turns win by one vCPU in a guest with many: each built-in program under `gleaner run
# --policy off`, on one vCPU by hand, and under `gleaner run --policy consolidate`. Items a second, so that the start is
# left out. A line a round; then medians of the ratios to `off`.
#
#   roles.sh
#
# ROUNDS (default 3) and SECONDS_EACH (default 8) are read from the environment. Runs in a guest: testbed/guest.sh
# --timeout 900 --binary target/gleaner --file KEEPER:/bin/keeper KERNEL experiments/packing/roles.sh 4. KEEPER is
# programs/keeper.c, compiled with -static: without it QEMU breaks more often where the kernel patches itself.
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-8}
at=/tmp/roles
rm -rf $at && mkdir $at
keeper sched_switch sched_waking sched_process_exec sched_process_fork sys_enter irq_handler_entry irq_handler_exit \
    softirq_entry softirq_exit &
sleep 3
rate() { "$@" 2>>$at/err | sed -n 's/.*, \([0-9.]*\) items\/s$/\1/p'; }
turn() { # NAME ARGS...
    name=$1
    shift
    program="gleaner workload $* --for ${seconds}s"
    a=$(rate gleaner run -q --policy off -- $program) b=$(rate taskset -c 0 $program)
    c=$(rate gleaner run -q --policy consolidate --json $at/json -- $program)
    echo "$name $a $b $c" | tee -a $at/all
    grep -oE '"reason": *"[^"]*(turns|side by side)[^"]*"' $at/json | sort | uniq -c | sort -rn | head -2
}
for round in $(seq "$rounds"); do
    turn relay relay --threads 4
    turn request-reply request-reply
    turn pipeline pipeline
    turn task-queue task-queue
    turn block-io block-io
    turn barrier barrier
    turn fork-join fork-join
    turn independent independent
done
echo "of off: one vCPU by hand, gleaner"
for name in $(cut -d' ' -f1 $at/all | sort -u); do
    for column in 3 4; do
        awk -v name="$name" -v c=$column '$1 == name && $2 > 0 { print $c / $2 }' $at/all | sort -n |
            awk '{ at[NR] = $1 } END { printf " %.2f (%.2f-%.2f)", (at[int((NR + 1) / 2)] + at[int(NR / 2) + 1]) / 2, at[1], at[NR] }'
    done | sed "s/^/$name/"
    echo
done
