#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner KERNEL testbed/smoke.sh): the thin path through everything,
# on a kernel and a cgroup hierarchy that the build machine does not have. Checks what a shell can check and ends with the
# number of checks that failed; prints Gleaner's JSON, one object a line after its name, for whoever started the guest.

failures=0
check() { # check WHAT COMMAND...
    what=$1
    shift
    if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failures=$((failures + 1)); fi
}
json() { # json NAME FILE
    if [ -s "$2" ]; then printf 'json %s ' "$1"; tr -d '\n' <"$2"; echo; else echo "FAILED: no JSON for $1"; failures=$((failures + 1)); fi
}
# What a run may change: cgroups, and what this shell's children may use.
state() { find /sys/fs/cgroup -type d | sort; cat /sys/fs/cgroup/cgroup.subtree_control; grep Cpus_allowed_list /proc/self/status; ls /run; }

echo "kernel $(uname -r)"
check "four vCPUs" [ "$(nproc)" = 4 ]
check "pure cgroup v2" [ "$(grep -c cgroup /proc/mounts)" = 1 ]
check "the TSC is the clock" grep -q tsc /sys/devices/system/clocksource/clocksource0/current_clocksource
before=$(state)

# One thread waits for the other, thousands of times: what retention is for.
pipeline='dd if=/dev/zero bs=512 count=40000 2>/dev/null | cat | cat >/dev/null'

gleaner doctor --json >/tmp/doctor.json 2>/tmp/doctor.txt
check "doctor ends with 0" [ $? = 0 ]
json doctor /tmp/doctor.json

gleaner probe --gap-us 1000 --samples 100 --json >/tmp/probe.json 2>/tmp/probe.txt
check "probe ends with 0" [ $? = 0 ]
json probe /tmp/probe.json

gleaner run --json /tmp/run.json -- sh -c "$pipeline; exit 7" 2>/tmp/run.txt
check "run keeps the exit status" [ $? = 7 ]
json run /tmp/run.json
cat /tmp/run.txt

echo in | gleaner run --policy observe -- cat >/tmp/out.txt 2>/dev/null
check "run passes stdin and stdout through" [ "$(cat /tmp/out.txt)" = in ]
gleaner run -- no-such-command 2>/dev/null
check "a command that is not there: 127" [ $? = 127 ]

# kill -9 in the middle: the guardian undoes, the program goes on.
gleaner run -- sh -c 'sleep 8; echo survived >/tmp/survived' 2>/dev/null &
main=$!
sleep 4
kill -9 $main
tries=0
while [ ! -f /tmp/survived ] && [ $tries -lt 20 ]; do sleep 1; tries=$((tries + 1)); done
check "the program survives a kill -9 of Gleaner" [ -f /tmp/survived ]
sleep 1
gleaner restore >/tmp/restore.txt 2>&1
check "restore ends with 0" [ $? = 0 ]
after=$(state)
check "everything is as it was" [ "$before" = "$after" ]
[ "$before" = "$after" ] || printf 'before:\n%s\nafter:\n%s\n' "$before" "$after"

exit $failures
