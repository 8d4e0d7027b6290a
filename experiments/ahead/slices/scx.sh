#!/bin/sh
# Runs inside a guest (run.sh scx): what two that compute and one that sleeps get of one CPU, by who ends slices.

. /checks.sh
mount -t debugfs none /sys/kernel/debug 2>/dev/null
cat /proc/sys/kernel/sched_rt_runtime_us /sys/kernel/debug/sched/preempt
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
mount -t bpf none /sys/fs/bpf 2>/dev/null
cat /sys/kernel/sched_ext/state
one() { # one NAME SECONDS: gauge as it is
    /gauge 1 $2 >/tmp/$1.out; sed -n "s/^{/$1 {/p" /tmp/$1.out
}
ticked() { # ticked NAME SLICE SECONDS
    /gauge 1 $3 >/tmp/$1.out &
    g=$!
    sleep 1
    pids=$(sed -n 's/^pids //p' /tmp/$1.out)
    gleaner host slice --tid $pids --slice $2 --for $(($3 + 1))s --json >/tmp/$1.json 2>/tmp/$1.txt
    wait $g
    sed -n "s/^{/$1 {/p" /tmp/$1.out
    tail -n 12 /tmp/$1.txt
}
ext() { # ext NAME SLICE_NS SECONDS
    mkfifo /tmp/$1.in
    /load /slices.bpf.o $2 2 </tmp/$1.in >/tmp/$1.load 2>&1 &
    l=$!
    exec 8>/tmp/$1.in
    within 20 grep -q attached /tmp/$1.load
    cat /sys/kernel/sched_ext/state
    one $1 $3
    exec 8>&-
    wait $l
    cat /tmp/$1.load
    rm /tmp/$1.in
}
features=/sys/kernel/debug/sched/features
for round in 1; do
    one kernel-$round 3
    echo HRTICK >$features
    ticked hrtick-1ms-$round 1ms 3
    ticked hrtick-100us-$round 100us 3
    echo NO_HRTICK >$features
    ticked ticker-1ms-$round 1ms 3
    ticked ticker-100us-$round 100us 3
    echo HRTICK >$features
    ext scx-1ms-$round 1000000 3
    ext scx-100us-$round 100000 3
done
dmesg | grep -i "sched_ext\|scx" | tail
exit $failures
