#!/usr/bin/env bash
# Figures 7, 8, 10, 11 and 12 of the micro-sliced paper, simulated. Results depend on nothing but the arguments, so the
# machine may be busy.
#
#   experiments/cachesim/run.sh [QUANTA] [TRACES]     default: 10 quanta of 30 ms for each context, made-up programs
#
# At 10 quanta all five take about two hours of CPU time with made-up programs. With TRACES, a folder of recordings
# (docs/research/cachesim.md), far longer: accesses that hit the L1 are simulated too.
. "$(dirname "$0")/../lib.sh" "$@"
laboratory
quanta=${1:-10}
traces=${2:-}

suffix="${traces:+-traces}-$quanta"
for figure in fig8 fig10 fig11 fig12 fig7; do
    say "$figure, $quanta quanta"
    nice -n 19 "$lab" cache reproduce "micro:$figure" --quanta "$quanta" ${traces:+--traces "$traces"} \
        --json "$folder/$figure$suffix.json" >"$folder/$figure$suffix.txt"
    tail -n 25 "$folder/$figure$suffix.txt"
done
