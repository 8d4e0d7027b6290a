#!/usr/bin/env bash
# Runs the benchmarks of the guest side one after the other and keeps what they print, in a folder named after the day and the machine's
# kernel. The machine should have nothing else to do: compare the load that each file begins with.
#
#   experiments/foundation/run.sh [NAME...]      about ten minutes; doctor probe wakeup overhead spread switch_cost window_cost
set -euo pipefail
wanted=" ${*:-doctor probe wakeup overhead spread switch_cost window_cost} "
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scripts/setup.sh build demo
host=$(rustc -vV | sed -n 's/^host: //p')
folder=experiments/foundation/$(date +%F)-$(uname -r)-$(nproc)cpu
mkdir -p "$folder"
# Built before anything is measured.
cargo bench --locked --target "$host" -p gleaner -p gleaner-observe --no-run
cargo build --locked --release --target "$host" -p gleaner
keep() { # keep NAME COMMAND...
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
keep doctor.txt "target/$host/release/gleaner" doctor
keep probe.txt "target/$host/release/gleaner" probe --gap-us 1000 --samples 2000 --load --json
keep wakeup.txt "${bench[@]}" -p gleaner --bench guest -- wakeup
keep overhead.txt "${bench[@]}" -p gleaner --bench guest -- overhead
keep spread.txt "${bench[@]}" -p gleaner --bench guest -- spread
keep switch_cost.txt "${bench[@]}" -p gleaner-observe --bench switch_cost
keep window_cost.txt "${bench[@]}" -p gleaner-observe --bench window_cost
