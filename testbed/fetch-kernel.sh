#!/usr/bin/env bash
# Finds Debian's own kernels for the guests of the test bed, downloads what is not cached, and prints their paths.
#
#   testbed/fetch-kernel.sh [--refresh] [6.1|6.12|6.18|new|all]...     default: 6.1
#
#   6.1    Debian 12's kernel: always to be had, so failing to get it is an error
#   6.12   the newest 6.12 of bookworm-backports
#   6.18   the newest 6.18 of trixie-backports
#   new    the newest kernel of trixie-backports, if it is newer than 6.18
#
# stdout: one line `SERIES PATH` for each kernel that is there. stderr: what is done, and `skipped: SERIES: why` for each
# that cannot be had, for the versions in backports come and go. A cached kernel needs no network.
# Only vmlinuz is unpacked: nothing is installed, /boot and the machine's apt lists stay as they are.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${CARGO_TARGET_DIR:-$root/target}/testbed
kernels=$cache/kernels
apt_dir=$cache/apt
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say() { printf 'fetch-kernel: %s\n' "$*" >&2; }

# The archive's address comes from the machine's own apt configuration: a mirror that works here is already named there.
archive_uri() {
    local ID="" VERSION_CODENAME=""
    # shellcheck source=/dev/null
    . /etc/os-release
    [[ $ID == debian ]] || { say "this is not a Debian machine (ID=$ID)"; return 1; }
    [[ -r $keyring ]] || { say "$keyring is missing (package debian-archive-keyring)"; return 1; }
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v release="$VERSION_CODENAME" '$2 == release && $3 == "main" { print $1; found = 1; exit } END { exit !found }' ||
        { say "apt knows no source for $VERSION_CODENAME main (see /etc/apt/sources.list)"; return 1; }
}

# apt with lists, cache and sources of its own; arguments after the suite are apt's.
private_apt() {
    local suite=$1 tool=$2
    shift 2
    local dir=$apt_dir/$suite
    "$tool" -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$dir/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$dir/cache" -o Acquire::Languages=none \
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= -o Debug::NoLocking=1 \
        -o Acquire::Retries=3 -o Acquire::http::Timeout=30 "$@"
}

# The newest version of the series, as `VERSION PACKAGE`; nothing when there is none. Until 6.18 vmlinuz is in
# linux-image-*; since 6.19 that is an empty package beside linux-binary-*: the large one of the two is the right one.
resolve() {
    local suite=$1 series=$2 dir=$apt_dir/$1 uri version image
    uri=$(archive_uri) || return 1
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    echo "deb [signed-by=$keyring] $uri $suite main" >"$dir/sources.list"
    private_apt "$suite" apt-get update -o APT::Update::Error-Mode=any >"$dir/update.log" 2>&1 ||
        { tail -n 3 "$dir/update.log" >&2; return 1; }
    private_apt "$suite" apt-cache dumpavail | awk '
        /^Package: / { package = $2 }
        /^Version: / { version = $2 }
        /^Size: / && $2 > 1000000 && package ~ /^linux-(image|binary)-[0-9].*-cloud-amd64$/ { print version, package }' |
        sort -V -r >"$dir/kernels"
    while read -r version image; do
        case $series in
            new) dpkg --compare-versions "$version" ge 6.19 || continue ;;
            *) [[ $version == "$series".* ]] || continue ;;
        esac
        echo "$version $image"
        break
    done <"$dir/kernels"
}

# Prints nothing, leaves $kernels/SERIES as a link to the kernel. Returns 1 with a message when it cannot be had.
fetch() {
    local series=$1 suite=$2 version image scratch vmlinuz
    local found
    found=$(resolve "$suite" "$series") || { say "the package lists of $suite could not be had"; return 1; }
    [[ -n $found ]] || { say "$suite has no cloud kernel of that series now"; return 1; }
    read -r version image <<<"$found"
    mkdir -p "$kernels"
    vmlinuz=$kernels/vmlinuz-$version
    if [[ ! -s $vmlinuz ]]; then
        say "downloading $image $version from $suite"
        scratch=$(mktemp -d "$cache/download.XXXXXX")
        # One file is wanted of a package of hundreds: boot/vmlinuz-VERSION, or usr/lib/modules/VERSION/vmlinuz of late.
        if (cd "$scratch" && private_apt "$suite" apt-get download "$image=$version" >&2) &&
            dpkg-deb --fsys-tarfile "$scratch"/*.deb |
            tar -x --to-stdout --wildcards --no-anchored 'vmlinuz*' >"$vmlinuz.partial"; then
            mv "$vmlinuz.partial" "$vmlinuz"
        fi
        rm -rf "$scratch"
        [[ -s $vmlinuz ]] || { say "$image $version could not be downloaded or unpacked"; return 1; }
    fi
    ln -sfn "vmlinuz-$version" "$kernels/$series"
}

refresh=no
wanted=()
for argument in "$@"; do
    case $argument in
        --refresh) refresh=yes ;;
        6.1 | 6.12 | 6.18 | new) wanted+=("$argument") ;;
        all) wanted+=(6.1 6.12 6.18 new) ;;
        *) say "'$argument' is neither a series (6.1, 6.12, 6.18, new, all) nor --refresh"; exit 2 ;;
    esac
done
[[ ${#wanted[@]} -gt 0 ]] || wanted=(6.1)

declare -A suite_of=([6.1]=bookworm [6.12]=bookworm-backports [6.18]=trixie-backports [new]=trixie-backports)
mkdir -p "$cache"
status=0
for series in "${wanted[@]}"; do
    link=$kernels/$series
    if [[ ! -s $link || $refresh == yes ]] && ! fetch "$series" "${suite_of[$series]}"; then
        if [[ -s $link ]]; then
            say "$series: using the cached $(readlink "$link")"
        elif [[ $series == 6.1 ]]; then
            say "6.1: not to be had; the guest tests cannot run without it"
            status=1
            continue
        else
            say "skipped: $series: see above"
            continue
        fi
    fi
    printf '%s %s\n' "$series" "$(readlink -f "$link")"
done
exit "$status"
