#!/bin/sh
# Runs inside a guest: testbed/pipeline.c alone in 4 vCPUs on 2 CPUs, off and full in turn, then confined to one vCPU by
# hand.
#
#   cc -O2 -static -pthread -o target/pipeline testbed/pipeline.c
#   testbed/guest.sh --binary target/gleaner --file target/pipeline:/bin/pipeline --timeout 240 KERNEL
#       experiments/programs/pipeline-alone.sh
key() { tr -d '\n ' </tmp/run.json | grep -oE "\"$1\":[0-9.]+" | cut -d: -f2; }
echo "kernel $(uname -r), $(nproc) vCPUs: pipeline 2 100000 2000"
for policy in off full off full; do
    gleaner run --json /tmp/run.json --overhead 5 --policy $policy -- pipeline 2 100000 2000 2>/tmp/said >/dev/null
    echo "$policy: wall_ns $(key wall_ns), vCPUs active $(key active_vcpus_mean), guard trips $(key guard_trips)"
    [ $policy = off ] || grep -E "activate|no \(further\)" /tmp/said
done
echo "on one vCPU by hand (taskset), ms: $(taskset 1 pipeline 2 100000 2000)"
