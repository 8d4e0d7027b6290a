#!/usr/bin/env bash
# A real Xen's slices and ratelimits set, read back and put back: experiments/xen/run.sh [SCHEDULER...]     README.md
# says what that shows.
#
# SCHEDULER: credit, credit2; both unless said. Boots Debian's Xen 4.17 with a Debian dom0 in QEMU for each: one to four
# minutes. Nothing of this machine is changed. RUN=name: a folder of its own.
for scheduler in "$@"; do
    case $scheduler in
        credit | credit2) ;;
        *) sed -n 's/^# \{0,1\}//; 2,5p' "$0" >&2; exit 2 ;;
    esac
done
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test >&2
[[ $# -gt 0 ]] || set -- credit credit2

for scheduler in "$@"; do
    fresh "$folder/$scheduler.txt"
    begun=yes
    say "$scheduler"
    status=0
    testbed/xen.sh --binary "$gleaner" --sched "$scheduler" >"$folder/$scheduler.txt" 2>"$folder/$scheduler.log" || status=$?
    echo "exit status of the checks: $status" >>"$folder/$scheduler.txt"
    [[ $status -eq 0 ]] || { tail -n 20 "$folder/$scheduler.log" >&2; exit "$status"; }
    cat "$folder/$scheduler.txt"
done
