#!/usr/bin/env bash
# Installs a package into a throw-away root, upgrades it by itself, removes and purges it; fails where something is
# left.
#
#   scripts/check-deb.sh PACKAGE.deb
set -euo pipefail

package=$(readlink -f "$1")
# The package's scripts run here, not in the root, and would act on this machine's own services.
[[ ! -d /run/systemd/system ]] || { echo "check-deb: not checked: systemd runs here"; exit 0; }
root=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-deb.XXXXXX")
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/var/lib/dpkg/{info,updates}
touch "$root"/var/lib/dpkg/{status,available}
in_root() { dpkg --root="$root" --force-script-chrootless --force-not-root --log=/dev/null "$@" >/dev/null; }
files() { find "$root" \( -type f -o -type l \) ! -path "$root/var/lib/dpkg/*"; }
complain() { printf 'check-deb: %s\n' "$*" >&2; exit 1; }

in_root --install "$package"
for file in usr/bin/gleaner etc/gleaner/gleaner.toml usr/lib/systemd/system/gleaner.service usr/share/man/man1/gleaner.1.gz \
    usr/share/doc/gleaner/gleaner.cdx.json usr/share/doc/gleaner/schemas/gleaner.run.1.json usr/share/doc/gleaner/prometheus.rules.yml; do
    [[ -e $root/$file ]] || complain "/$file is not installed"
done
"$root/usr/bin/gleaner" config check "$root/etc/gleaner/gleaner.toml" >/dev/null || complain "its configuration is wrong"
echo "# the administrator's" >>"$root/etc/gleaner/gleaner.toml"
in_root --install "$package"
grep -q administrator "$root/etc/gleaner/gleaner.toml" || complain "an upgrade changed the configuration"
in_root --remove gleaner
[[ -e $root/etc/gleaner/gleaner.toml && ! -e $root/usr/bin/gleaner ]] || complain "removed is not as it should be"
in_root --purge gleaner 2>/dev/null
left=$(files)
[[ -z $left ]] || complain "purged, and left: $left"
echo "${package##*/}: installed, upgraded, removed and purged; nothing is left"
