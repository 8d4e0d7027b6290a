#!/usr/bin/env bash
# What users have: plain halt, idle=poll and Gleaner, the same programs in the same rounds. 65 minutes (671 steps of
# about 5 s); ROUNDS=n for fewer than 10.
#
#   experiments/rivals/run.sh
. "$(dirname "$0")/../lib.sh" "$@"
fresh "$folder/scenario.json"
scripts/setup.sh build test >&2
scenario experiments/rivals/scenario.toml ${ROUNDS:+--rounds "$ROUNDS"}
