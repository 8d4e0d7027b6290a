#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner --file .../pipeline:/bin/pipeline KERNEL
# testbed/packing.sh): a program that mostly waits is packed onto fewer of four vCPUs, with and without privilege, and
# afterwards nothing is left of it, even when everything of Gleaner is killed in the middle.
# The conditions are made easy (easy.toml): that a step is taken when it should be is a matter for decide's tests, here
# it has to be carried out and undone.
. /checks.sh

# Counting system calls patches the kernel, which QEMU 7.2 translates wrongly: no trial of one vCPU.
cat >/tmp/easy.toml <<'END'
turns_cpus_max = 0
min_time_slice_us = 100000
[tuning]
idle_periods_per_s_min = 1
settle_windows = 0
judge_windows = 1
baseline_windows_min = 1
baseline_windows_max = 1
predicted_utilization_max = 1.0
hold_off_min_ms = 1
hold_off_max_ms = 1
thread_burst_min = 1000000
cpu_change_share = 10
saturated_utilization = 1.0
granularity_change_factor = 100
hurt_loss_min = 1
expand_at_once = false
END
chmod 644 /tmp/easy.toml
steps() { grep -q '"deactivate"' "$1"; }
key() { tr -d '\n ' <"$2" | grep -oE "\"$1\":[^,}]*" | cut -d: -f2; }

# Recorded, so that Gleaner is there before the program: in an emulated guest it takes some seconds to begin.
first="--capture /dev/null"
export first
echo "kernel $(uname -r)"
before=$(state)

# Short computations, two stages on four vCPUs: long idle periods that one vCPU could bear.
file=/tmp/root.json
gleaner run --policy consolidate --config /tmp/easy.toml $first --json $file -- pipeline 2 4s 200 >/tmp/out 2>&1
check "root: the pipeline ends with 0" [ $? = 0 ]
json root $file
check "root: a vCPU was deactivated" steps $file
check "root: all was undone" [ "$(key restored $file)" = true ]
same "root: the machine is as it was" "$before"

# Somebody without any privilege: /proc, masks, SCHED_IDLE.
before=$(state)
su -s /bin/sh nobody -c 'gleaner run --config /tmp/easy.toml --capture /dev/null --retain-for 1ms --json /tmp/user.json -- pipeline 2 4s 200' >/tmp/out 2>&1
check "without privilege: the pipeline ends with 0" [ $? = 0 ]
json user /tmp/user.json
check "without privilege: a vCPU was deactivated" steps /tmp/user.json
same "without privilege: the machine is as it was" "$before"

allowed() { grep -h Cpus_allowed_list /proc/"$1"/task/*/status 2>/dev/null | cut -f2 | sort -u | tr '\n' ' '; }
is() { [ "$(allowed "$1")" = "$2" ]; }

# Somebody who outlives the program and has cleared his environment: confined with the group, and given everything back.
gleaner run --policy consolidate --config /tmp/easy.toml $first --json /tmp/outlived.json -- sh -c '
    env -i sleep 1000 & echo $! >/tmp/pids
    pipeline 2 4s 200' >/tmp/out 2>&1
check "outlived: the pipeline ends with 0" [ $? = 0 ]
check "outlived: a vCPU was deactivated" steps /tmp/outlived.json
check "outlived: who goes on has his vCPUs again" is "$(cat /tmp/pids)" "0-3 "
kill "$(cat /tmp/pids)"

# Gleaner in a service's cgroup, as everywhere under systemd: cpu.idle all the same, and the program stays in the
# service.
mkdir /sys/fs/cgroup/service
before=$(state)
sh -c 'echo 0 >/sys/fs/cgroup/service/cgroup.procs
    exec gleaner run --policy full --retain yielding --retain-for 1ms --config /tmp/easy.toml $first --json /tmp/nested.json -- sh -c "
        cat /proc/self/cgroup >/tmp/place; exec pipeline 2 4s 200"' >/tmp/out 2>&1
check "nested: the pipeline ends with 0" [ $? = 0 ]
json nested /tmp/nested.json
check "nested: a vCPU was deactivated" steps /tmp/nested.json
check "nested: all was undone" [ "$(key restored /tmp/nested.json)" = true ]
check "nested: the program was in the service's cgroup" grep -qx 0::/service /tmp/place
same "nested: the machine is as it was" "$before"
rmdir /sys/fs/cgroup/service
before=$(state)

# kill -9 of everything of Gleaner while the program is confined: restore gives back what the program had, its own
# choices included.
confined() { [ "$(allowed "$1")" != "$2" ]; }
both_began() { [ "$(wc -l </tmp/pids)" = 2 ]; }
children() { cat /proc/"$1"/task/*/children 2>/dev/null; }
guardian_of() { for pid in $(children "$1"); do if grep -q guardian "/proc/$pid/cmdline"; then echo "$pid"; fi; done; }
cp /dev/null /tmp/pids
gleaner run --policy consolidate --config /tmp/easy.toml -- sh -c '
    pipeline 2 100000000 200 >/dev/null & echo $! >>/tmp/pids
    taskset 6 pipeline 2 100000000 200 >/dev/null & echo $! >>/tmp/pids
    wait' 2>/tmp/out &
main=$!
within 60 both_began
free=$(sed -n 1p /tmp/pids) pinned=$(sed -n 2p /tmp/pids)
check "killed: the program was confined" within 60 confined "$free" "0-3 "
kill -9 "$main" $(guardian_of "$main")
wait "$main" 2>/dev/null
check "killed: the program goes on, confined" confined "$free" "0-3 "
gleaner restore >/tmp/restore.txt 2>&1
check "killed: restore ends with 0" [ $? = 0 ]
cat /tmp/restore.txt
check "killed: the program has its vCPUs again" is "$free" "0-3 "
check "killed: a thread's own choice is its own again" is "$pinned" "1-2 "
kill -9 "$free" "$pinned"
within 60 [ ! -d "/proc/$free" ]
same "killed: the machine is as it was" "$before"

exit $failures
