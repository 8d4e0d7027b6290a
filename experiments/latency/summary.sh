#!/usr/bin/env bash
# The table of a folder of run.sh, or of what `run.sh guest` leaves: experiments/latency/summary.sh FOLDER|GUEST.json
#
# Microseconds, medians of the rounds; and off's figure over the policy's in the same round (above 1: sooner than
# without Gleaner), median and range. Rounds are told by the file names RATE-POLICY-ROUND.json, of which
# RATE-POLICY-ROUND-run.json is not one.
set -euo pipefail
[[ $# -eq 1 && -r $1 ]] || { echo "usage: $0 FOLDER|GUEST.json" >&2; exit 2; }
library=$(cd "$(dirname "$0")/.." && pwd)
table='
    include "statistics";
    def us: . / 10 | round / 100;
    # Rows of {rate (what is asked, how), policy, round, latency}: pairs are rows of a round and a rate.
    def table:
        ["p50_ns", "p99_ns", "p999_ns"] as $quantiles |
        "rate policy: medians of rounds, us: p50 p99 p99.9; off / this policy by round: p50; p99; p99.9",
        (group_by(.rate)[] | . as $rate | group_by(.policy) | sort_by(if .[0].policy == "off" then "" else .[0].policy end)[] | . as $rows |
            "\($rows[0].rate) \($rows[0].policy), \($rows | length) rounds: " + ([$quantiles[] as $q | [$rows[].latency[$q]] | median | us | tostring] | join(" ")) +
            if $rows[0].policy == "off" then "" else "; " + ([$quantiles[] as $q |
                [$rows[] as $x | $rate[] | select(.policy == "off" and .round == $x.round) | .latency[$q] / $x.latency[$q]] | spread] | join("; ")) end);
'
if [[ -f $1 ]]; then
    jq -L "$library" -r "$table"'
        [.runs[] | select((.warmup | not) and .exit_status == 0 and .failure == null and .latency != null) |
            {rate: "\(.workload) beside \(.background[0].workload // "nothing"),", policy, round, latency}] | table' "$1"
    exit
fi
cd "$1"
shopt -s extglob nullglob
files=(+([0-9])-+([a-z-])-+([0-9]).json)
[[ ${#files[@]} -gt 0 ]] || { echo "$0: no RATE-POLICY-ROUND.json in $1" >&2; exit 2; }
jq -L "$library" -n -r "$table"'
    [inputs | . as $result | input_filename | capture("^(?<rate>[0-9]+)-(?<policy>.*)-(?<round>[0-9]+)\\.json$") |
        {rate: "\(.rate)/s", policy, round: (.round | tonumber), latency: $result.latency}] | table' "${files[@]}"
