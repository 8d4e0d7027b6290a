#!/usr/bin/env bash
# Figures 1 and 2 from the two results: experiments/interference/figures.sh ALONE.json BESIDE.json
#
# Pairs are runs of one round of one scenario: their ratio's median and range over the rounds. Slow-downs beside a
# neighbour relate two scenarios, run one after the other, and are ratios of medians.
set -euo pipefail
[[ $# -eq 2 ]] || { echo "usage: $0 ALONE.json BESIDE.json" >&2; exit 2; }
library=$(cd "$(dirname "$0")/.." && pwd)
jq -L "$library" -n -r --slurpfile alone "$1" --slurpfile beside "$2" '
    include "statistics";
    def ok: [.[0].runs[] | select((.warmup | not) and .exit_status == 0 and .failure == null and .wall_ns != null) | . + {beside: (.background[0].workload // "nothing")}];
    ($alone | ok) as $alone | ($beside | ok) as $beside |
    # Pairs of runs of a round: what $a took over what $b took.
    def ratios($a; $b): [$a[] as $x | $b[] | select(.round == $x.round) | $x.wall_ns / .wall_ns];
    def alone($program; $vm; $policy): [$alone[] | select(.workload == $program and .vm == $vm and .policy == $policy)];
    def beside($program; $policy; $with): [$beside[] | select(.workload == $program and .policy == $policy and .beside == $with)];
    def over_native($runs; $program): (alone($program; "native"; "off") | map(.wall_ns) | median) as $native |
        if $native == null or ($runs | length) == 0 then null else ($runs | map(.wall_ns) | median) / $native end;
    [$alone[].workload] | unique | map(. as $program | {
        $program,
        entries: (alone($program; "app"; "observe") | map(select(.run.idle_entries != null) | .run.idle_entries * 1e9 / .wall_ns)),
        alone: ratios(alone($program; "app"; "off"); alone($program; "native"; "off")),
        alone_full: ratios(alone($program; "app"; "full"); alone($program; "native"; "off")),
        observing: ratios(alone($program; "app"; "observe"); alone($program; "app"; "off")),
        modes: (["off", "full", "full-200us"] | map(. as $policy | {
            $policy,
            matmul: over_native(beside($program; $policy; "matmul"); $program),
            freqsleep: over_native(beside($program; $policy; "freqsleep"); $program),
            varies: ratios(beside($program; $policy; "matmul"); beside($program; $policy; "freqsleep"))
        }))
    }) | sort_by(-(.entries | median // 0)) |
    "Figure 1, alone: idle entries/s (policy observe); t / t(native stand-in) under off and full; t(observe) / t(off)",
    (.[] | "  \(.program): \(.entries | spread); \(.alone | spread); \(.alone_full | spread); \(.observing | spread)"),
    "",
    "Figure 1, beside a neighbour: median t / median t(native stand-in alone), beside matmul and beside freqsleep",
    (.[] | "  \(.program): \([.modes[] | "\(.policy) \(.matmul | two) and \(.freqsleep | two)"] | join("; "))"),
    "",
    "Figure 2: the difference of these two slow-downs, against idle entries/s",
    (.[] | "  \(.program), \(.entries | median | two) entries/s: \([.modes[] | "\(.policy) \(if .matmul == null or .freqsleep == null then "-" else .matmul - .freqsleep | fabs | two end)"] | join("; "))"),
    "",
    "t(beside matmul) / t(beside freqsleep), by round (the paper, dedup: 7 without Gleaner, 1.21 with)",
    (.[] | "  \(.program): \([.modes[] | "\(.policy) \(.varies | spread)"] | join("; "))")
'
