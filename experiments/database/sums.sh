#!/usr/bin/env bash
# Figures 8 and 9 from a result of vms-N.toml: what all VMs got done together, and each policy against off, by round.
#
#   experiments/database/sums.sh RESULT.json
#
# Per second: transactions of OLTP, items of `pipeline`. A round in which one VM has no figure has no sum.
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $0 RESULT.json" >&2; exit 2; }
library=$(cd "$(dirname "$0")/.." && pwd)
jq -L "$library" -r '
    include "statistics";
    ([.scenario.vm[] | select(.role == "measured")] | length) as $vms |
    [.runs[] | select((.warmup | not) and .exit_status == 0 and .failure == null and .items_per_second != null)] | group_by([.workload, .policy, .round]) |
    map(select(length == $vms) | {workload: .[0].workload, policy: .[0].policy, round: .[0].round, sum: (map(.items_per_second) | add)}) as $sums |
    "\($vms) VM\(if $vms == 1 then "" else "s together" end): per second, median (range); over off, by round",
    ($sums | group_by(.workload)[] | . as $rows | (map(select(.policy == "off"))) as $off |
        [.[].policy] | unique | sort_by(if . == "off" then 0 else 1 end)[] | . as $policy | ($rows | map(select(.policy == $policy))) as $mine |
        "  \($rows[0].workload) \($policy): \($mine | map(.sum) | spread)" +
            if $policy == "off" then "" else "; \([$mine[] as $x | $off[] | select(.round == $x.round and .sum > 0) | $x.sum / .sum] | spread)" end)
' "$1"
