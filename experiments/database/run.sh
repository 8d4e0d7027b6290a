#!/usr/bin/env bash
# Figure 8 on this machine: MariaDB under sysbench OLTP, off and full, by number of connections. About five minutes.
#
#   PAIRS=5 SECONDS_EACH=5 experiments/database/run.sh [CONNECTIONS...]      default: 16 20 48
#   ROUNDS=5 experiments/database/run.sh vms       Figures 8 and 9: in one, two and three VMs of the test bed, Gleaner
#       in each, and `pipeline`
#                                                  beside OLTP; 40 minutes measured (30, 75 and 30 steps)
#   ROUNDS=5 experiments/database/run.sh overhead  what of OLTP's loss at 48 connections in two VMs is by being watched;
#       10 minutes (25 steps)
. "$(dirname "$0")/../lib.sh" "$@"
if [[ ${1:-} == vms ]]; then
    fresh "$folder"/vms-{1,2,3}.json
    scripts/setup.sh build test bed >&2
    for n in 1 2 3; do
        scenario "experiments/database/vms-$n.toml" ${ROUNDS:+--rounds "$ROUNDS"}
        experiments/database/sums.sh "$folder/vms-$n.json" | tee "$folder/vms-$n-sums.txt"
    done
    exit
fi
if [[ ${1:-} == overhead ]]; then
    fresh "$folder/overhead.json"
    scripts/setup.sh build test bed >&2
    scenario experiments/database/overhead.toml ${ROUNDS:+--rounds "$ROUNDS"}
    experiments/database/sums.sh "$folder/overhead.json" | tee "$folder/overhead-sums.txt"
    exit
fi
scripts/setup.sh experiments >&2
connections=("${@:-16}")
[[ $# -gt 0 ]] || connections=(16 20 48)
for count in "${connections[@]}"; do fresh "$folder/oltp-$count.json"; done
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-database.XXXXXX")
server=""
trap '[[ -z $server ]] || kill $server 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
data=$work/data
mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$data" --auth-root-authentication-method=socket >"$work/install.log" 2>&1
say "preparing 100,000 rows"
mariadbd --no-defaults --user="$(id -un)" --datadir="$data" --socket="$data.sock" --skip-networking >"$data.log" 2>&1 &
server=$!
for _ in $(seq 200); do mariadb-admin --no-defaults --socket="$data.sock" ping >/dev/null 2>&1 && break; sleep 0.1; done
mariadb --no-defaults --socket="$data.sock" -e 'create database sbtest'
sysbench oltp_read_write --mysql-socket="$data.sock" --mysql-user="$(id -un)" --mysql-db=sbtest --tables=1 --table-size=100000 prepare >/dev/null
kill $server
wait $server || true
server=""
for count in "${connections[@]}"; do
    say "$count connections"
    compare "oltp-$count" -n "${PAIRS:-5}" --warmup 1 --metric 'transactions:.*\(([0-9.]+) per sec' --metric-name transactions/s --higher-is-better \
        -- experiments/database/oltp.sh "$data" "$count" "${SECONDS_EACH:-5}"
    cat "$folder/oltp-$count.txt"
done
