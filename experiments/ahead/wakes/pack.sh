#!/usr/bin/env bash
# Should a group be packed whose threads are woken several at once, or hardly wake each other? Packing alone, without
# retention, on the machine itself: whoever may be packed, all but broadcasts, and neither those nor independent ones.
#
#   sudo experiments/ahead/wakes/pack.sh [ROUNDS]
#
# Twenty minutes for five rounds; wants a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=experiments/ahead/wakes
options="--policy consolidate --observer bpf --no-daemon"
experiments/retention/programs.py ${GLEANER:+--gleaner "$GLEANER"} --rounds "${1:-5}" --built-in --modes plain \
    --variant "all=$options" --variant "no-broadcasts=$options --config $here/no-broadcasts.toml" \
    --variant "neither=$options --config $here/neither.toml" \
    --only "${ONLY:-redis-1,memcached-8,hackbench,messaging,python-pair,jvm-futures,go-channel,pigz-p4,x264,sysbench-cpu,make,relay,barrier,fork-join,request-reply,pipeline,task-queue,block-io,freqsleep,independent,matmul}" \
    --out "${OUT:-target/experiments/pack.json}"
