#!/usr/bin/env bash
# Builds what is needed and starts the test bed's runner: `testbed/run.sh run experiments/smoke/scenario.toml`.
# All arguments are the runner's own; `testbed/run.sh --help` lists them, docs/research/testbed.md explains scenarios.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$root/target}
(cd "$root" && cargo build --quiet --release --locked --target "$host" --package gleaner-lab)
# The guests get the static binary that users run, as it is now.
if [[ ${1:-} == run && " $* " != *" --binary"* ]]; then
    make --no-print-directory -C "$root" build >&2
fi
exec "$target/$host/release/gleaner-lab" bed "$@"
