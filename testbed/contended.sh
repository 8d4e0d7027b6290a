#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner --file .../pipeline:/bin/pipeline KERNEL
# testbed/contended.sh), which has more vCPUs than the machine has CPUs: the place where spinning hurts. Each yielding
# thread that spins may hold the CPU that the vCPU with work needs, and without a guard a pipeline took thirty times as
# long as alone (docs/safety.md, "A contended host"). Runs the same pipeline under each policy for the same time,
# interleaved, and prints one line a run, then for each policy `median POLICY NS` and `slowest POLICY NS`, which is time
# for an item, and `spun POLICY SHARE`: CPU time of the yielding threads for each second of wall time, over all its
# runs. Two last runs of yielding threads, with the guard and nothing else (`guard-alone`) and without it (`unguarded`),
# show that the share tells, and that it is the guard (`trips NAME TIMES`). Whoever started the guest compares; nothing
# is judged here.

rounds=${ROUNDS:-3}
seconds=2
echo "kernel $(uname -r), $(nproc) vCPUs"
# The run's own: each vCPU has a retained_ns, too, further down.
key() { tr -d '\n ' </tmp/run.json | grep -oE "\"$1\":[0-9.]+" | head -n 1 | cut -d: -f2; }
failures=0
run() { # run NAME OPTIONS...
    name=$1
    shift
    # Recorded, so that Gleaner is there before the program: in an emulated guest it takes some seconds to begin.
    gleaner run --quiet --capture /dev/null --json /tmp/run.json "$@" -- pipeline 2 "${seconds}s" 2000 >/tmp/out 2>&1 || { echo "FAILED: $name"; cat /tmp/out; failures=$((failures + 1)); }
    count=$(sed -n 's/^\([0-9]*\) items in .*/\1/p' /tmp/out)
    echo $(($(key wall_ns) / ${count:-1})) >>/tmp/item.$name
    echo "$(key retained_ns) $(key wall_ns)" >>/tmp/spun.$name
    echo "run $name $count items: guard trips $(key guard_trips), retained $(key retained_ns) of $(key wall_ns) ns, halts $(key halts), vCPUs active $(key active_vcpus_mean)"
}
spun() { awk -v name="$1" '{ spun += $1; wall += $2 } END { printf "spun %s %.3f\n", name, spun / wall }' /tmp/spun.$1; }
round=0
while [ $round -lt "$rounds" ]; do
    run off --policy off
    run observe --policy observe
    run retain --policy retain
    run consolidate --policy consolidate
    run full --policy full
    run yielding-5ms --policy retain --retain yielding --retain-for 5ms
    run retain-5ms --policy retain --retain-for 5ms
    round=$((round + 1))
done
for name in off observe retain consolidate full yielding-5ms retain-5ms; do
    echo "median $name $(sort -n /tmp/item.$name | sed -n "$(((rounds + 1) / 2))p")"
    echo "slowest $name $(sort -n /tmp/item.$name | tail -n 1)"
    spun $name
done
printf 'retention_trials = false\n' >/tmp/guard-alone.toml
{ cat /tmp/guard-alone.toml; printf 'steal_share_stop = 1.0\n'; } >/tmp/unguarded.toml
seconds=$((seconds * 3))
for name in guard-alone unguarded; do
    run $name --policy retain --retain yielding --retain-for 5ms --config /tmp/$name.toml
    echo "slowest $name $(cat /tmp/item.$name)"
    echo "trips $name $(key guard_trips)"
    spun $name
done
exit $failures
