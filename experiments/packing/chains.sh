#!/bin/sh
# Several pairs that take turns, started by one shell: plain, each pair on a vCPU by hand, by `gleaner run`. Wall times
# in seconds, a line a round; the last line has medians and the speed against plain.
#
#   chains.sh [ROUNDS [PAIRS [HAND-OVERS]]]
#
# Runs here, or in a guest: testbed/guest.sh --binary target/gleaner --file TURNS:/bin/turns KERNEL \
#   experiments/packing/chains.sh 4. TURNS is programs/turns.c, compiled with -static. Needs root.
rounds=${1:-10} pairs=${2:-4} handovers=${3:-20000}
now() { cut -d' ' -f1 /proc/uptime; }
all=
for pair in $(seq 0 $((pairs - 1))); do
    all="$all turns socket $handovers &"
    own="$own taskset -c $pair turns socket $handovers &"
done
timed() { # FILE COMMAND...
    file=$1
    shift
    from=$(now)
    "$@" >/dev/null 2>/tmp/chains-err || cat /tmp/chains-err
    now | awk -v from="$from" '{ printf "%.2f\n", $1 - from }' >>"$file"
}
median() { sort -n "$1" | awk '{ at[NR] = $1 } END { print (at[int((NR + 1) / 2)] + at[int(NR / 2) + 1]) / 2 }'; }
at=/tmp/chains-times
rm -rf $at && mkdir $at
for round in $(seq "$rounds"); do
    timed $at/plain sh -c "$all wait"
    timed $at/hand sh -c "$own wait"
    timed $at/gleaner gleaner run --json $at/json -- sh -c "$all wait"
    echo "$round: plain $(tail -1 $at/plain), by hand $(tail -1 $at/hand), gleaner $(tail -1 $at/gleaner)"
    grep -oE '"reason": *"[^"]*chains[^"]*"' $at/json | sort | uniq -c | sort -rn | head -2
done
for mode in plain hand gleaner; do
    median $at/$mode
done | awk 'NR == 1 { plain = $1 } { printf "%s %.2f s, %.2f of plain; ", $1, $1, plain / $1 }' | sed 's/[0-9.]* \([0-9.]* s\)/\1/g'
echo
