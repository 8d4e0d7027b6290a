#!/usr/bin/env bash
# Runs a command of the README in a bare Debian 12 root, where nothing is installed that this machine has by chance.
#
#   scripts/fresh.sh [COMMAND...]      default: make demo
#
# The root is what debootstrap calls minbase, plus make, git and certificates. It is made once (a minute or two) and
# kept in target/fresh. Each run gets a copy of it with a clone of HEAD, and this machine's Rust toolchain, /proc, /sys
# and /dev. Ends with the command's status, or with 77 where no root can be made: without root privileges, or without an
# archive of Debian 12.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ $# -gt 0 ]] || set -- make demo
say() { printf 'fresh: %s\n' "$*" >&2; }
cannot() { say "not tried: $*"; exit 77; }

[[ $(id -u) -eq 0 ]] || cannot "making a Debian root takes root privileges"
unshare --mount true 2>/dev/null || cannot "no mount namespace can be made here"
at=${CARGO_TARGET_DIR:-$repo/target}/fresh
base=$at/base
mkdir -p "$at"
at=$(cd "$at" && pwd -P)
base=$at/base
if [[ ! -e $base/.done ]]; then
    if ! command -v debootstrap >/dev/null; then
        command -v apt-get >/dev/null || cannot "debootstrap is missing"
        { apt-get -q update && apt-get -q install -y --no-install-recommends debootstrap; } >"$at/debootstrap.log" 2>&1 </dev/null ||
            cannot "debootstrap could not be installed: $at/debootstrap.log says why"
    fi
    # shellcheck disable=SC2016 # a format of apt's
    mirror=$({ apt-get indextargets --format '$(SITE)' 'Codename: bookworm' 2>/dev/null || true; } | head -n 1)
    mirror=${mirror:-http://deb.debian.org/debian}
    say "making a bare Debian 12 root from $mirror"
    rm -rf --one-file-system "$base"
    debootstrap --variant=minbase --include=make,git,ca-certificates bookworm "$base" "$mirror" >"$at/debootstrap.log" 2>&1 ||
        cannot "debootstrap failed: $at/debootstrap.log says why"
    cp /etc/resolv.conf "$base/etc/" 2>/dev/null || true
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$base/etc/hosts"
    # However this machine reaches the archive.
    find /etc/apt/apt.conf.d -name '*proxy*' -exec cp {} "$base/etc/apt/apt.conf.d/" \; 2>/dev/null || true
    touch "$base/.done"
fi

root=$(mktemp -d "$at/root.XXXXXX")
# What still runs in the root is ended, by pid, before the root goes.
# shellcheck disable=SC2317 # the trap calls it
finish() {
    local process
    for process in /proc/[0-9]*; do
        if [[ $(readlink "$process/root" 2>/dev/null) == "$root" ]]; then
            say "still running: $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)(pid ${process#/proc/}); it is ended"
            kill -9 "${process#/proc/}" 2>/dev/null || true
        fi
    done
    rm -rf --one-file-system "$root"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[[ -z $(git -C "$repo" status --porcelain 2>/dev/null) ]] || say "what is not committed is not part of it"
cp -a "$base/." "$root/"
git clone -q "$repo" "$root/gleaner"
home=${HOME:-/root}
status=0
# The mounts belong to the namespace, so they are gone with it.
# shellcheck disable=SC2016 # for the inner shell
unshare --mount bash -euo pipefail -c '
    root=$1 home=$2
    shift 2
    mount --make-rprivate /
    for folder in /proc /sys /dev "$home/.cargo" "$home/.rustup" "${CARGO_HOME:-}" "${RUSTUP_HOME:-}"; do
        [[ -n $folder && -d $folder ]] || continue
        mkdir -p "$root$folder"
        mount --rbind "$folder" "$root$folder"
    done
    exec chroot "$root" env -i HOME="$home" TERM=dumb \
        PATH="$home/.cargo/bin:${CARGO_HOME:-$home/.cargo}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        ${CARGO_HOME:+CARGO_HOME="$CARGO_HOME"} ${RUSTUP_HOME:+RUSTUP_HOME="$RUSTUP_HOME"} \
        sh -c "cd /gleaner && exec \"\$@\"" sh "$@"
' bash "$root" "$home" "$@" || status=$?
exit "$status"
