#!/usr/bin/env bash
# The package's life under a real systemd, in a guest of the test bed: installed, started, managing Redis, reloaded,
# killed, upgraded, removed and purged; the last line says whether anything failed or was left.
#
#   scripts/check-service.sh PACKAGE.deb [--keep DIR]       `make test-service` builds the package first
#
# Exit status: 0; 1 where a check failed; 3 where the guest's image cannot be had (see testbed/image.sh).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ $# -ge 1 ]] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
package=$(readlink -f "$1")
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-service.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The same with a higher version.
dpkg-deb --raw-extract "$package" "$work/new"
sed -i 's/^Version: .*/&+next/' "$work/new/DEBIAN/control"
dpkg-deb --root-owner-group --build -Znone "$work/new" "$work/new.deb" >/dev/null

"$root/testbed/fetch-kernel.sh" --modules 6.1 disk >/dev/null
read -r _ kernel < <("$root/testbed/fetch-kernel.sh" 6.1)
image=$("$root/testbed/image.sh") || exit 3
status=0
"$root/testbed/guest.sh" --image "$image" --systemd --memory 768 --timeout 400 "$@" \
    --file "$package:/testbed/old.deb" --file "$work/new.deb:/testbed/new.deb" \
    "$kernel" "$root/testbed/service.sh" 2 | tee "$work/output" || status=$?
passed=$(grep -c '^ok: ' "$work/output") || true
failed=$(grep -c '^FAILED: ' "$work/output") || true
echo "check-service: $passed checks passed, $failed failed; the guest ended with $status"
[[ $status -eq 0 && $passed -gt 0 ]] || exit 1
