#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner --file .../pipeline:/bin/pipeline KERNEL
# testbed/faults.sh): a daemon whose clock jumps by a day, whose vCPU is taken away and given back, and that is stopped
# for a while. It goes on, its recorder too, and leaves nothing changed.
. /checks.sh

cat >/tmp/daemon.toml <<'END'
[daemon]
retain = "yielding"
[capture]
size = "4M"
[group.prog]
program = "pipeline"
profile = "latency"
trial = false
[group.prog.params]
steal_share_stop = 1.0
END
# The first value of a key of the status.
key() { gleaner status --json | tr -d '\n ' | grep -oE "\"$1\":[^,}]*" | head -1 | cut -d: -f2; }
seconds() { echo $(($(key "$1") / 1000000000)); }
switch() { echo "$1" >/sys/devices/system/cpu/cpu3/online; }
# What the yielding thread of vCPU 3 may use.
thread_allows() {
    grep -lx gleaner-y3 /proc/"$daemon"/task/*/comm | sed 's/comm$/status/' | xargs grep -h Cpus_allowed_list | cut -f2
}
returned() { [ "$(thread_allows)" = 3 ]; }
left() { ! returned; }
is_later() { [ "$(seconds up_ns)" -gt "$1" ]; }
works_since() { [ "$(($(key cpu_time_ns)))" -gt "$1" ]; }

echo "kernel $(uname -r)"
before=$(state)
pipeline 4 100000000 200 >/dev/null &
program=$!
gleaner daemon --config /tmp/daemon.toml 2>/tmp/daemon.log &
daemon=$!
check "the program is managed" within 60 grep -q "prog: .* is managed" /tmp/daemon.log
check "a yielding thread is on its vCPU" within 60 returned

for jump in 86400 -172800; do
    began=$(seconds up_ns) worked=$(key cpu_time_ns)
    was=$(date +%s)
    date -s "@$((was + jump))" >/dev/null
    check "the machine's clock jumps" [ $((($(date +%s) - was - jump) / 30)) = 0 ]
    check "the clock jumped by $jump s: the daemon's time does not go back" within 60 is_later "$began"
    # A day is 24 times as long.
    now=$(seconds up_ns)
    check "... nor on with the clock ($began, $now)" [ $((now - began)) -lt 3600 ]
    check "... and it still sees the program" within 60 works_since "$worked"
done
date -s "@$(($(date +%s) + 86400))" >/dev/null

switch 0
check "a vCPU is gone: the daemon keeps nobody on it" within 60 left
check "... and answers" gleaner status
switch 1
check "it is there again: so is its yielding thread" within 60 returned

kill -STOP "$daemon"
sleep 4
kill -CONT "$daemon"
worked=$(key cpu_time_ns)
check "it was stopped, and goes on" within 60 works_since "$worked"

check "what it recorded meanwhile is fetched" gleaner capture /tmp/x.capture
check "... and decided again" gleaner replay /tmp/x.capture
rm -f /tmp/x.capture
sed 's/^/  /' /tmp/daemon.log
kill -TERM "$daemon"
wait "$daemon"
check "it ends with 0" [ $? = 0 ]
check "the program goes on" kill -0 "$program"
kill -9 "$program"
within 60 [ ! -d "/proc/$program" ]
same "the machine is as it was" "$before"

exit $failures
