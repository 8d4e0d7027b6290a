#!/usr/bin/env bash
# Packs the initramfs of a guest: busybox, checks.sh, an init that runs one script, and what the caller adds.
#
#   testbed/initramfs.sh --script SCRIPT [OPTIONS] OUT
#
#   --script SCRIPT    what init runs, as root, at /script
#   --binary FILE      put FILE into the guest's PATH as `gleaner`
#   --file HOST:GUEST  put another file into the guest (may be repeated)
#   --module FILE      a kernel module (.ko, not compressed) that init inserts before the script runs; may be repeated,
#       the
#                      order given is kept. Words MODULE.NAME=VALUE of the kernel's command line reach it, as with
#                          modprobe
#   OUT                the initramfs; written whole or not at all
#
# Exit status: 0, or 2 with a message where an argument is wrong or a tool is missing.
#
# How to boot it from a program of one's own (guest.sh does just this). Three serial lines keep apart what must not mix:
#
#   -kernel VMLINUZ -initrd OUT -append "console=ttyS0 quiet panic=-1 ..." -no-reboot
#   -serial file:CONSOLE     ttyS0: the kernel's console
#   -serial file:OUTPUT      ttyS1: the script's stdout and stderr
#   -serial file:STATUS      ttyS2: `exit N` once the script has ended; nothing if the guest panicked or hangs
#
# The guest then switches itself off, and QEMU ends. A disk with a Debian image (image.sh) is one drive more, and the
# modules that `fetch-kernel.sh --modules SERIES disk` prints, each with --module:
#
#   -drive file=IMAGE,format=raw,if=virtio,snapshot=on
#
# Where there is a /dev/vda, init mounts it on /debian before the script runs (/image-up.sh in the guest): the script
# can say `chroot /debian COMMAND...`, or `gleaner run -- chroot /debian COMMAND...`. /proc, /sys, /dev, /run and /tmp
# are the same inside and outside. With snapshot=on the guest may write, and the image never changes.
#
# With the word `testbed.limit=SECONDS` watch.sh shows signs of life on ttyS0, and who waits where shortly before that.
#
# With the word `testbed.systemd` on the command line the image's own systemd goes on as process 1 instead: from
# /systemd-up.sh on nothing of busybox is left. Its one unit is the script, as /testbed/script, with what --file put
# below /testbed beside it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf 'initramfs: %s\n' "$*" >&2; }
usage() { say "$*"; sed -n '4,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
readable() { [[ -f $1 && -r $1 ]] || { say "$1: no such file, or not readable"; exit 2; }; }

script="" binary="" files=() modules=() out=""
while [[ $# -gt 0 ]]; do
    case $1 in
        --script | --binary | --file | --module)
            [[ $# -ge 2 ]] || usage "$1 needs a value"
            case $1 in
                --script) script=$2 ;;
                --binary) binary=$2 ;;
                --file) files+=("$2") ;;
                --module) modules+=("$2") ;;
            esac
            shift 2
            ;;
        -*) usage "unknown option $1" ;;
        *) [[ -z $out ]] || usage "one OUT, not '$out' and '$1'"; out=$1; shift ;;
    esac
done
[[ -n $script && -n $out ]] || usage "--script and OUT are needed"
for file in "$script" ${binary:+"$binary"} ${modules[@]+"${modules[@]}"}; do readable "$file"; done
for tool in busybox cpio; do
    command -v "$tool" >/dev/null || { say "$tool is missing: run scripts/setup.sh test"; exit 2; }
done

# Users of the guest who are not root have to get at its files.
umask 022
stage=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-initramfs.XXXXXX")
trap 'rm -rf "$stage" "$out.partial.$$"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# mktemp's folder is its owner's alone, and it becomes the guest's root.
chmod 755 "$stage"
mkdir -p "$stage"/{bin,sbin,usr/bin,usr/sbin,dev,proc,sys,run,tmp,etc,root,modules}
cp -L "$(command -v busybox)" "$stage/bin/busybox"
cp -L "$script" "$stage/script"
chmod +x "$stage/script"
cp "$here/checks.sh" "$here/watch.sh" "$stage/"
chmod +x "$stage/watch.sh"
# A debug build has 90 MB: without its symbols it fits into a small guest, and is unpacked sooner.
[[ -z $binary ]] || install -m 755 "$(readlink -f "$binary")" "$stage/bin/gleaner"
[[ -z $binary ]] || strip "$stage/bin/gleaner" 2>/dev/null || true
for pair in ${files[@]+"${files[@]}"}; do
    [[ $pair == *:/* ]] || usage "--file takes HOST:GUEST with an absolute GUEST path, not '$pair'"
    readable "${pair%%:/*}"
    mkdir -p "$stage/$(dirname "${pair#*:}")"
    cp -L "${pair%%:/*}" "$stage/${pair#*:}"
done
# The number keeps the order: init goes through them as the shell sorts them.
number=100
for module in ${modules[@]+"${modules[@]}"}; do
    [[ $module == *.ko ]] || { say "$module is no .ko file (compressed ones are not taken)"; exit 2; }
    cp -L "$module" "$stage/modules/$number-$(basename "$module")"
    number=$((number + 1))
done
cat >"$stage/etc/passwd" <<'EOF'
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/sh
EOF
cat >"$stage/etc/group" <<'EOF'
root:x:0:
nogroup:x:65534:
EOF

cat >"$stage/image-up.sh" <<'EOF'
#!/bin/sh
# Mounts the Debian image on /debian and shows it this guest's own /proc, /sys, /dev, /run and /tmp. Init runs it where
# there is a disk.
mkdir -p /debian
mount -t ext4 -o noatime /dev/vda /debian || exit 1
for folder in proc sys dev run tmp; do
    mount -o rbind /$folder /debian/$folder || exit 1
done
EOF
cat >"$stage/systemd-up.sh" <<'EOF'
#!/bin/sh
# Process 1: hands the guest over to the image's systemd, whose one target is the script's unit. Services that packages
# bring start as on a machine of somebody's own, and all their files are unpacked.
mkdir -p /debian /testbed
mount -t ext4 -o noatime /dev/vda /debian || exit 1
rm -f /debian/usr/sbin/policy-rc.d /debian/etc/dpkg/dpkg.cfg.d/small
cp -r /testbed /debian/testbed
cp /script /checks.sh /debian/testbed/
cat >/debian/etc/systemd/system/testbed.service <<'UNIT'
[Unit]
After=basic.target
Requires=basic.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c '/testbed/script </dev/null >/dev/ttyS1 2>&1; echo exit $$? >/dev/ttyS2; systemctl poweroff -ff'
UNIT
echo "guest: init done at $(cut -d' ' -f1 /proc/uptime) s"
umount /sys/kernel/tracing /sys/fs/cgroup /sys /dev/pts /dev/shm /run /tmp
exec switch_root /debian /sbin/init
EOF
cat >"$stage/init" <<'EOF'
#!/bin/busybox sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
chmod 1777 /tmp /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# Two users of each tracepoint that Gleaner attaches to, so that its coming and going patches no code of the kernel: see
# emulator_broke_it in guest.sh. Nothing is recorded.
mount -t tracefs tracefs /sys/kernel/tracing
mkdir /sys/kernel/tracing/instances/second
for instance in /sys/kernel/tracing /sys/kernel/tracing/instances/second; do
    echo 0 >$instance/tracing_on
    for event in sched/sched_switch sched/sched_waking sched/sched_process_fork sched/sched_process_exec power/cpu_idle; do
        echo 1 >$instance/events/$event/enable
    done
    # The same for the functions that Gleaner's programs hang on.
    for function in tick_nohz_idle_enter tick_nohz_idle_exit irq_enter_rcu; do
        echo $function >>$instance/set_ftrace_filter
    done
    echo function >$instance/current_tracer
done
ip link set lo up
for line in 1 2; do
    stty -F /dev/ttyS$line raw 2>/dev/null
done
# Ends the guest: closing a serial line waits until all is sent; the power goes only after that.
end() {
    echo "exit $1" >/dev/ttyS2
    sync
    poweroff -f
}
for module in /modules/*.ko; do
    [ -f "$module" ] || continue
    name=$(basename "$module" .ko | cut -d- -f2- | tr - _)
    insmod "$module" $(tr ' ' '\n' </proc/cmdline | sed -n "s/^$name\.//p") ||
        echo "guest: $name could not be inserted"
done
# A network card is on QEMU's own network, which has no need of DHCP: the guest is .15, the host's 127.0.0.1 is .2.
if [ -d /sys/class/net/eth0 ]; then
    ip addr add 10.0.2.15/24 dev eth0
    ip link set eth0 up
    ip route add default via 10.0.2.2
fi
if grep -qw testbed.systemd /proc/cmdline; then
    exec /systemd-up.sh
fi
if [ -b /dev/vda ] && ! /image-up.sh; then
    echo "guest: /dev/vda could not be mounted" | tee /dev/ttyS1
    end 125
fi
echo "guest: init done at $(cut -d' ' -f1 /proc/uptime) s"
limit=$(tr ' ' '\n' </proc/cmdline | sed -n 's/^testbed\.limit=//p')
[ -z "$limit" ] || /watch.sh "$limit" </dev/null &
cd /root
/script </dev/null >/dev/ttyS1 2>&1
status=$?
echo "guest: script ended with $status at $(cut -d' ' -f1 /proc/uptime) s"
end $status
EOF
chmod +x "$stage"/{init,image-up.sh,systemd-up.sh}
(cd "$stage" && find . | cpio --quiet -o -H newc -R 0:0) >"$out.partial.$$"
mv "$out.partial.$$" "$out"
