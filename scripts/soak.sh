#!/usr/bin/env bash
# A daemon under changing load, with groups that come and go: does it stay as it is? Between bursts of load there is a
# quiet moment without a group. What is compared is how the daemon stands then: memory, open files, threads, BPF maps.
#
#   scripts/soak.sh [OPTIONS]      a table, then the verdict; status 1 where something is not flat
#
#   --minutes N      default 10
#   --seconds N      instead
#   --binary FILE    default target/gleaner
#   --retain MEANS   what keeps vCPUs awake (default auto)
#   --observer NAME  who looks (default auto)
#   --dry-run        nothing is changed on this machine
#
# Lengths of windows are printed and not judged: this machine has neighbours.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=600 binary=target/gleaner retain=auto observer=auto options=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --minutes) seconds=$(($2 * 60)); shift 2 ;;
        --seconds) seconds=$2; shift 2 ;;
        --binary) binary=$2; shift 2 ;;
        --retain) retain=$2; shift 2 ;;
        --observer) observer=$2; shift 2 ;;
        --dry-run) options+=(--dry-run); shift ;;
        *) sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
binary=$(realpath "$binary")
# Groups are found by the name of their program.
readonly GROUPS_MAX=8 LOADS=(relay barrier fork-join request-reply task-queue independent)

work=$(mktemp -d)
daemon="" loads=()
finish() {
    [[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true
    for load in "${loads[@]}"; do kill "$load" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

{
    printf '[daemon]\nretain = "%s"\nobserver = "%s"\n' "$retain" "$observer"
    printf '[capture]\nsize = "1M"\n[metrics]\nlisten = "unix:%s/metrics"\n' "$work"
    for n in $(seq "$GROUPS_MAX"); do
        ln -s "$binary" "$work/soak$n"
        profiles=(frugal latency balanced observe-only)
        printf '[group.g%s]\nprogram = "soak%s"\nprofile = "%s"\n' "$n" "$n" "${profiles[n % 4]}"
    done
} >"$work/gleaner.toml"
"$binary" daemon --config "$work/gleaner.toml" --state-dir "$work/state" "${options[@]}" 2>"$work/log" &
daemon=$!
asked() { "$binary" "$@" --state-dir "$work/state"; }
for _ in $(seq 600); do grep -q 'managing ' "$work/log" && break; sleep 0.1; done
grep -q 'managing ' "$work/log" || { cat "$work/log" >&2; exit 1; }

# Of the daemon itself: anonymous memory in KiB, open files, threads, BPF maps.
memory() { awk '/^RssAnon:/ { print $2 }' "/proc/$daemon/status"; }
files() { find "/proc/$daemon/fd" -type l 2>/dev/null | wc -l; }
threads() { find "/proc/$daemon/task" -mindepth 1 -maxdepth 1 | wc -l; }
maps() { grep -l '^map_id' /proc/"$daemon"/fdinfo/* 2>/dev/null | wc -l || true; }
groups_now() { asked status --json --quiet | grep -c '"since_ns"' || true; }

managed=0 unanswered=0
# So many seconds of load: at most three groups at once, each for one to four seconds.
burst() {
    local end=$((SECONDS + $1)) n load
    while ((SECONDS < end)); do
        n=$((RANDOM % GROUPS_MAX + 1))
        if (($(jobs -pr | wc -l) <= 3)) && ! pgrep -x "soak$n" >/dev/null; then
            load=${LOADS[RANDOM % ${#LOADS[@]}]}
            "$work/soak$n" workload "$load" --threads $((RANDOM % 6 + 2)) --for $((RANDOM % 4 + 1))s >/dev/null 2>&1 &
            loads+=($!)
        fi
        # On a machine that has no time for it, that is no fault of the daemon.
        asked status >/dev/null || unanswered=$((unanswered + 1))
        sleep 0.5
    done
    for load in "${loads[@]}"; do kill "$load" 2>/dev/null || true; wait "$load" 2>/dev/null || true; done
    loads=()
}
quiet() {
    for _ in $(seq 100); do
        [[ $(groups_now) -gt 0 ]] || break
        sleep 0.2
    done
    # What was said of them is written, and freed.
    sleep 1
    managed=$(grep -c ' is managed, profile' "$work/log" || true)
}

began=$SECONDS length=$((seconds / 15 < 4 ? 4 : seconds / 15)) samples=()
printf '%8s %8s %12s %6s %8s %9s\n' seconds groups 'memory KiB' files threads 'BPF maps'
while ((SECONDS - began < seconds)); do
    burst "$length"
    quiet
    sample="$(memory) $(files) $(threads) $(maps)"
    samples+=("$sample")
    read -r a b c d <<<"$sample"
    printf '%8d %8d %12d %6d %8d %9d\n' $((SECONDS - began)) "$managed" "$a" "$b" "$c" "$d"
done
((unanswered == 0)) || echo "status was not answered in time: $unanswered times"
kill -0 "$daemon" || { echo "the daemon has ended:" >&2; cat "$work/log" >&2; exit 1; }

asked capture "$work/x.capture" >/dev/null
"$binary" dump "$work/x.capture" --what windows --json 2>/dev/null |
    sed -n 's/.*"what":"window".*"length_ns":\([0-9]*\)[0-9]\{6\},.*/\1/p' | sort -n |
    awk '{ at[NR] = $1 } END { if (NR) printf "windows: %d, %d ms in the median, %d ms at the 99th percentile, %d ms at most\n",
        NR, at[int((NR + 1) / 2)], at[int((NR * 99 + 99) / 100)], at[NR] }'
"$binary" replay "$work/x.capture" | tail -1
printf 'overhead: %s\n' "$(asked status | grep -o 'observing takes [^,]*')"
kill "$daemon"
status=0
wait "$daemon" || status=$?
daemon=""
[[ $status -eq 0 ]] || { echo "the daemon ended with $status" >&2; cat "$work/log" >&2; exit 1; }

# What the first third had at most is what the last may have: a sixteenth and 1 MiB more of memory, two of the others.
printf '%s\n' "${samples[@]}" | awk '
    { for (i = 1; i <= 4; i++) at[NR, i] = $i }
    END {
        third = int((NR + 2) / 3)
        split("memory files threads maps", names, " ")
        for (i = 1; i <= 4; i++) {
            first = last = 0
            for (n = 1; n <= third; n++) if (at[n, i] > first) first = at[n, i]
            for (n = NR - third + 1; n <= NR; n++) if (n == NR - third + 1 || at[n, i] < last) last = at[n, i]
            allowed = i == 1 ? first * 17 / 16 + 1024 : first + 2
            if (last > allowed) { printf "NOT flat: %s was %d, is %d\n", names[i], first, last; bad = 1 }
        }
        if (!bad) print "flat: memory, files, threads and maps"
        exit bad
    }'
