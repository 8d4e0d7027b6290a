#!/bin/sh
# Who else acts on this machine, a line each: what the tests that measure or set something would meet. It only says so.
# WHO_ACTS_ROOT is where the machine's files are, for tests.
root=${WHO_ACTS_ROOT:-}
say() { echo "test: $*" >&2; }

for journal in "$root"/run/gleaner/*.journal; do
    [ -e "$journal" ] || continue
    pid=${journal##*/}
    pid=${pid%%-*}
    [ -d "$root/proc/$pid" ] || continue
    if grep -q module/haltpoll/ "$journal"; then
        say "another Gleaner, process $pid, holds haltpoll: tests that need it are skipped, and that fails. End it first"
    else
        say "another Gleaner, process $pid, runs here"
    fi
done
for process in "$root"/proc/[0-9]*/comm; do
    name=$(cat "$process" 2>/dev/null)
    case $name in
        tuned | irqbalance | scx_*) say "$name runs here: it may set what tests look at" ;;
    esac
done

# The share of the CPUs' time that is used in a second: user nice system idle iowait irq softirq steal.
cpu_times() {
    awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print all, $5 + $6; exit }' "$root/proc/stat"
}
before=$(cpu_times)
[ -n "$root" ] || sleep 1
after=$(cpu_times)
busy=$(echo "$before $after" | awk '{ all = $3 - $1; print (all > 0 ? int(100 - 100 * ($4 - $2) / all) : 0) }')
[ "$busy" -lt 20 ] || say "other programs use $busy % of the CPUs: tests that measure want a quiet machine"
exit 0
