#!/usr/bin/env bash
# What users have: experiments/rivals/run.sh. About ten minutes; ROUNDS=n for fewer than 10.
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
scenario experiments/rivals/scenario.toml ${ROUNDS:+--rounds "$ROUNDS"}
