#!/bin/sh
# One client asks Redis, each on a vCPU of its own: both wait for each other all the time. Prints the rate.
#
#   scripts/redis-one-client.sh [REQUESTS]      default: 50000
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-redis.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
socket=$work/socket last=$(($(nproc) - 1))
# In redis-tools the server has another name, and is what it is called as.
ln -s "$(command -v redis-check-rdb)" "$work/redis-server"
taskset -c 0 "$work/redis-server" --port 0 --unixsocket "$socket" --save "" --appendonly no >/dev/null &
server=$!
until redis-cli -s "$socket" ping >/dev/null 2>&1; do
    kill -0 "$server"
    sleep 0.02
done
taskset -c "$last" redis-benchmark -s "$socket" -c 1 -n "${1:-50000}" -t get -q
redis-cli -s "$socket" shutdown nosave >/dev/null 2>&1 || true
wait "$server"
server=
