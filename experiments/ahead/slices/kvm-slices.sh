#!/bin/sh
# Runs inside a guest (run.sh kvm). Two real KVM guests on each CPU: slices ended by HRTICK, the ticker, the tick.
. /checks.sh
for module in /kvm/*.ko; do check "$module is inserted" insmod "$module"; done
mount -t debugfs none /sys/kernel/debug 2>/dev/null
cat /proc/sys/kernel/sched_rt_runtime_us /sys/kernel/debug/sched/preempt
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
uname -r
cat /sys/kernel/debug/sched/features
/vmm 0 & /vmm 0 &
/vmm 1 & a=$!
/vmm 1 & b=$!
sleep 2
check "both compute" kill -0 $a $b
gleaner host list 2>&1 | head -30
slice() { # slice NAME OPTION...
    name=$1
    shift
    gleaner host slice --all --for 4s "$@" --json >"/tmp/$name.json" 2>"/tmp/$name.txt"
    check "slices are set, measured and given back ($name)" [ $? = 0 ]
    cat "/tmp/$name.txt"
    json "$name" "/tmp/$name.json"
}
agent() { # agent NAME OPTION...
    name=$1
    shift
    gleaner host run "$@" --json >"/tmp/$name.json" 2>"/tmp/$name.txt"
    check "host run ($name)" [ $? = 0 ]
    cat "/tmp/$name.txt"
    json "$name" "/tmp/$name.json"
}
slice hrtick-1ms --slice 1ms
slice hrtick-100us --slice 100us
echo NO_HRTICK >/sys/kernel/debug/sched/features
slice ticker-1ms --slice 1ms
slice ticker-100us --slice 100us
slice tick-1ms --slice 1ms --no-enforce
echo HRTICK >/sys/kernel/debug/sched/features
agent run-1ms --slice 1ms --for 4s
agent run-adaptive --slice adaptive --for 25s
killall vmm
exit $failures
