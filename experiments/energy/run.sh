#!/usr/bin/env bash
# Figure 6: joules where RAPL can be read; elsewhere CPU seconds as a stand-in: spent, of these useful (the same work without Gleaner),
# and retained, from the comparisons that experiments/programs/run.sh machine has made.
#
#   experiments/energy/run.sh [RESULT.json...]      default: experiments/programs/*/machine-*.json, the newest folder
set -euo pipefail
cd "$(dirname "$0")/../.."
if ls /sys/class/powercap/intel-rapl:*/energy_uj >/dev/null 2>&1; then
    echo "RAPL can be read here (/sys/class/powercap): measure joules around each run; this script does not do that yet" >&2
fi
if [[ $# -eq 0 ]]; then
    newest=$(ls -d experiments/programs/*/ | tail -n 1)
    set -- "$newest"machine-*.json
fi
printf '%-16s %10s %10s %10s %12s %12s\n' program 'off CPU s' 'on CPU s' 'on/off' 'retained s' 'wall off/on'
for file in "$@"; do
    jq -r --arg name "$(basename "$file" .json)" '.modes[0].median as $off | .modes[1].median as $on |
        [$name, $off.cpu_time_ns / 1e9, $on.cpu_time_ns / 1e9, $on.cpu_time_ns / $off.cpu_time_ns, $on.retained_ns / 1e9, .speedup.median] | @tsv' "$file" |
        awk -F'\t' '{ sub(/^machine-/, "", $1); printf "%-16s %10.2f %10.2f %10.3f %12.3f %12.3f\n", $1, $2, $3, $4, $5, $6 }'
done
