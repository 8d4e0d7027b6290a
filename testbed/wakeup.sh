#!/bin/sh
# Runs inside a guest with two vCPUs (testbed/guest.sh --binary target/gleaner KERNEL testbed/wakeup.sh 2): settings B
# and C of the paper's Table 2, and C's pattern under `gleaner run --profile latency`, in turn. Prints a line a
# measurement.

figures() { grep -E '"p50_ns"|"p99_ns"' | tr -d ' \n'; }
round=0
while [ $round -lt "${ROUNDS:-5}" ]; do
    echo "B   $(gleaner probe --setting B --samples 500 --json 2>/dev/null | figures)"
    echo "C   $(gleaner probe --setting C --samples 500 --json 2>/dev/null | figures)"
    echo "run $(gleaner run --quiet --profile latency -- gleaner probe --setting C --samples 500 --json 2>/dev/null | figures)"
    round=$((round + 1))
done
