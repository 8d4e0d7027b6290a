#!/usr/bin/env bash
# A MariaDB server of our own and a sysbench OLTP load on it, over a socket; both end when this ends. Prints what
# sysbench prints.
#
#   oltp.sh DATADIR CONNECTIONS SECONDS      DATADIR: made by run.sh
set -euo pipefail
datadir=$1 connections=$2 seconds=$3
socket=$datadir.sock
mariadbd --no-defaults --user="$(id -un)" --datadir="$datadir" --socket="$socket" --skip-networking --pid-file="$datadir.pid" \
    --innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=2 --max-connections=200 >"$datadir.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server || true' EXIT
for _ in $(seq 200); do
    mariadb-admin --no-defaults --socket="$socket" ping >/dev/null 2>&1 && break
    kill -0 $server 2>/dev/null || { tail -n 5 "$datadir.log" >&2; exit 1; }
    sleep 0.1
done
sysbench oltp_read_write --mysql-socket="$socket" --mysql-user="$(id -un)" --mysql-db=sbtest --tables=1 --table-size=100000 \
    --threads="$connections" --time="$seconds" run
