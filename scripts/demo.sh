#!/usr/bin/env bash
# The main job on real programs: what this machine is, what a wake-up costs here by each means, and programs that people
# know, with Gleaner and without: Redis, Python, MariaDB, pbzip2; and one of ours.
# Then the service: a daemon that manages Redis, alone and beside a neighbour (scripts/demo-daemon.sh).
#
#   scripts/demo.sh [BINARY]      default: target/gleaner (`make demo` installs and builds first)
#
# PAIRS in the environment makes it longer or shorter: each program runs in so many pairs (default 5: fewer have no
# interval) without and with Gleaner, in random order. ARCHIVE_MB is the size of what pbzip2 compresses (default 60).
# A table and a page of figures, target/demo/report.html, come last. A program that cannot be prepared or run here is
# left out, with the reason, and a log in target/demo/logs.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gleaner=$(readlink -f "${1:-$root/target/gleaner}") || true
[[ -x $gleaner ]] || { echo "demo: ${1:-target/gleaner} is not there: run make build" >&2; exit 1; }
for tool in jq tar column; do
    command -v "$tool" >/dev/null || { echo "demo: $tool is missing: run scripts/setup.sh demo" >&2; exit 1; }
done
pairs=${PAIRS:-5}
archive_mb=${ARCHIVE_MB:-60}
# shellcheck source=scripts/demo-lib.sh
. "$root/scripts/demo-lib.sh"

folder=${CARGO_TARGET_DIR:-$root/target}/demo
results=$folder/results
logs=$folder/logs
rm -rf "$results" "$logs"
mkdir -p "$results" "$logs"

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

# Real files, always the same ones on the same machine, in an archive of about $archive_mb MB.
prepare_pbzip2() {
    has pbzip2 || return
    find /usr/share /usr/lib -xdev -type f -printf '%s %p\n' 2>/dev/null | LC_ALL=C sort -k2 |
        awk -v limit="$archive_mb" '
            { if (total + $1 <= limit * 1e6) { total += $1; print substr($0, index($0, " ") + 1) } }' >"$work/list"
    tar -cf "$work/archive.tar" -C / --verbatim-files-from -T "$work/list"
}

prepare_redis() { has redis-check-rdb redis-cli redis-benchmark taskset; }

prepare_python() {
    has python3 || return
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
    python3 -c 'import multiprocessing'
}

# One connection asks MariaDB for single rows. Its tables are made once.
prepare_mariadb() {
    has mariadbd mariadb-install-db my_print_defaults sysbench || return
    cat >"$work/mariadb.sh" <<'MARIADB'
folder=$1 command=$2
sysbench="sysbench oltp_point_select --mysql-socket=$folder/socket --mysql-user=root --mysql-db=demo --tables=1
    --table-size=10000 --threads=1 --time=0"
mariadbd --no-defaults --user="$(id -un)" --datadir="$folder/data" --socket="$folder/socket" --skip-networking \
    --pid-file="$folder/pid" --innodb-fast-shutdown=2 >"$folder/log" 2>&1 &
server=$!
trap 'kill "$server"; exit 130' INT TERM
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
    mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$work/mariadb/data" --skip-test-db \
        --auth-root-authentication-method=normal || return
    mkdir "$work/mariadb/data/demo"
    sh "$work/mariadb.sh" "$work/mariadb" prepare
}

prepare_relay() { :; }

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

# leave_out NAME WHY: one line now, and again beside the table.
left_out=()
leave_out() {
    left_out+=("$1 is left out: $2")
    printf '%s\n' "${left_out[-1]}"
}

# prepare NAME: whether it can run here. `set -e` does not hold inside a condition, so it is the last command that
# counts.
prepare() {
    local log=$logs/prepare-$1.txt
    reason="it could not be prepared: ${log#"$PWD"/} says why"
    "prepare_$1" >"$log" 2>&1 || { leave_out "$1" "$reason"; return 1; }
}

# compare NAME METRIC COMMAND: pairs, one more run under Gleaner, and a row of the table.
rows=()
compare() {
    local name=$1 metric=$2 command=$3 log=$logs/$1.txt better=""
    reason="it failed here: ${log#"$PWD"/} says why"
    [[ -z $metric ]] || { metric=--metric=$metric better=--higher-is-better; }
    # shellcheck disable=SC2086 # the command is a list of words
    "$gleaner" ab -n "$pairs" ${metric:+"$metric" "$better"} ${metric:+--metric-name=per-second} \
        --json "$results/$name-ab.json" -- $command >"$log" 2>&1 || return
    sed "s/^/  /; s|$work/||g; s|$root/||g" "$log"
    # shellcheck disable=SC2086 # the same
    "$gleaner" run --observer "$observer" --json "$results/$name-run.json" -- $command >"$log" 2>&1 || return
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
    if [[ $busy -lt 20 ]]; then
        why="so there is nothing to win: the host polls for it, or this is no VM"
    else
        why="because other programs keep the vCPUs busy: what Gleaner wins on a quiet machine cannot be seen now"
    fi
    printf '\nA halted vCPU is woken about as soon here as one that is kept awake, %s.\n' "$why"
fi

for program in "${programs[@]}"; do
    IFS='|' read -r name what metric command <<<"$program"
    headline "$name ($what): $pairs pairs without Gleaner (off) and with it (full)"
    prepare "$name" || continue
    printf 'gleaner ab -n %s %s-- %s\n\n' "$pairs" "${metric:+"--metric='$metric' --higher-is-better "}" "$(shorter "$command")"
    compare "$name" "$metric" "$command" || leave_out "$name" "$reason"
done
[[ ${#rows[@]} -gt 0 ]] || { echo "demo: no program could be run; the lines above say why" >&2; exit 1; }

headline "What these pairs took (medians)"
{
    echo "program|off|Gleaner|speed-up|95 % interval|verdict|wake p99, us|polled, vCPU s|by|all undone"
    printf '%s\n' "${rows[@]}"
} | column -t -s '|'
[[ ${#left_out[@]} -eq 0 ]] || printf '\n%s' "${left_out[@]}" $'\n'

# Paths of the work folder say nothing to whoever reads the page.
sed -i "s|$work/||g" "$results"/*.json
shown=()
for row in "${rows[@]}"; do shown+=("$results/${row%%|*}-ab.json" "$results/${row%%|*}-run.json"); done
"$gleaner" report --title "Gleaner on $(uname -n), $(date -u +%F)" -o "$folder/report.html" "${shown[@]}" "$results/doctor.json"
hypervisor=$(sed -n 's/^hypervisor *//p' "$work/doctor.txt")
[[ $busy -lt 20 ]] && others="" || others=", of which other programs used $busy %"
cat <<EOF

Measured $(date -u '+%Y-%m-%d %H:%M UTC') on $(uname -n): $hypervisor, Linux $(uname -r), $(nproc) vCPUs$others.
A speed-up above 1: faster under Gleaner. "wake p99", "polled" and "by" are from one more run under Gleaner: how late
its threads ran, what polling cost in vCPU time, and what polled. "all undone": it left the machine as it found it.

This is a demonstration: $pairs pairs tell only a large effect from the noise of a machine whose neighbours nobody
knows, and the interval says so. For a longer one: PAIRS=20 scripts/demo.sh.

The same with figures, for a browser: ${folder#"$PWD"/}/report.html (results in JSON: ${results#"$PWD"/}/)
EOF

"$root/scripts/demo-daemon.sh" "$gleaner"
