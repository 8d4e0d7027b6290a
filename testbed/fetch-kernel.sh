#!/usr/bin/env bash
# Finds Debian's own kernels for the guests of the test bed, downloads what is not cached, and prints their paths.
#
#   testbed/fetch-kernel.sh [--refresh] [6.1|6.12|6.18|new|newest|all]...     default: 6.1
#   testbed/fetch-kernel.sh --modules 6.1|6.12|6.18|new disk|net|haltpoll
#
#   6.1    Debian 12's kernel: always to be had, so failing to get it is an error
#   6.12   the newest 6.12 of bookworm-backports
#   6.18   the newest 6.18 of trixie-backports
#   new    the newest kernel of trixie-backports, if it is newer than 6.18
#   newest new, and where that cannot be had 6.18
#
# stdout: one line `SERIES PATH` for each kernel that is there. stderr: what is done, and `skipped: SERIES: why` for
# each that cannot be had, for the versions in backports come and go. A cached kernel needs no network. Only vmlinuz and
# a few modules are unpacked: nothing is installed, /boot and the machine's apt lists stay as they are.
#
# --modules prints the files (.ko, not compressed) that a guest of that series must insert, in that order, to have
#   disk      a virtio disk with ext4 on it
#   net       a virtio network card
#   haltpoll  the haltpoll idle driver, with cpuidle_haltpoll.force=1 on the command line
# and nothing for what is built in. Exit status 1 where that kernel cannot have it: 6.1 has no haltpoll governor. Driver
# and governor stay away where they see no KVM, whatever is forced: so in every guest under QEMU's emulation
# (/sys/devices/system/cpu/cpuidle/current_driver tells). If the modules of a kernel that was cached without them are no
# longer to be had, the series moves to its newest kernel: so ask for modules before asking for the kernel's path.
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

# Downloads a package into $scratch and prints the file's path.
download() { # SUITE PACKAGE VERSION
    say "downloading $2 $3 from $1"
    mkdir -p "$scratch/$2"
    (cd "$scratch/$2" && private_apt "$1" apt-get download "$2=$3" >&2) && ls "$scratch/$2"/*.deb
}

# Prints nothing, leaves $kernels/SERIES as a link to the kernel. Returns 1 with a message when it cannot be had.
fetch() { # SERIES SUITE VERSION PACKAGE
    local series=$1 suite=$2 version=$3 image=$4 deb vmlinuz=$kernels/vmlinuz-$3
    mkdir -p "$kernels"
    if [[ ! -s $vmlinuz || ! -d $kernels/modules-$version ]] || ! asked "$kernels/modules-$version" "${purpose_wanted:-disk}"; then
        scratch=$(mktemp -d "$cache/download.XXXXXX")
        # One file is wanted of a package of hundreds: boot/vmlinuz-VERSION, or usr/lib/modules/VERSION/vmlinuz of late.
        if deb=$(download "$suite" "$image" "$version") &&
            dpkg-deb --fsys-tarfile "$deb" | tar -x --to-stdout --wildcards --no-anchored 'vmlinuz*' >"$vmlinuz.partial"; then
            mv "$vmlinuz.partial" "$vmlinuz"
            # A kernel without modules still boots.
            fetch_modules "$suite" "$version" "$image" "$deb" || say "no modules for $image $version"
        fi
        rm -rf "$scratch" "$kernels"/*.partial
        [[ -s $vmlinuz ]] || { say "$image $version could not be downloaded or unpacked"; return 1; }
    fi
    ln -sfn "vmlinuz-$version" "$kernels/$series"
}

# --- modules: $kernels/modules-VERSION holds them, and one list for each purpose
# -----------------------------------------
declare -A needed_for=([disk]="virtio_pci virtio_blk ext4" [net]="virtio_pci virtio_net" [haltpoll]="cpuidle_haltpoll")

# A folder of before a purpose was thought of has no list for it, and says nothing of whether the kernel can have it.
asked() { # FOLDER PURPOSE
    grep -qsx "$2" "$1/asked" || [[ -e $1/$2 ]]
}

# The module's own section .modinfo names what it depends on; depmod knows no more, and is not on every machine.
insert_order() { # FOLDER NAME...: appends to the array `order`; uses path_of, built_in and seen
    local folder=$1 name dependencies
    shift
    for name in "$@"; do
        [[ -z ${seen[$name]:-} && -z ${built_in[$name]:-} ]] || continue
        seen[$name]=yes
        [[ -n ${path_of[$name]:-} ]] || { say "the package has no module $name, and the kernel none built in"; return 1; }
        case ${path_of[$name]} in
            *.xz) xz -dc "${path_of[$name]}" >"$folder/$name.ko" ;;
            *.zst) zstd -qdc "${path_of[$name]}" >"$folder/$name.ko" ;;
            *) cp "${path_of[$name]}" "$folder/$name.ko" ;;
        esac || { say "${path_of[$name]} could not be unpacked (packages xz-utils, zstd)"; return 1; }
        dependencies=$(tr '\0' '\n' <"$folder/$name.ko" | sed -n 's/^depends=//p' | tr ',-' ' _')
        # shellcheck disable=SC2086
        insert_order "$folder" $dependencies || return 1
        order+=("$name.ko")
    done
}

fetch_modules() { # SUITE VERSION PACKAGE DEB
    local suite=$1 version=$2 image=$3 path name purpose folder=$kernels/modules-$2.partial
    local -a debs=("$4")
    local -A path_of=() built_in=() seen=()
    local -a order=()
    # Since 6.19 they have a package of their own, and the list of what is built in has another.
    if [[ $image == linux-binary-* ]]; then
        debs=()
        for name in linux-base linux-modules; do
            debs+=("$(download "$suite" "$name-${image#linux-binary-}" "$version")") || return 1
        done
    fi
    mkdir -p "$scratch/tree"
    rm -rf "$folder" && mkdir -p "$folder"
    for path in "${debs[@]}"; do
        # tar is not content with a pattern that matches nothing.
        dpkg-deb --fsys-tarfile "$path" |
            tar -x -C "$scratch/tree" --wildcards --no-anchored '*.ko' '*.ko.xz' '*.ko.zst' 'modules.builtin*' 2>"$scratch/tar.log" || true
    done
    while read -r path; do
        name=$(basename "$path")
        path_of[$(tr - _ <<<"${name%%.ko*}")]=$path
    done < <(find "$scratch/tree" -name '*.ko*')
    while read -r path; do
        name=$(basename "$path" .ko)
        built_in[${name//-/_}]=yes
    done < <(find "$scratch/tree" -name modules.builtin -exec cat {} +)
    [[ ${#built_in[@]} -gt 0 ]] || { say "no modules.builtin in ${debs[*]}"; return 1; }
    for purpose in "${!needed_for[@]}"; do
        seen=() order=()
        # shellcheck disable=SC2086
        insert_order "$folder" ${needed_for[$purpose]} || continue
        printf '%s\n' ${order[@]+"${order[@]}"} >"$folder/$purpose"
    done
    printf '%s\n' "${!needed_for[@]}" >"$folder/asked"
    # The driver without its governor loads, and polls nothing. The governor is never a module.
    find "$scratch/tree" -name modules.builtin.modinfo -exec grep -qa 'parm.*guest_halt_poll_ns' {} + || rm -f "$folder/haltpoll"
    rm -rf "$kernels/modules-$version"
    mv "$folder" "$kernels/modules-$version"
}

# The newest of the series, or the cached one once more where its modules are missing and the archive still has it.
fetch_series() { # SERIES SUITE CACHED_VERSION
    local found again
    found=$(resolve "$2" "$1") || { say "the package lists of $2 could not be had"; return 1; }
    [[ -n $found ]] || { say "$2 has no cloud kernel of that series now"; return 1; }
    again=$(awk -v version="$3" '$1 == version { print; exit }' "$apt_dir/$2/kernels")
    # shellcheck disable=SC2086
    fetch "$1" "$2" ${again:-$found}
}

cached_version() { # SERIES
    local link=$kernels/$1
    [[ ! -s $link ]] || basename "$(readlink "$link")" | sed 's/^vmlinuz-//'
}

print_modules() { # SERIES PURPOSE
    local series=$1 purpose=$2 folder version
    version=$(cached_version "$series")
    if [[ -z $version ]] || ! asked "$kernels/modules-$version" "$purpose"; then
        purpose_wanted=$purpose fetch_series "$series" "${suite_of[$series]}" "$version" || return 1
        version=$(cached_version "$series")
    fi
    folder=$kernels/modules-$version
    [[ -d $folder ]] || { say "$series: its modules are not to be had"; return 1; }
    [[ -e $folder/$purpose ]] || { say "$series: this kernel cannot have $purpose"; return 1; }
    sed "/./s|^|$folder/|;/^\$/d" "$folder/$purpose"
}

declare -A suite_of=([6.1]=bookworm [6.12]=bookworm-backports [6.18]=trixie-backports [new]=trixie-backports)
mkdir -p "$cache"
cache=$(realpath "$cache") kernels=$cache/kernels apt_dir=$cache/apt

if [[ ${1:-} == --modules ]]; then
    [[ $# -eq 3 && -n ${suite_of[$2]:-} && -n ${needed_for[$3]:-} ]] ||
        { say "--modules takes one of 6.1, 6.12, 6.18, new and one of disk, net, haltpoll"; exit 2; }
    print_modules "$2" "$3"
    exit
fi

# For image.sh, which builds from the same archive.
if [[ ${1:-} == --archive ]]; then
    archive_uri
    exit
fi

refresh=no
wanted=()
for argument in "$@"; do
    case $argument in
        --refresh) refresh=yes ;;
        6.1 | 6.12 | 6.18 | new | newest) wanted+=("$argument") ;;
        all) wanted+=(6.1 6.12 6.18 new) ;;
        *) say "'$argument' is neither a series (6.1, 6.12, 6.18, new, newest, all) nor --refresh"; exit 2 ;;
    esac
done
[[ ${#wanted[@]} -gt 0 ]] || wanted=(6.1)

# Prints a series' line, having fetched what is not cached; 1 where there is none, with the reason said.
offer() { # SERIES
    local series=$1 link=$kernels/$1
    if [[ ! -s $link || $refresh == yes ]] && ! fetch_series "$series" "${suite_of[$series]}" ""; then
        [[ -s $link ]] || return 1
        say "$series: using the cached $(readlink "$link")"
    fi
    printf '%s %s\n' "$series" "$(readlink -f "$link")"
}

status=0
for series in "${wanted[@]}"; do
    case $series in
        6.1) offer 6.1 || { say "6.1: not to be had; the guest tests cannot run without it"; status=1; } ;;
        newest) offer new || { say "skipped: new: see above; 6.18 stands in for it"; offer 6.18; } || say "skipped: 6.18: see above" ;;
        *) offer "$series" || say "skipped: $series: see above" ;;
    esac
done
exit "$status"
