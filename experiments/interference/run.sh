#!/usr/bin/env bash
# Figures 1 and 2: experiments/interference/run.sh. About 15 minutes; ROUNDS=n for fewer than 10.
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
scenario experiments/interference/scenario.toml ${ROUNDS:+--rounds "$ROUNDS"}
