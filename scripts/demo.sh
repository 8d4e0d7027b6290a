#!/usr/bin/env bash
# The main job on real programs: what this machine is, what a wake-up costs here, and three programs off and on.
#
#   scripts/demo.sh [BINARY]      default: target/gleaner (`make demo` installs and builds first)
#
# PAIRS, ARCHIVE_MB, THREAD_EVENTS and MUTEX_LOCKS in the environment make it longer or shorter.
#
# Each program runs PAIRS times (default 3) without and with Gleaner, interleaved, and the table at the end holds medians
# of just these runs. That shows what happens; it proves nothing: three pairs on a machine whose neighbours nobody knows.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}") || true
[[ -x $gleaner ]] || { echo "demo: ${1:-target/gleaner} is not there: run make build" >&2; exit 1; }
for tool in jq pbzip2 sysbench tar; do
    command -v "$tool" >/dev/null || { echo "demo: $tool is missing: run scripts/setup.sh demo" >&2; exit 1; }
done
pairs=${PAIRS:-3}
archive_mb=${ARCHIVE_MB:-60}

work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

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
"$gleaner" doctor | tee "$work/doctor.txt"
[[ $busy -lt 20 ]] || printf '\nOther programs use %s %% of the vCPUs now: every time below is theirs too.\n' "$busy"

headline "What a wake-up costs here (gleaner probe)"
"$gleaner" probe --gap-us 1000 --samples 500

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

# run_once NAME COMMAND POLICY RESULT: the program's own output goes nowhere, Gleaner's summary to RESULT.txt.
run_once() {
    local status=0
    # shellcheck disable=SC2086 # the command is a list of words
    "$gleaner" run --policy "$3" --json "$4.json" -- $2 >/dev/null 2>"$4.txt" || status=$?
    if [[ $status -ne 0 ]]; then
        echo "demo: $1 under policy $3 ended with $status:" >&2
        cat "$4.txt" >&2
        exit 1
    fi
}

median() { jq -s "map($1) | map(select(. != null)) | sort | if length == 0 then null else .[(length - 1) / 2 | floor] end" "${@:2}"; }
# number FORMAT VALUE [DIVISOR]: a figure for the table, or a dash where it is unknown.
number() { if [[ $2 == null ]]; then printf -- '-'; else awk -v v="$2" -v d="${3:-1}" -v f="$1" 'BEGIN { printf f, v / d }'; fi; }

rows=()
for program in "${programs[@]}"; do
    name=${program%%|*} command=${program#*|} file=${name// /-}
    headline "$name: $pairs times without Gleaner (off), $pairs times with it (on)"
    printf 'gleaner run -- %s\n' "${command//"$work/"/}"
    for ((pair = 1; pair <= pairs; pair++)); do
        # The order alternates, so that a drift of the machine favours neither.
        order=(off full)
        ((pair % 2)) || order=(full off)
        for policy in "${order[@]}"; do
            run_once "$name" "$command" "$policy" "$work/$file-$policy-$pair"
        done
        printf 'pair %d: off %s s, on %s s\n' "$pair" \
            "$(number %.2f "$(jq .wall_ns "$work/$file-off-$pair.json")" 1e9)" \
            "$(number %.2f "$(jq .wall_ns "$work/$file-full-$pair.json")" 1e9)"
    done
    printf '\nWhat Gleaner said after the last of them:\n'
    sed "s/^/  /; s|$work/||g" "$work/$file-full-$pairs.txt"
    off=$(median .wall_ns "$work/$file"-off-*.json)
    on=$(median .wall_ns "$work/$file"-full-*.json)
    rows+=("$name|$(number %.2f "$off" 1e9)|$(number %.2f "$on" 1e9)|$(awk -v a="$off" -v b="$on" 'BEGIN { printf "%.2f", a / b }')|$(
        number %.0f "$(median 'if .idle_entries == null then null else .idle_entries / .wall_ns * 1e9 end' "$work/$file"-full-*.json)")|$(
        number %.2f "$(median .retained_ns "$work/$file"-full-*.json)" 1e9)|$(
        number %.2f "$(median .active_vcpus_mean "$work/$file"-full-*.json)")|$(
        jq -s -r 'if all(.restored == true) then "yes" else "NO" end' "$work/$file"-*.json)")
done

headline "What these $pairs pairs took (medians)"
{
    echo "program|off, s|on, s|off/on|idle entries/s|retained, vCPU s|vCPUs active|all undone"
    printf '%s\n' "${rows[@]}"
} | column -t -s '|'
hypervisor=$(sed -n 's/^hypervisor *//p' "$work/doctor.txt")
[[ $busy -lt 20 ]] && others="" || others=", of which other programs used $busy %"
cat <<EOF

Measured $(date -u '+%Y-%m-%d %H:%M UTC') on $(uname -n): $hypervisor, Linux $(uname -r), $(nproc) vCPUs$others.
off/on above 1: faster under Gleaner. The last four columns are of the runs under Gleaner; "all undone" says that every
run left the machine as it found it. sysbench threads yields about a million times a second and computes little: it pays
for observing with BPF, until Gleaner leaves that, and for yielding threads (docs/safety.md).

This is a demonstration, not a measurement: $pairs pairs cannot tell a small effect from the noise of a machine whose
neighbours nobody knows. For a longer one: PAIRS=20 scripts/demo.sh. To come: intervals (gleaner ab), an HTML page
(gleaner report).
EOF
