#!/usr/bin/env bash
# Boots a real multi-vCPU guest, runs one program in it, and ends with that program's exit status.
#
#   testbed/guest.sh [OPTIONS] KERNEL SCRIPT [VCPUS]
#
#   KERNEL             a vmlinuz (testbed/fetch-kernel.sh finds some)
#   SCRIPT             what to run in the guest, as root; a shell script gets busybox's shell and tools, and checks.sh
#                      at /checks.sh
#   VCPUS              default 4
#   --binary FILE      put FILE into the guest's PATH as `gleaner`
#   --file HOST:GUEST  put another file into the guest (may be repeated)
#   --image FILE       a Debian root image (testbed/image.sh makes one): on /debian in the guest, for `chroot /debian
#                      COMMAND`. The guest may write there, and FILE stays as it is. KERNEL must be one of
#                      fetch-kernel.sh, for its modules
#   --systemd          the image's systemd runs the guest, and SCRIPT as a unit of it, in Debian's own shell and tools;
#                      files that --file puts below /testbed are there, checks.sh and SCRIPT beside them
#   --memory MIB       default 512
#   --append WORDS     more words for the kernel's command line
#   --timeout SECONDS  default 120: then the guest is killed, however it is
#   --keep DIR         leave console.log, output.log and the initramfs in DIR
#
# stdout: what SCRIPT wrote to its stdout and stderr, whole, once the guest has ended. Exit status: SCRIPT's own;
# 124 if the time was up, 125 if the guest could not be started, panicked or ended without a word. In those two cases
# the guest's console is printed to stderr; where the time was up it says who waited where. RETRIES (default 3): boots
# after one that the emulator broke. STILL (default 60): seconds without a sign of life until it counts as broken.
# GLEANER_BOOTS: a file that gets a line for each such boot.
#
# The guest is QEMU's multi-threaded emulation: each vCPU is a thread that HLT puts to sleep and an IPI wakes, so what
# Gleaner does there is real, only slower. Inside are Debian's kernel, busybox, pure cgroup v2, and nothing else
# (initramfs.sh).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf 'guest: %s\n' "$*" >&2; }
usage() { say "$*"; sed -n '4,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 125; }
readable() { [[ -f $1 && -r $1 ]] || { say "$1: no such file, or not readable"; exit 125; }; }

binary="" files=() image="" memory=512 append="" timeout=120 keep="" positional=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --systemd)
            append+=" testbed.systemd systemd.unit=testbed.service systemd.show_status=no systemd.log_target=kmsg"
            shift
            ;;
        --binary | --file | --image | --memory | --append | --timeout | --keep)
            [[ $# -ge 2 ]] || usage "$1 needs a value"
            case $1 in
                --binary) binary=$2 ;;
                --file) files+=("$2") ;;
                --image) image=$2 ;;
                --memory) memory=$2 ;;
                --append) append+=" $2" ;;
                --timeout) timeout=$2 ;;
                --keep) keep=$2 ;;
            esac
            shift 2
            ;;
        -*) usage "unknown option $1" ;;
        *) positional+=("$1"); shift ;;
    esac
done
[[ ${#positional[@]} -eq 2 || ${#positional[@]} -eq 3 ]] || usage "KERNEL and SCRIPT are needed"
kernel=${positional[0]} script=${positional[1]} vcpus=${positional[2]:-4}
for number in "$vcpus" "$memory" "$timeout"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || usage "'$number' is not a whole number above 0"
done
readable "$kernel"
readable "$script"
[[ -z $binary ]] || readable "$binary"
modules=() drive=()
if [[ -n $image ]]; then
    readable "$image"
    # fetch-kernel.sh keeps the modules of vmlinuz-VERSION in modules-VERSION beside it, and what a disk needs in the
    # list `disk`.
    real=$(readlink -f "$kernel")
    folder=${real%/*}/modules-${real##*/vmlinuz-}
    [[ -e $folder/disk ]] || { say "no modules for $kernel: run testbed/fetch-kernel.sh --modules SERIES disk first"; exit 125; }
    while read -r name; do
        [[ -z $name ]] || modules+=("$folder/$name")
    done <"$folder/disk"
    drive=(-drive "file=${image//,/,,},format=raw,if=virtio,snapshot=on")
fi
for tool in qemu-system-x86_64 setpriv timeout; do
    command -v "$tool" >/dev/null || { say "$tool is missing: run scripts/setup.sh test"; exit 125; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-guest.XXXXXX")
qemu_pid=""
cleanup() {
    [[ -z $qemu_pid ]] || kill -TERM "$qemu_pid" 2>/dev/null || true
    if [[ -n $keep ]]; then
        mkdir -p "$keep" && cp "$work"/*.log "$work"/initramfs "$keep"/ 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

arguments=(--script "$script")
[[ -z $binary ]] || arguments+=(--binary "$binary")
for pair in ${files[@]+"${files[@]}"}; do arguments+=(--file "$pair"); done
for module in ${modules[@]+"${modules[@]}"}; do arguments+=(--module "$module"); done
"$here/initramfs.sh" "${arguments[@]}" "$work/initramfs" || exit 125

# --- the machine -----------------------------------------------------------------------------------------------------
# la57=off: 6.12 and newer panic under Debian 12's QEMU without it. cx16=off: its cmpxchg16b now and then writes an
# operand into the flags register, and kernels of which the allocator uses it (6.12) crashed in half of all boots. The
# clock words: TCG's TSC is good, and without them the guest falls back to the HPET, whose every read leaves the guest.
# On a loaded host the guest measures its rate badly (one clock ran six times too fast): it is told the host's.
# -no-reboot with panic=-1: a panic ends QEMU.
clock="tsc=reliable clocksource=tsc no_timer_check"
khz=$(dmesg 2>/dev/null | sed -n 's/.*tsc: Detected \([0-9]*\)\.\([0-9]*\) MHz.*/\1\2/p' | tail -n 1 || true)
[[ -z $khz ]] || clock+=" tsc_early_khz=$khz"
machine=(
    qemu-system-x86_64 -name gleaner-guest,debug-threads=on
    -accel tcg,thread=multi -cpu max,la57=off,cx16=off -smp "$vcpus" -m "$memory"
    -nodefaults -display none -monitor none -no-reboot
    -serial "file:$work/console.log" -serial "file:$work/output.log" -serial "file:$work/status.log"
    -kernel "$kernel" -initrd "$work/initramfs" ${drive[@]+"${drive[@]}"}
    -append "console=ttyS0 quiet loglevel=5 panic=-1 $clock testbed.limit=$timeout $append"
)
# QEMU 7.2's multi-threaded emulation now and then runs a guest's vCPU over an instruction that the guest's kernel is
# patching (jump labels at boot; tracepoints whenever somebody attaches to them): an int3 that nobody expects, or
# garbage before init. No program in the guest can do that, so such a guest is booted again, aloud, RETRIES times at
# most. So is one that hangs before init, which takes seconds otherwise: nothing of ours has begun there. And so is one
# that shows no sign of life (watch.sh) for a minute: its vCPUs go round in the handlers of int3, by QEMU's registers,
# over a translation of an int3 that the kernel has taken away again. Its kernel may go on to complain on the console,
# with where each vCPU is stuck (loglevel=5): seen were the first instruction of a patched function, and one who waits
# for that vCPU to see the patch.
booted() { grep -q '^guest: init done' "$work/console.log"; }
emulator_broke_it() {
    ! booted || [[ $hung == still ]] ||
        grep -qE 'Oops: int3|RIP: .*(do_sync_core|text_poke)' "$work/console.log"
}
# No sign of life for so long, though watch.sh began; what the kernel says meanwhile is none. Sets `lives`, `alive_at`.
stands_still() {
    local now=$SECONDS count
    count=$(grep -c '^guest: alive' "$work/console.log" || true)
    if [[ $count -ne $lives ]]; then lives=$count alive_at=$now; fi
    ((lives > 0 && now - alive_at > still_limit))
}
boot() {
    : >"$work/console.log" >"$work/output.log" >"$work/status.log"
    # If this script is killed -9 the guest goes with it: each process of the chain dies with its parent.
    setpriv --pdeathsig TERM timeout --kill-after=5 "$timeout" setpriv --pdeathsig KILL "${machine[@]}" \
        </dev/null >"$work/qemu.log" 2>&1 &
    qemu_pid=$!
    ended=0 hung="" lives=0 alive_at=$SECONDS
    local left=$((boot_limit * 5))
    until booted || ! kill -0 "$qemu_pid" 2>/dev/null; do
        ((left--)) || { hung=boot; kill "$qemu_pid" 2>/dev/null || true; break; }
        sleep 0.2
    done
    while kill -0 "$qemu_pid" 2>/dev/null; do
        if stands_still; then hung=still; kill "$qemu_pid" 2>/dev/null || true; break; fi
        # Half a second, or until it ends.
        timeout 0.5 tail -f -s 0.05 --pid="$qemu_pid" /dev/null || true
    done
    wait "$qemu_pid" || ended=$?
    qemu_pid=""
}
last_life() {
    local line
    line=$(grep '^guest: alive' "$work/console.log" | tail -n 1 | tr -d '\r')
    echo "${line:+last seen }${line:-no sign of life}" | sed "s|guest: ||"
}
# Where its vCPUs went round, if its kernel said so.
stuck_at() {
    sed -n 's/.*RIP: [0-9]*:\([^ ]*\).*/\1/p' "$work/console.log" | tr -d '\r' | sort -u | head -n 4 |
        sed 's/^/, at /' | tr -d '\n'
}
retries=${RETRIES:-3}
# Most seconds until init: twenty times what it takes on a machine that has nothing else to do.
boot_limit=${BOOT_LIMIT:-90}
still_limit=${STILL:-60}
boot
while [[ ( $ended -eq 0 || -n $hung ) && ! -s $work/status.log && $retries -gt 0 ]] && emulator_broke_it; do
    why=$(grep -m 1 -oE 'Oops: .*|BUG: .*' "$work/console.log" || true)
    [[ -n $why && $hung != still ]] || why="${why:+$why, }$(last_life)$(stuck_at)"
    why=${why//$'\r'/}
    say "the emulator broke the guest's kernel while it was patching itself ($why); once more"
    [[ -z ${GLEANER_BOOTS:-} ]] || echo "${script##*/} on ${kernel##*/}: $why" >>"$GLEANER_BOOTS"
    retries=$((retries - 1))
    boot
done

# --- what became of it -----------------------------------------------------------------------------------------------
cat "$work/output.log"
if [[ $(<"$work/status.log") =~ ^exit\ ([0-9]+) ]]; then
    exit "${BASH_REMATCH[1]}"
fi
show_console() {
    [[ ! -s $work/qemu.log ]] || { say "QEMU said:"; cat "$work/qemu.log" >&2; }
    say "$(last_life). The console, last 300 lines of $(wc -l <"$work/console.log"):"
    grep -v '^guest: alive' "$work/console.log" | tail -n 300 | tr -d '\r' >&2
}
if [[ $ended -eq 124 || $ended -eq 137 ]]; then
    say "killed: $script did not end within $timeout s"
    show_console
    exit 124
fi
say "the guest ended without an exit status (QEMU's own: $ended): a panic, no boot, or no sign of life"
show_console
exit 125
