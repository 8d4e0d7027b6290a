#!/usr/bin/env bash
# The main job on real programs: what this machine is, what a wake-up costs here, and three programs off and on.
#
#   scripts/demo.sh [BINARY]      default: target/gleaner (`make demo` installs and builds first)
#
# PAIRS, ARCHIVE_MB, THREAD_EVENTS and MUTEX_LOCKS in the environment make it longer or shorter.
#
# Each program runs once under Gleaner, which says what it saw and did, and in PAIRS pairs (default 5: fewer have no interval)
# without and with it. A table and a page of figures, target/demo/report.html, come last.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}") || true
[[ -x $gleaner ]] || { echo "demo: ${1:-target/gleaner} is not there: run make build" >&2; exit 1; }
for tool in jq pbzip2 sysbench tar; do
    command -v "$tool" >/dev/null || { echo "demo: $tool is missing: run scripts/setup.sh demo" >&2; exit 1; }
done
pairs=${PAIRS:-5}
archive_mb=${ARCHIVE_MB:-60}

work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
folder=${CARGO_TARGET_DIR:-$root/target}/demo
results=$folder/results
rm -rf "$results"
mkdir -p "$results"

if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold="" plain=""; fi
headline() { printf '\n%s== %s%s\n\n' "$bold" "$*" "$plain"; }

# The share of vCPU time that other programs use, in per cent, over a second.
others() {
    local before after
    before=$(head -n 1 /proc/stat)
    sleep 1
    after=$(head -n 1 /proc/stat)
    # user nice system idle iowait irq softirq steal: idle and iowait are free.
    awk -v before="$before" -v after="$after" 'BEGIN {
        split(before, b); split(after, a)
        for (i = 2; i <= 9; i++) { all += a[i] - b[i] }
        printf "%d", (all ? 100 - 100 * (a[5] + a[6] - b[5] - b[6]) / all : 0)
    }'
}
busy=$(others)

headline "This machine (gleaner doctor)"
"$gleaner" doctor --json "$results/doctor.json" | tee "$work/doctor.txt"
[[ $busy -lt 20 ]] || printf '\nOther programs use %s %% of the vCPUs now: every time below is theirs too.\n' "$busy"

headline "What a wake-up costs here (gleaner probe)"
"$gleaner" probe --gap-us 1000 --samples 500 --json "$results/probe.json"

# Real files, always the same ones on the same machine, in an archive of about $archive_mb MB.
find /usr/share /usr/lib -xdev -type f -printf '%s %p\n' 2>/dev/null | LC_ALL=C sort -k2 |
    awk -v limit="$archive_mb" '{ if (total + $1 <= limit * 1e6) { total += $1; print substr($0, index($0, " ") + 1) } }' >"$work/list"
tar -cf "$work/archive.tar" -C / --verbatim-files-from -T "$work/list" 2>/dev/null

threads=$((2 * $(nproc)))
programs=(
    "pbzip2|pbzip2 -kc -p$(nproc) $work/archive.tar"
    "sysbench threads|sysbench threads --threads=$threads --events=${THREAD_EVENTS:-5000} --time=0 run"
    "sysbench mutex|sysbench mutex --threads=$threads --mutex-num=4 --mutex-locks=${MUTEX_LOCKS:-3000000} --mutex-loops=200 run"
)

# finished NAME STATUS SAID: what it said, if it failed.
finished() {
    [[ $2 -eq 0 ]] && return
    echo "demo: $1 ended with $2:" >&2
    cat "$3" >&2
    exit 1
}

rows=()
for program in "${programs[@]}"; do
    name=${program%%|*} command=${program#*|} file=${name// /-}
    headline "$name: once under Gleaner, then $pairs pairs without (off) and with it (full)"
    printf 'gleaner run -- %s\n\n' "${command//"$work/"/}"
    status=0
    # shellcheck disable=SC2086 # the command is a list of words
    "$gleaner" run --json "$results/$file-run.json" -- $command >/dev/null 2>"$work/said.txt" || status=$?
    finished "$name under gleaner run" "$status" "$work/said.txt"
    sed "s/^/  /; s|$work/||g" "$work/said.txt"
    printf '\ngleaner ab -n %s -- %s\n\n' "$pairs" "${command//"$work/"/}"
    # shellcheck disable=SC2086 # the same
    "$gleaner" ab -n "$pairs" --json "$results/$file-ab.json" -- $command >"$work/said.txt" || status=$?
    finished "$name under gleaner ab" "$status" "$work/said.txt"
    sed "s/^/  /; s|$work/||g" "$work/said.txt"
    rows+=("$(jq -r --arg name "$name" --slurpfile run "$results/$file-run.json" '
        def s(ns): if ns == null then "-" else ns / 1e7 | round / 100 | tostring end;
        def two: . * 100 | round / 100 | tostring;
        $run[0] as $run |
        [$name, s(.modes[0].median.wall_ns), s(.modes[1].median.wall_ns),
         (if .speedup then .speedup.median | two else "-" end),
         (if .speedup.ci95 then "\(.speedup.ci95[0] | two) to \(.speedup.ci95[1] | two)" else "-" end),
         .verdict,
         (if $run.idle_entries then $run.idle_entries / $run.wall_ns * 1e9 | round | tostring else "-" end),
         s($run.retained_ns), ($run.active_vcpus_mean | two), (if $run.restored then "yes" else "NO" end)] | join("|")
    ' "$results/$file-ab.json")")
done

headline "What these pairs took (medians)"
{
    echo "program|off, s|full, s|off/full|95 % interval|verdict|idle entries/s|retained, vCPU s|vCPUs active|all undone"
    printf '%s\n' "${rows[@]}"
} | column -t -s '|'

# Paths of the work folder say nothing to whoever reads the page.
sed -i "s|$work/||g" "$results"/*.json
"$gleaner" report --title "Gleaner on $(uname -n), $(date -u +%F)" -o "$folder/report.html" \
    "$results"/*-ab.json "$results"/*-run.json "$results/probe.json" "$results/doctor.json"
hypervisor=$(sed -n 's/^hypervisor *//p' "$work/doctor.txt")
[[ $busy -lt 20 ]] && others="" || others=", of which other programs used $busy %"
cat <<EOF

Measured $(date -u '+%Y-%m-%d %H:%M UTC') on $(uname -n): $hypervisor, Linux $(uname -r), $(nproc) vCPUs$others.
off/full above 1: faster under Gleaner. The last four columns are of the single run under Gleaner; "all undone" says that
it left the machine as it found it. sysbench threads yields about a million times a second and computes little: it pays
for observing with BPF, until Gleaner leaves that, and for yielding threads (docs/safety.md).

This is a demonstration: $pairs pairs tell only a large effect from the noise of a machine whose neighbours nobody knows,
and the interval says so. For a longer one: PAIRS=20 scripts/demo.sh.

The same with figures, for a browser: ${folder#"$PWD"/}/report.html (results in JSON: ${results#"$PWD"/}/)
EOF
