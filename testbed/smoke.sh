#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner KERNEL testbed/smoke.sh): the thin path through
# everything, on a kernel and a cgroup hierarchy that the build machine does not have. Checks what a shell can check and
# ends with the number of checks that failed; prints Gleaner's JSON, one object a line after its name, for whoever
# started the guest.

. /checks.sh

echo "kernel $(uname -r)"
check "four vCPUs" [ "$(nproc)" = 4 ]
check "pure cgroup v2" [ "$(grep -c cgroup /proc/mounts)" = 1 ]
check "the TSC is the clock" grep -q tsc /sys/devices/system/clocksource/clocksource0/current_clocksource
before=$(state)

# One waits for the other, thousands of times: what retention is for. For three seconds, on a machine of any speed.
pipeline='timeout 3 dd if=/dev/zero bs=512 2>/dev/null | cat | cat >/dev/null'

gleaner doctor --json >/tmp/doctor.json 2>/tmp/doctor.txt
check "doctor ends with 0" [ $? = 0 ]
json doctor /tmp/doctor.json

gleaner probe --gap 1ms --samples 100 --json >/tmp/probe.json 2>/tmp/probe.txt
check "probe ends with 0" [ $? = 0 ]
json probe /tmp/probe.json

gleaner run --observer bpf --json /tmp/run.json -- sh -c "$pipeline; exit 7" 2>/tmp/run.txt
check "run keeps the exit status" [ $? = 7 ]
json run /tmp/run.json
cat /tmp/run.txt

echo in | gleaner run --policy observe -- cat >/tmp/out.txt 2>/dev/null
check "run passes stdin and stdout through" [ "$(cat /tmp/out.txt)" = in ]
gleaner run -- no-such-command 2>/dev/null
check "a command that is not there: 127" [ $? = 127 ]

# kill -9 in the middle: the guardian undoes, the program goes on.
gleaner run -- sh -c 'touch /tmp/began; while [ ! -f /tmp/go ]; do usleep 100000; done; echo survived >/tmp/survived' 2>/dev/null &
main=$!
check "the program began" within 60 [ -f /tmp/began ]
kill -9 $main
wait $main 2>/dev/null
no_journal() { [ -z "$(find /run/gleaner -name "*.journal")" ]; }
check "the guardian undoes what a killed Gleaner did" within 60 no_journal
touch /tmp/go
check "the program survives a kill -9 of Gleaner" within 60 [ -f /tmp/survived ]
gleaner restore >/tmp/restore.txt 2>&1
check "restore ends with 0" [ $? = 0 ]
same "everything is as it was" "$before"

exit $failures
