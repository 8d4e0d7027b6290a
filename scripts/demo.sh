#!/usr/bin/env bash
# The main job on real programs: what this machine is, what a wake-up costs here by each means, and programs that people
# know, off and on: Redis, Python, MariaDB, pbzip2; and one of ours.
# Then the service: a daemon with two groups (scripts/demo-daemon.sh).
#
#   scripts/demo.sh [BINARY]      default: target/gleaner (`make demo` installs and builds first)
#
# PAIRS in the environment makes it longer or shorter: each program runs in so many pairs (default 5: fewer have no
# interval) without and with Gleaner, in random order. A table and a page of figures, target/demo/report.html, come
# last.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}") || true
[[ -x $gleaner ]] || { echo "demo: ${1:-target/gleaner} is not there: run make build" >&2; exit 1; }
for tool in jq pbzip2 tar column redis-check-rdb redis-benchmark mariadb-install-db sysbench python3; do
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

headline "What a wake-up costs here, by what keeps the vCPU awake (gleaner probe --means)"
"$gleaner" probe --means --json "$results/means.json"

# How late threads ran only BPF sees; without it Gleaner chooses.
observer=$(jq -r 'if any(.observers[]; .name == "bpf" and .available) then "bpf" else "auto" end' \
    "$results/doctor.json")

# Waking has to cost something, or there is nothing to win.
pays=$(jq '[.means[]? | select(.means != "halted") | .cells[].halted_by_it_ci95 | select(. != null and .[0] > 1.3)]
    | length > 0' "$results/means.json")
if [[ $pays != true ]]; then
    printf '\nA halted vCPU is woken about as soon here as one kept awake, so there is nothing to win: %s.\n' \
        "the host polls for it, or this is no VM"
fi

# Real files, always the same ones on the same machine, in an archive of about $archive_mb MB.
find /usr/share /usr/lib -xdev -type f -printf '%s %p\n' 2>/dev/null | LC_ALL=C sort -k2 |
    awk -v limit="$archive_mb" '
        { if (total + $1 <= limit * 1e6) { total += $1; print substr($0, index($0, " ") + 1) } }' >"$work/list"
tar -cf "$work/archive.tar" -C / --verbatim-files-from -T "$work/list" 2>/dev/null

export PATH=$PATH:/usr/sbin

cat >"$work/handover.py" <<'PYTHON'
from multiprocessing import Pipe, Process

MESSAGES = 15000

def answer(pipe):
    for _ in range(MESSAGES):
        pipe.send_bytes(pipe.recv_bytes())

ours, theirs = Pipe()
other = Process(target=answer, args=(theirs,))
other.start()
for _ in range(MESSAGES):
    ours.send_bytes(b"question")
    ours.recv_bytes()
other.join()
PYTHON

# One connection asks MariaDB for single rows. Its tables are made once.
cat >"$work/mariadb.sh" <<'MARIADB'
folder=$1 command=$2
sysbench="sysbench oltp_point_select --mysql-socket=$folder/socket --mysql-user=root --mysql-db=demo --tables=1
    --table-size=10000 --threads=1 --time=0"
mariadbd --no-defaults --user="$(id -un)" --datadir="$folder/data" --socket="$folder/socket" --skip-networking \
    --pid-file="$folder/pid" --innodb-fast-shutdown=2 >"$folder/log" 2>&1 &
server=$!
tries=0
until [ -S "$folder/socket" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 1500 ] && kill -0 "$server" || { cat "$folder/log" >&2; exit 1; }
    sleep 0.02
done
# shellcheck disable=SC2086 # a list of words
case $command in
    prepare) $sysbench prepare ;;
    run) $sysbench --events=8000 run ;;
esac
status=$?
kill "$server"
wait "$server"
exit "$status"
MARIADB
mkdir "$work/mariadb"
{
    mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$work/mariadb/data" --skip-test-db \
        --auth-root-authentication-method=normal
    mkdir "$work/mariadb/data/demo"
    sh "$work/mariadb.sh" "$work/mariadb" prepare
} >"$work/said.txt" 2>&1 || { cat "$work/said.txt" >&2; exit 1; }

# Name, what it does, metric of its own (or none: its run time), command.
programs=("redis|one client asks a server|^GET: ([0-9.]+) requests|$root/scripts/redis-one-client.sh"
    "python|two processes hand over through a pipe||python3 $work/handover.py"
    "mariadb|one connection asks for rows|transactions: .*\\(([0-9.]+) per sec|sh $work/mariadb.sh $work/mariadb run"
    "pbzip2|computes all the time||pbzip2 -kc -p$(nproc) $work/archive.tar"
    "relay|two threads of ours hand on to each other||$gleaner workload relay --threads 2 --items 150000")

# shorter COMMAND: without folders that say nothing.
shorter() {
    local command=${1//"$work/"/}
    echo "${command//"$root/"/}"
}

# finished NAME STATUS SAID: what it said, if it failed.
finished() {
    [[ $2 -eq 0 ]] && return
    echo "demo: $1 ended with $2:" >&2
    cat "$3" >&2
    exit 1
}

rows=()
for program in "${programs[@]}"; do
    IFS='|' read -r name what metric command <<<"$program"
    metric=${metric:+--metric=$metric}
    better=${metric:+--higher-is-better}
    headline "$name ($what): $pairs pairs without Gleaner (off) and with it (full)"
    printf 'gleaner ab -n %s %s-- %s\n\n' "$pairs" "${metric:+"'$metric' $better "}" "$(shorter "$command")"
    status=0
    # shellcheck disable=SC2086 # the command is a list of words
    "$gleaner" ab -n "$pairs" ${metric:+"$metric" "$better"} ${metric:+--metric-name=per-second} \
        --json "$results/$name-ab.json" -- $command >"$work/said.txt" || status=$?
    finished "$name under gleaner ab" "$status" "$work/said.txt"
    sed "s/^/  /; s|$work/||g; s|$root/||g" "$work/said.txt"
    # shellcheck disable=SC2086 # the same
    "$gleaner" run --observer "$observer" --json "$results/$name-run.json" -- $command \
        >/dev/null 2>"$work/said.txt" || status=$?
    finished "$name under gleaner run" "$status" "$work/said.txt"
    rows+=("$(jq -r --arg name "$name" --slurpfile run "$results/$name-run.json" '
        def s(ns): if ns == null then "-" else ns / 1e7 | round / 100 | tostring end;
        def two: . * 100 | round / 100 | tostring;
        def us(ns): if ns == null then "-" else ns / 100 | round / 10 | tostring end;
        $run[0] as $run |
        def figure: if .metric then "\(.metric | round)/s" else s(.wall_ns) + " s" end;
        [$name, (.modes[0].median | figure), (.modes[1].median | figure),
         (if .speedup then .speedup.median | two else "-" end),
         (if .speedup.ci95 then "\(.speedup.ci95[0] | two) to \(.speedup.ci95[1] | two)" else "-" end),
         (if .pairs_to_tell or .verdict_withheld then "inconclusive" else .verdict end),
         us($run.lengths.wake_to_run.p99_ns), s($run.retained_ns), ($run.means.retention // "-"),
         (if $run.restored then "yes" else "NO" end)] | join("|")
    ' "$results/$name-ab.json")")
done

headline "What these pairs took (medians)"
{
    echo "program|off|Gleaner|speed-up|95 % interval|verdict|wake p99, us|polled, vCPU s|by|all undone"
    printf '%s\n' "${rows[@]}"
} | column -t -s '|'

# Paths of the work folder say nothing to whoever reads the page.
sed -i "s|$work/||g" "$results"/*.json
"$gleaner" report --title "Gleaner on $(uname -n), $(date -u +%F)" -o "$folder/report.html" \
    "$results"/*-ab.json "$results"/*-run.json "$results/doctor.json"
hypervisor=$(sed -n 's/^hypervisor *//p' "$work/doctor.txt")
[[ $busy -lt 20 ]] && others="" || others=", of which other programs used $busy %"
cat <<EOF

Measured $(date -u '+%Y-%m-%d %H:%M UTC') on $(uname -n): $hypervisor, Linux $(uname -r), $(nproc) vCPUs$others.
A speed-up above 1: faster under Gleaner. "wake p99", "polled" and "by" are of one more run under Gleaner: how late
its threads ran, what it cost in vCPU time, and by what means. "all undone": it left the machine as it found it.

This is a demonstration: $pairs pairs tell only a large effect from the noise of a machine whose neighbours nobody
knows, and the interval says so. For a longer one: PAIRS=20 scripts/demo.sh.

The same with figures, for a browser: ${folder#"$PWD"/}/report.html (results in JSON: ${results#"$PWD"/}/)
EOF

"$root/scripts/demo-daemon.sh" "$gleaner"
