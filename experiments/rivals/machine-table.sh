#!/usr/bin/env bash
# The table of machine.sh: experiments/rivals/machine-table.sh RESULT.jsonl. Speed-ups are of plain halt in the same
# round: median, and range of the rounds.
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $0 RESULT.jsonl" >&2; exit 2; }
library=$(cd "$(dirname "$0")/.." && pwd)
jq -L "$library" -s -r 'include "statistics";
    def of($program; $mode): map(select(.program == $program and .mode == $mode)) | sort_by(.round);
    . as $runs | "program        mode           wall s  speed-up against plain halt          CPU s  retained s  stolen s",
    ($runs | map(.program) | unique[] as $program | ("plain", "haltpoll", "full", "full-latency", "haltpoll-full") as $mode |
        ($runs | of($program; $mode)) as $these | ($runs | of($program; "plain")) as $plain |
        [$these[] as $run | $plain[] | select(.round == $run.round) | .wall_ns / $run.wall_ns] as $ratios |
        def column($n): tostring | . + " " * ($n - length);
        def seconds(f): ([$these[] | f | values] | median | if . == null then "-" else . / 1e9 | two end);
        "\($program | column(15))\($mode | column(15))\(seconds(.wall_ns) | column(8))\($ratios | spread | column(37))\(seconds(.cpu_time_ns) | column(7))\(seconds(.retained_ns) | column(12))\(seconds(.steal_ns))"),
    ($runs | map(select(.latency != null) | .program) | unique | if length == 0 then empty else "", "latency, us, median of the rounds: p50, p99, p99.9" end),
    ($runs | map(select(.latency != null) | .program) | unique[] as $program | ("plain", "haltpoll", "full", "full-latency", "haltpoll-full") as $mode |
        ($runs | of($program; $mode) | map(.latency)) as $all |
        "\($program) \($mode): \([$all[].p50_ns] | median / 1e3 | two), \([$all[].p99_ns] | median / 1e3 | two), \([$all[].p999_ns] | median / 1e3 | two)")' "$1"
