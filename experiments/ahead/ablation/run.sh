#!/usr/bin/env bash
# What each part of the policy adds, on the machine itself: real programs and built-in ones, each part added in turn.
#
#   sudo experiments/ahead/ablation/run.sh [ROUNDS]
#
# Twenty minutes for three rounds; wants a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=experiments/ahead/ablation
experiments/retention/programs.py ${GLEANER:+--gleaner "$GLEANER"} --rounds "${1:-3}" --built-in --modes plain,gleaner \
    --variant "paper=--retain yielding --config $here/paper.toml" \
    --variant "idle-loop=--config $here/fixed.toml" \
    --variant "learnt=--config $here/learnt.toml" \
    --only "${ONLY:-redis-1,redis-1000,memcached-8,pgbench-1,nginx-8,pigz-p4,hackbench,jvm-queue,go-channel,x264,mariadb-48,relay,barrier,fork-join,request-reply,pipeline,task-queue,block-io,freqsleep,address-space,spin-lock,independent,matmul}" \
    --out "${OUT:-target/experiments/ablation.json}"
