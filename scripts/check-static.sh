#!/usr/bin/env bash
# Fails unless the given program is one static file: no interpreter, no shared library, so that it runs in a guest that
# has nothing installed.
set -euo pipefail

binary=${1:?usage: scripts/check-static.sh BINARY}
[[ -f $binary ]] || { echo "$binary: no such file; build it first (make build)" >&2; exit 1; }

dynamic=$(LC_ALL=C readelf --wide --program-headers --dynamic "$binary" | grep -E 'INTERP|\(NEEDED\)' || true)
if [[ -n $dynamic ]]; then
    printf '%s is not static:\n%s\n' "$binary" "$dynamic" >&2
    echo "is crt-static set for this target in .cargo/config.toml, and was --target given?" >&2
    exit 1
fi
printf '%s: static, %s bytes\n' "$binary" "$(stat -L -c %s "$binary")"
