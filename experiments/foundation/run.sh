#!/usr/bin/env bash
# Runs the benchmarks of the guest side one after the other and keeps what they print, in a folder named after the day
# and the machine's kernel. The machine should have nothing else to do: compare the load that each file begins with.
#
#   experiments/foundation/run.sh [NAME...]      about a quarter of an hour; doctor probe wakeup overhead spread
#       switch_cost window_cost
. "$(dirname "$0")/../lib.sh" "$@"
names=(doctor probe wakeup overhead spread switch_cost window_cost)
wanted=" ${*:-${names[*]}} "
for name in $wanted; do
    [[ " ${names[*]} " == *" $name "* ]] || { echo "usage: $0 [${names[*]}]..." >&2; exit 2; }
    fresh "$folder/$name.txt"
done
scripts/setup.sh build demo >&2
# Built before anything is measured.
cargo bench --locked --target "$host" -p gleaner -p gleaner-observe --no-run
keep() { # keep FILE COMMAND...
    name=$1
    shift
    [[ $wanted == *" ${name%.txt} "* ]] || return 0
    {
        echo "# $(date -u +%FT%TZ), commit $(git rev-parse --short HEAD), load $(cut -d' ' -f1-3 /proc/loadavg)"
        echo "# $*"
        "$@"
    } >"$folder/$name" 2>&1 || { echo "$name failed; see $folder/$name" >&2; exit 1; }
    echo "$folder/$name"
}
bench=(cargo bench --quiet --locked --target "$host")
keep doctor.txt "$gleaner" doctor
keep probe.txt "$gleaner" probe --gap-us 1000 --samples 2000 --load --json
keep wakeup.txt "${bench[@]}" -p gleaner --bench guest -- wakeup
keep overhead.txt "${bench[@]}" -p gleaner --bench guest -- overhead
keep spread.txt "${bench[@]}" -p gleaner --bench guest -- spread
keep switch_cost.txt "${bench[@]}" -p gleaner-observe --bench switch_cost
keep window_cost.txt "${bench[@]}" -p gleaner-observe --bench window_cost
