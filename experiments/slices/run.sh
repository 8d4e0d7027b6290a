#!/usr/bin/env bash
# Scenarios of guests under different slices: experiments/slices/run.sh [locks|pairs]...   (default: both, one after the other)
#
# locks: Table I, about half an hour. pairs: Figures 5 and 6, some hours; fewer rounds with ROUNDS=n. Takes root, and a quiet machine.
for which in "$@"; do
    case $which in locks | pairs) ;; *) echo "usage: $0 [locks|pairs]..." >&2; exit 2 ;; esac
done
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
[[ $# -gt 0 ]] || set -- locks pairs
for which in "$@"; do
    scenario "experiments/slices/$which.toml" ${ROUNDS:+--rounds "$ROUNDS"}
done
