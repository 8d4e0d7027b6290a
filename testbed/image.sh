#!/usr/bin/env bash
# Builds a Debian 12 root image with real programs in it, for guests that busybox is not enough for, and prints its
# path.
#
#   testbed/image.sh [--rebuild]
#
# stdout: the image's path, target/testbed/image/debian.ext4 (sparse). It is built once, and again only when what goes
# into it changes (the stamp beside it). Exit status: 0; 3 when it cannot be had here and now, with a line `image:
# skipped: why` on stderr (no root, no archive, a sandbox that refuses mounts): a caller can go on without.
#
# The programs of this script's `programs` are there, no documents, no locales, and no service is ever started by a
# package. MariaDB has a small server configuration and an empty data folder whose `root` needs no password. ext4 is
# made from the folder by mke2fs: nothing is mounted, no loop device is needed. What was downloaded stays in
# target/testbed/image/debs: a build that was interrupted goes on from there.
#
# How to use it: testbed/guest.sh --image, or from a program of one's own, the disk and the modules described at the
# head of testbed/initramfs.sh. Any number of guests can use it at the same time, each with snapshot=on.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CARGO_TARGET_DIR:-$here/../target}/testbed/image
programs=(mariadb-server sysbench redis-server redis-tools pbzip2 pigz iperf3 procps systemd-sysv)
# What is written where beside the packages; part of the stamp, so a change here rebuilds too.
config='[mariadbd]
skip-networking
skip-name-resolve
performance-schema=0
innodb_buffer_pool_size=64M
innodb_log_file_size=32M
innodb_log_buffer_size=4M
innodb_use_native_aio=0
key_buffer_size=1M
aria_pagecache_buffer_size=1M
max_connections=200
'
suite=bookworm
layout=3

say() { printf 'image: %s\n' "$*" >&2; }
skip() { say "skipped: $*"; exit 3; }

# --- inside: as root of a private mount and process space, so that whatever becomes of this script leaves nothing
# behind --- $1: the folder of the build; $2: the archive.
build() {
    local dir=$1 uri=$2 root=$1/root
    mkdir -p "$dir/debs"
    if [[ ! -e $dir/bootstrapped ]]; then
        rm -rf "$root"
        say "debootstrap $suite from $uri"
        timeout 900 debootstrap --variant=minbase --cache-dir="$(realpath "$dir/debs")" "$suite" "$root" "$uri" >"$dir/build.log" 2>&1 ||
            { tail -n 5 "$dir/build.log" >&2; return 1; }
        touch "$dir/bootstrapped"
    fi
    # Asked before any service is started; and what nobody reads in a guest is not unpacked.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    printf 'path-exclude=/usr/share/%s/*\n' doc man info locale lintian >"$root/etc/dpkg/dpkg.cfg.d/small"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    mount -t proc proc "$root/proc"
    mkdir -p "$root/var/cache/apt/archives"
    mount --bind "$dir/debs" "$root/var/cache/apt/archives"
    say "installing ${programs[*]}"
    inside() {
        timeout 900 chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
            ${http_proxy:+http_proxy="$http_proxy"} "$@" </dev/null >>"$dir/build.log" 2>&1 ||
            { say "failed: $*"; tail -n 5 "$dir/build.log" >&2; return 1; }
    }
    inside dpkg --configure -a &&
        inside apt-get -q -o Acquire::Retries=3 -o Acquire::http::Timeout=30 update &&
        inside apt-get -q -y -o Acquire::Retries=3 -o Acquire::http::Timeout=30 --no-install-recommends install "${programs[@]}" ||
        return 1
    printf '%s' "$config" >"$root/etc/mysql/mariadb.conf.d/99-testbed.cnf"
    echo testbed >"$root/etc/hostname"
    printf '127.0.0.1 localhost testbed\n' >"$root/etc/hosts"
    # The package's own data folder has a log file of 96 MiB.
    rm -rf "$root/var/lib/mysql"
    inside mariadb-install-db --user=mysql --auth-root-authentication-method=normal --skip-test-db || return 1
    # debootstrap leaves some too. What stays mounted would go into the image, so a failure here ends the build.
    awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r umount || return 1

    rm -rf "$root"/usr/share/{doc,man,info,locale,lintian}/* "$root"/var/lib/apt/lists/* "$root"/var/cache/{apt/*.bin,apt/archives/*.deb,debconf/*} \
        "$root"/tmp/* "${root:?}"/dev/* "$root/etc/resolv.conf"
    # The folders stay: units of services expect theirs.
    find "$root/var/log" -type f -delete
    # A third more than there is, and room for a database.
    local mib
    mib=$(($(du -s --block-size=1M "$root" | cut -f1) * 4 / 3 + 384))
    say "ext4 of $mib MiB"
    rm -f "$dir/debian.ext4.partial"
    mke2fs -q -t ext4 -L testbed -m 0 -E root_owner=0:0 -d "$root" "$dir/debian.ext4.partial" "${mib}M" >>"$dir/build.log" 2>&1 ||
        { tail -n 5 "$dir/build.log" >&2; return 1; }
}
if [[ ${1:-} == --inside ]]; then
    build "$2" "$3"
    exit
fi

# --- outside ---------------------------------------------------------------------------------------------------------
rebuild=no
case ${1:-} in
    "") ;;
    --rebuild) rebuild=yes ;;
    *) say "'$1' is not --rebuild"; exit 2 ;;
esac
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
image=$cache/debian.ext4
stamp=$(printf '%s\n' "$suite" "$layout" "${programs[*]}" "$config" | sha256sum | cut -d' ' -f1)
# One build at a time; whoever waits finds it done.
exec 9>"$cache/lock"
flock -w 1800 9 || skip "another build has been running for half an hour"
if [[ $rebuild == yes || ! -s $image || $(cat "$cache/stamp" 2>/dev/null) != "$stamp" ]]; then
    [[ $(id -u) -eq 0 ]] || skip "debootstrap needs root (the image is used without it)"
    for tool in debootstrap mke2fs unshare setpriv; do
        command -v "$tool" >/dev/null || skip "$tool is missing: run scripts/setup.sh bed"
    done
    uri=$("$here/fetch-kernel.sh" --archive) || skip "no archive, see above"
    # In a container without these rights debootstrap fails late and in many words.
    unshare --mount --pid --fork --kill-child true 2>/dev/null || skip "this sandbox refuses mount name spaces"
    unshare --mount sh -c "mount -t tmpfs try '$cache' && mknod '$cache/null' c 1 3 && : >'$cache/null'" 2>/dev/null ||
        skip "this sandbox refuses mount or mknod, which debootstrap needs"
    # What is half-done of another list of programs is no start for this one.
    [[ $rebuild == no && $(cat "$cache/stamp.building" 2>/dev/null) == "$stamp" ]] || rm -rf "$cache/root" "$cache/bootstrapped"
    echo "$stamp" >"$cache/stamp.building"
    # All of it dies with this script, and the lock is let go only then: it is inherited.
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc -- "$here/image.sh" --inside "$cache" "$uri" ||
        skip "the build failed, see above and $cache/build.log"
    mv "$image.partial" "$image"
    echo "$stamp" >"$cache/stamp"
    rm -rf "$cache/root" "$cache/bootstrapped" "$cache/stamp.building"
    say "done: $(du --block-size=1M "$image" | cut -f1) MiB on disk"
fi
echo "$image"
