#!/bin/sh
# Runs inside a guest (testbed/guest.sh --binary target/gleaner KERNEL testbed/idle-kills.sh): runs that poll in the
# idle loop by BPF are killed, the main process, its guardian first, or both at once, and nothing of them is left in the
# kernel. `--append testbed.kills=100` asks for more kills than six.
. /checks.sh

kills=$(tr ' ' '\n' </proc/cmdline | sed -n 's/^testbed\.kills=//p')
kills=${kills:-6}
echo 1 >/proc/sys/net/core/bpf_jit_kallsyms
# Gleaner's programs in the kernel, as it has compiled them.
programs() { grep -c ' bpf_prog_[0-9a-f]*_on_i' /proc/kallsyms; }
loaded() { [ "$(programs)" -gt 0 ]; }
gone() { [ "$(programs)" = 0 ]; }
no_journal() { [ -z "$(find /run/gleaner -name "*.journal" 2>/dev/null)" ]; }
ended() { [ ! -d "/proc/$1" ]; }
guardian() { for process in $(grep -la guardian /proc/[0-9]*/cmdline 2>/dev/null); do
    process=${process#/proc/}; process=${process%/cmdline}
    if [ "$(cut -d' ' -f4 "/proc/$process/stat" 2>/dev/null)" = "$1" ]; then echo "$process"; fi
done; }

echo "kernel $(uname -r)"
before=$(state)
check "no program before" gone
kill=0
while [ $kill -lt $kills ]; do
    kill=$((kill + 1))
    rm -f /tmp/began /tmp/go /tmp/survived
    gleaner run --policy retain --retain idle-poll --no-trial --retain-for 500us --quiet -- \
        sh -c 'touch /tmp/began; while [ ! -f /tmp/go ]; do usleep 5000; done; touch /tmp/survived' 2>/tmp/said &
    main=$!
    check "$kill: the program began" within 60 [ -f /tmp/began ]
    check "$kill: vCPUs poll" within 60 loaded
    case $((kill % 3)) in
    0) kill -9 $main ;;
    1) first=$(guardian $main)
        kill -9 $first
        check "$kill: the first guardian has ended" within 60 ended "$first"
        kill -9 $main ;;
    2) kill -9 $main $(guardian $main)
        gleaner restore >/dev/null 2>&1 ;;
    esac
    wait $main 2>/dev/null
    check "$kill: no program is left" within 60 gone
    gleaner restore >/dev/null 2>&1
    check "$kill: no journal is left" within 60 no_journal
    touch /tmp/go
    check "$kill: the program went on" within 60 [ -f /tmp/survived ]
done
check "nothing is pinned" [ -z "$(ls /sys/fs/bpf 2>/dev/null)" ]
same "everything is as it was" "$before"
echo "kills $kill"
exit $failures
