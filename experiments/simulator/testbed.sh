#!/usr/bin/env bash
# The simulator against the test bed: speed-up by Gleaner, measured in emulated guests and simulated with the costs that
# `gleaner probe` finds in such a guest, and nothing else of it. About ten minutes; ROUNDS=n for fewer than 10. Takes a
# quiet machine.
. "$(dirname "$0")/../lib.sh" "$@"
laboratory
scripts/setup.sh build test >&2
file=experiments/simulator/testbed.toml
script=$(mktemp "${TMPDIR:-/tmp}/gleaner-probe.XXXXXX")
trap 'rm -f "$script"' EXIT
printf '#!/bin/sh\nexec gleaner probe --json 2>/dev/null\n' >"$script"
say "probe in a guest"
kernel=$(testbed/fetch-kernel.sh 6.1 | awk 'END { print $2 }')
taskset -c 0,1 testbed/guest.sh --binary "$gleaner" --memory 256 "$kernel" "$script" 2 >"$folder/testbed-probe.json"
scenario "$file" ${ROUNDS:+--rounds "$ROUNDS"}
say "simulation"
"$lab" sim run "$file" --probe "$folder/testbed-probe.json" --json "$folder/testbed-sim.json" >"$folder/testbed-sim.txt"
jq -n -r --slurpfile bed "$folder/testbed.json" --slurpfile sim "$folder/testbed-sim.json" '
    def two: . * 100 | round / 100;
    "workload: speed-up measured (95 % interval), simulated, simulated / measured",
    ($bed[0].summary[] | select(.policy == "full") as {$workload, $speedup} |
        [$sim[0].rows[] | select(.policy == "full" and .workload == $workload).speedup] as [$simulated] |
        "\($workload): \($speedup.median | two) (\($speedup.ci95 // [] | map(two) | join(" to "))), \($simulated | two), \($simulated / $speedup.median | two)")
' | tee "$folder/testbed-compared.txt"
