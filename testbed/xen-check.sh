#!/bin/sh
# In a Xen dom0 (xen.sh boots one): slices set, read back and put back, however Gleaner ends; what Xen cannot do is
# refused.
. /checks.sh
. /xen-up.sh

scheduler=$(xl info | sed -n 's/^xen_scheduler *: *//p')
echo "scheduler: $scheduler"
# now: what Xen says it is set to, in one line
case $scheduler in
    credit) now() { xl sched-credit -s; } ;;
    credit2) now() { xl sched-credit2 -s; } ;;
esac
now_has() { now | grep -q -- "$1"; }
# soon COMMAND...: tries until it succeeds, for a minute by the clock: one xl may take a second here
soon() {
    limit=$(($(date +%s) + 60))
    until "$@"; do
        [ "$(date +%s)" -lt $limit ] || { now; cat /tmp/out; return 1; }
    done
}
is_back() { [ "$(now)" = "$before" ]; }
# refused STATUS WORDS ARGUMENTS...: ends with that status, says these words, the caller looks whether all is as before
refused() {
    wanted=$1 words=$2
    shift 2
    gleaner host run --xen "$@" >/tmp/out 2>/tmp/err
    status=$?
    check "run $*: status $wanted" [ $status -eq "$wanted" ]
    check "run $*: says '$words'" grep -q -- "$words" /tmp/err
    cat /tmp/err
}
# held WORDS ARGUMENTS...: is set while it runs, put back when it ends, when it is interrupted, and when it is killed
held() {
    words=$1
    shift
    gleaner host run --xen "$@" --for 12s --json /tmp/slice.json >/tmp/out 2>&1 &
    check "run $*: read back as '$words'" soon now_has "$words"
    now
    wait $!
    check "run $*: status 0" [ $? -eq 0 ]
    cat /tmp/out
    json slice /tmp/slice.json
    check "run $*: put back at the end" is_back
    for signal in TERM KILL; do
        gleaner host run --xen "$@" >/tmp/out 2>&1 &
        check "before $signal: '$words'" soon now_has "$words"
        kill -$signal $!
        check "after $signal: put back" soon is_back
    done
}
# Gleaner and its guardian are both killed: somebody says `gleaner restore`.
restored() {
    words=$1
    shift
    gleaner host run --xen "$@" >/tmp/out 2>&1 &
    gleaner=$!
    check "before both are killed: '$words'" soon now_has "$words"
    # The brackets keep grep from finding itself.
    for file in $(grep -l 'guardia[n]' /proc/[0-9]*/cmdline 2>/dev/null); do
        kill -KILL "$(echo "$file" | cut -d/ -f3)"
    done
    kill -KILL $gleaner
    sleep 3
    check "nobody is left to put it back" now_has "$words"
    gleaner restore
    check "gleaner restore puts it back" is_back
}

before=$(now)
echo "before: $before"
gleaner host list >/tmp/out 2>&1
check "host list: refused" [ $? -eq 2 ]

case $scheduler in
    credit)
        held "tslice=1ms ratelimit=1000us" --slice 1ms
        restored "tslice=1ms ratelimit=100us" --slice 1ms --ratelimit 100us
        refused 2 "least slice is 1 ms" --slice 100us
        refused 2 "whole cpupool" --slice 1ms --vm Domain-0
        ;;
    credit2)
        held "ratelimit=100us" --ratelimit 100us
        refused 2 "no slice to set" --slice 1ms
        ;;
esac
check "refusals changed nothing" is_back
check "no journal is left" [ -z "$(find /run /tmp -name '*.journal')" ]
exit $failures
