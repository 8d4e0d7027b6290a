#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demonstration need, and nothing else.
# Fast when all is there: apt is asked only for what is missing. A Rust toolchain is the caller's own affair.
#
#   scripts/setup.sh [build] [demo] [test] [bed] [bench] [experiments]      default: build
#   scripts/setup.sh --list GROUP...      only prints the packages
#
# Services that come with a package are not started. What scripts call and what is installed for them is compared by
# scripts/check-commands.sh; `make fresh` tries the whole in a bare Debian root.
set -euo pipefail

# What each group is for:
#   build  clang compiles the BPF program; libelf and zlib are libbpf's; the autotools build the copy of libelf that
#          libbpf-sys carries, where Debian's static one is not picked up; binutils (readelf) checks the result.
#   test   guests: an emulator, a shell for them, and a way to pack both. jq reads their JSON.
#          chromium reads the pages that gleaner report makes. bubblewrap
#          is a container for the daemon. tmux is the terminal of gleaner top. prometheus brings promtool, which
#          checks the alert rules. python3
#          is a program with many threads, and checks pages. xz-utils and zstd unpack kernel modules.
#   bed    the test bed's Debian image: what builds it, and what unpacks kernel modules.
#   bench  what the benchmarks manage.
#   demo   real programs to manage. redis-tools has Redis' server under another name. mariadb-server-core has the
#          database alone; mariadb-install-db calls my_print_defaults, which mariadb-client-core has. python3-minimal
#          would lack multiprocessing.
#   experiments  servers and loads.
declare -A packages=(
    [build]="make gcc libc6-dev linux-libc-dev binutils clang llvm pkg-config libelf-dev zlib1g-dev
             autoconf automake autopoint gettext flex bison gawk libtool"
    [test]="qemu-system-x86 busybox-static cpio jq util-linux chromium bubblewrap tmux
            prometheus python3 xz-utils zstd"
    [bed]="debootstrap e2fsprogs xz-utils zstd util-linux"
    [experiments]="sysbench mariadb-server redis-server jq stress-ng iperf3
                   gcc zlib1g-dev libssl-dev linux-perf"
    [bench]="sysbench"
    [demo]="pbzip2 curl jq tar bsdextrautils util-linux redis-tools mariadb-server-core
            mariadb-client-core sysbench python3"
)

list=no
if [[ ${1:-} == --list ]]; then
    list=yes
    shift
fi

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[[ $# -gt 0 ]] || set -- build
wanted=()
for group in "$@"; do
    case $group in
        build | test | bed | bench | demo | experiments)
            read -r -d '' -a names <<<"${packages[$group]}" || true
            wanted+=("${names[@]}") ;;
        *) printf "setup: '%s' is no group; use build, demo, test, bed, bench or experiments\n" "$group" >&2; exit 2 ;;
    esac
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
if [[ $list == yes ]]; then
    printf '%s\n' "${wanted[@]}"
    exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian machine, so nothing is installed here; going on in the hope that these are there: ${wanted[*]}"
    exit 0
fi

list_missing() {
    # dpkg-query exits 1 when it does not know a name; that is an answer, not a failure.
    comm -23 <(printf '%s\n' "${wanted[@]}") \
        <({ dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null || true; } |
            sed -n 's/^.i  *//p' | sort -u)
}

mapfile -t missing < <(list_missing)
if [[ ${#missing[@]} -eq 0 ]]; then
    say "$*: all ${#wanted[@]} packages are there"
    exit 0
fi

if [[ $(id -u) -eq 0 ]]; then
    as_root=(env)
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    as_root=(sudo env)
else
    fail "these packages are missing, and installing them takes root (or sudo): ${missing[*]}
setup: run as root: apt-get install --no-install-recommends ${missing[*]}"
fi

say "installing ${missing[*]}"
# deb-systemd-invoke and invoke-rc.d ask this file whether they may start a service. One that is there stays as it is.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    allow_services() { "${as_root[@]}" rm -f "$policy"; }
    trap allow_services EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" sh -c "cat >$policy && chmod 755 $policy"
fi
apt() { "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }
# A third party's source that does not answer makes update fail, and does not matter if Debian's own did.
apt update || say "apt-get update reported a problem; trying the lists there are"
apt install -y --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install all of: ${missing[*]}
setup: see its messages above; a machine without a network needs these packages beforehand"

# Its service is not wanted at the next boot, either.
if [[ " ${missing[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
    "${as_root[@]}" systemctl --quiet disable prometheus.service || say "prometheus.service could not be disabled"
fi

mapfile -t missing < <(list_missing)
[[ ${#missing[@]} -eq 0 ]] || fail "apt-get reported success, yet these are still missing: ${missing[*]}"
say "$*: done"
