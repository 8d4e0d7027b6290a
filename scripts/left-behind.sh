#!/bin/sh
# What runs of Gleaner could leave behind on this machine, a line each. With the FILE of an earlier look: says what
# differs, and fails. What is still being undone is waited for. LEFT_BEHIND_ROOT is where the machine's files are, for
# tests.
root=${LEFT_BEHIND_ROOT:-}

look() {
    for file in "$root"/sys/module/haltpoll/parameters/* "$root"/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us \
        "$root"/proc/irq/*/smp_affinity_list; do
        [ ! -r "$file" ] || echo "$file $(cat "$file")"
    done
    find "$root"/sys/fs/cgroup -type d -name 'gleaner*' 2>/dev/null | sort
    find "$root"/run/gleaner "$root/tmp/gleaner-$(id -u)" "${XDG_RUNTIME_DIR:-/nonexistent}/gleaner" -name '*.journal' 2>/dev/null | sort
}

[ $# -gt 0 ] || { look; exit; }
for try in 1 2 3 4 5 6 7 8 9 10; do
    now=$(look)
    [ "$now" != "$(cat "$1")" ] || exit 0
    [ -n "$root" ] || sleep 1
done
echo "the tests left this machine changed (<: before, >: now):" >&2
echo "$now" | diff "$1" - | grep '^[<>]' >&2
exit 1
