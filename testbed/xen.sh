#!/usr/bin/env bash
# Boots a real Xen 4.17 with Debian's kernel as its dom0 in QEMU, runs one script in dom0, and ends with that script's
# exit status.
#
#   testbed/xen.sh [OPTIONS] [SCRIPT]
#
#   SCRIPT             default testbed/xen-check.sh; as with guest.sh busybox's shell and tools are there, and checks.sh
#   --binary FILE      put FILE into dom0's PATH as `gleaner`
#   --sched NAME       Xen's scheduler: credit (default) or credit2
#   --xen FILE         another hypervisor than Debian's
#   --timeout SECONDS  default 480: then it is killed, however it is
#
# stdout: what SCRIPT wrote. Exit status: SCRIPT's own; 77 where the packages cannot be had; 124 if the time was up; 125
# if Xen or dom0 did not come up (the console is printed to stderr). Nothing is installed: packages are unpacked below
# target/testbed/xen.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(realpath -m "${CARGO_TARGET_DIR:-$here/../target}/testbed/xen")
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
say() { printf 'xen: %s\n' "$*" >&2; }
usage() { say "$*"; sed -n '4,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 125; }

binary="" sched=credit hypervisor="" timeout=480 script=""
while [[ $# -gt 0 ]]; do
    case $1 in
        --binary | --sched | --xen | --timeout)
            [[ $# -ge 2 ]] || usage "$1 needs a value"
            case $1 in
                --binary) binary=$2 ;;
                --sched) sched=$2 ;;
                --xen) hypervisor=$2 ;;
                --timeout) timeout=$2 ;;
            esac
            shift 2
            ;;
        -*) usage "unknown option $1" ;;
        *) [[ -z $script ]] || usage "one SCRIPT, not '$script' and '$1'"; script=$1; shift ;;
    esac
done
script=${script:-$here/xen-check.sh}
[[ $timeout =~ ^[1-9][0-9]*$ ]] || usage "'$timeout' is not a whole number above 0"
for file in "$script" ${binary:+"$binary"} ${hypervisor:+"$hypervisor"}; do
    [[ -r $file ]] || usage "$file: no such file, or not readable"
done
for tool in qemu-system-x86_64 setpriv timeout dpkg-deb ldd strip; do
    command -v "$tool" >/dev/null || { say "$tool is missing: run scripts/setup.sh test"; exit 125; }
done

# --- packages --------------------------------------------------------------------------------------------------------
packages=(xen-hypervisor-4.17-amd64 xen-utils-4.17 xen-utils-common libxencall1 libxendevicemodel1 libxenevtchn1 libxenforeignmemory1
    libxengnttab1 libxenhypfs1 libxenmisc4.17 libxenstore4 libxentoolcore1 libxentoollog1 libyajl2)
private_apt() { # TOOL ARGUMENTS: with lists, cache and sources of our own, as fetch-kernel.sh does it
    local tool=$1 dir=$cache/apt
    shift
    "$tool" -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$dir/lists" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$dir/cache" -o Acquire::Languages=none -o APT::Architecture=amd64 \
        -o APT::Architectures=amd64 -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Retries=3 \
        -o Acquire::http::Timeout=30 "$@"
}
fetch() { # FOLDER: what is needed of the packages, unpacked
    local folder=$1 dir=$cache/apt uri kernel
    uri=$("$here/fetch-kernel.sh" --archive) || return 1
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$folder/debs" "$folder/root"
    echo "deb [signed-by=$keyring] $uri bookworm main" >"$dir/sources.list"
    say "downloading Xen 4.17 and Debian 12's kernel (80 MB)"
    private_apt apt-get update -o APT::Update::Error-Mode=any >"$dir/update.log" 2>&1 || { tail -n 3 "$dir/update.log" >&2; return 1; }
    # The standard kernel: the cloud one has no privcmd.
    kernel=$(private_apt apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    [[ -n $kernel ]] || return 1
    (cd "$folder/debs" && private_apt apt-get download "${packages[@]}" "$kernel" >"$dir/download.log" 2>&1) ||
        { tail -n 3 "$dir/download.log" >&2; return 1; }
    for deb in "$folder"/debs/*.deb; do
        case $deb in
            */linux-image-*)
                dpkg-deb --fsys-tarfile "$deb" |
                    tar -x -C "$folder/root" --wildcards './boot/vmlinuz*' '*/drivers/xen/*'
                ;;
            *) dpkg-deb -x "$deb" "$folder/root" ;;
        esac || return 1
    done
    rm -rf "$folder/debs"
    gzip -dc "$folder"/root/boot/xen-4.17-amd64.gz >"$folder/xen.elf"
}
mkdir -p "$cache"
# Of two that come at the same time one fetches.
exec 9>"$cache/lock"
flock 9
if [[ ! -s $cache/packages/xen.elf ]]; then
    rm -rf "$cache/packages.partial"
    fetch "$cache/packages.partial" || { say "skipped: the packages cannot be had"; exit 77; }
    rm -rf "$cache/packages"
    mv "$cache/packages.partial" "$cache/packages"
fi
flock -u 9
root=$cache/packages/root

# --- dom0's initramfs ------------------------------------------------------------------------------------------------
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-xen.XXXXXX")
qemu_pid=""
cleanup() {
    [[ -z $qemu_pid ]] || kill -TERM "$qemu_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

arguments=(--script "$script" --file "$here/xen-up.sh:/xen-up.sh" --file "$root/etc/xen/xl.conf:/etc/xen/xl.conf")
# Without its debugging information: dom0 unpacks it into 512 MiB, from what QEMU copies byte by byte.
[[ -z $binary ]] || { strip -o "$work/gleaner" "$binary" && arguments+=(--binary "$work/gleaner"); } || exit 125
programs=()
for program in xl xenstored xen-init-dom0; do
    programs+=("$root/usr/lib/xen-4.17/bin/$program")
    arguments+=(--file "$root/usr/lib/xen-4.17/bin/$program:/bin/$program")
done
# Xen's own libraries are the unpacked ones, the rest (libc, zlib, ...) this machine's.
libraries=$(LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu ldd "${programs[@]}")
if grep 'not found' <<<"$libraries" >&2; then
    say "skipped: this machine lacks libraries that Xen's tools need (is it Debian 12 or newer?)"
    exit 77
fi
while read -r library; do
    case $library in
        /lib64/*) arguments+=(--file "$library:$library") ;;
        *) arguments+=(--file "$library:/lib/x86_64-linux-gnu/${library##*/}") ;;
    esac
done < <(awk '/=> \// { print $3 } /^\t\/lib64/ { print $1 }' <<<"$libraries" | sort -u)
for module in "$root"/lib/modules/*/kernel/drivers/xen/{xen-privcmd.ko,xen-evtchn.ko,xen-gntdev.ko,xenfs/xenfs.ko}; do
    arguments+=(--module "$module")
done
"$here/initramfs.sh" "${arguments[@]}" "$work/initramfs" || exit 125
case $hypervisor in
    "") hypervisor=$cache/packages/xen.elf ;;
    *.gz) gzip -dc "$hypervisor" >"$work/xen.elf"; hypervisor=$work/xen.elf ;;
esac

# --- the machine -----------------------------------------------------------------------------------------------------
# The plain CPU model: richer ones crash dom0 under emulation. com1 without an interrupt (polled): dom0's ttyS2 shares
# it.
kernel=$(echo "$root"/boot/vmlinuz-*)
setpriv --pdeathsig TERM timeout --kill-after=5 "$timeout" setpriv --pdeathsig KILL \
    qemu-system-x86_64 -name gleaner-xen,debug-threads=on -accel tcg,thread=multi -cpu qemu64,+x2apic -smp 2 -m 1024 \
    -nodefaults -display none -monitor none -no-reboot \
    -serial "file:$work/console.log" -serial "file:$work/output.log" -serial "file:$work/status.log" \
    -kernel "$hypervisor" -initrd "${kernel//,/,,} console=hvc0 quiet panic=-1,${work//,/,,}/initramfs" \
    -append "dom0_mem=512M com1=115200,8n1,0x3f8,0 console=com1 sched=$sched" </dev/null >"$work/qemu.log" 2>&1 &
qemu_pid=$!
ended=0
wait "$qemu_pid" || ended=$?
qemu_pid=""

cat "$work/output.log" 2>/dev/null || true
if [[ -s $work/status.log && $(<"$work/status.log") =~ ^exit\ ([0-9]+) ]]; then
    exit "${BASH_REMATCH[1]}"
fi
grep -v 'TCG doesn.t support requested feature' "$work/qemu.log" >&2 || true
say "the console's last 100 lines:"
tail -n 100 "$work/console.log" 2>/dev/null | tr -d '\r' >&2 || true
[[ $ended -ne 124 && $ended -ne 137 ]] || { say "killed: not done within $timeout s"; exit 124; }
say "Xen ended without an exit status (QEMU's own: $ended): a panic, or no boot"
exit 125
