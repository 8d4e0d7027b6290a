#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner KERNEL testbed/hrtick.sh 2), Linux 6.12 or newer: two
# that compute on one CPU and ask for 1 ms, first with nobody to enforce it, then with the kernel's HRTICK, which needs
# no ticker.

. /checks.sh

mount -t debugfs none /sys/kernel/debug 2>/dev/null
features=/sys/kernel/debug/sched/features
check "this kernel has HRTICK" grep -qw 'NO_HRTICK\|HRTICK' $features

hogs=""
for _ in 1 2; do
    taskset 2 sh -c 'while :; do :; done' &
    hogs="$hogs $!"
done
slice() { # slice NAME OPTION...
    name=$1
    shift
    # shellcheck disable=SC2086 # words
    gleaner host run --tid $hogs --slice 1ms --interval 200ms --for 8s "$@" --json >"/tmp/$name.json" 2>"/tmp/$name.txt"
    check "slices are set, measured and given back ($name)" [ $? = 0 ]
    cat "/tmp/$name.txt"
    json "$name" "/tmp/$name.json"
}
slice tick --no-enforce
check "HRTICK is switched on" sh -c "echo HRTICK >$features"
slice hrtick
# shellcheck disable=SC2086 # words
kill $hogs

exit $failures
