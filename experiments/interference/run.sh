#!/usr/bin/env bash
# Figures 1 and 2: idle entries, slow-down beside neighbours, and how much that varies. About 45 minutes (200 runs alone
# and 300 beside a neighbour, of about 5 s); ROUNDS=n for fewer than 10.
#
#   experiments/interference/run.sh
. "$(dirname "$0")/../lib.sh" "$@"
fresh "$folder/alone.json" "$folder/scenario.json"
scripts/setup.sh build test >&2
scenario experiments/interference/alone.toml ${ROUNDS:+--rounds "$ROUNDS"}
scenario experiments/interference/scenario.toml ${ROUNDS:+--rounds "$ROUNDS"}
experiments/interference/figures.sh "$folder/alone.json" "$folder/scenario.json" | tee "$folder/figures.txt"
