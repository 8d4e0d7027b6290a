#!/usr/bin/env bash
# Figures 3 and 6(c): iperf3 between a VM and this host by the host's slice (network.toml). ROUNDS=n for fewer than 5. Takes root, a quiet machine
# and port 5299 of 127.0.0.1.
. "$(dirname "$0")/../lib.sh" "$@"
scripts/setup.sh build test bed experiments >&2
# Its other end; the emulator passes the guest's packets on to it. On CPU 0: the VMs compute on CPU 1.
taskset -c 0 iperf3 --server --bind 127.0.0.1 --port 5299 >"$folder/network-server.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
scenario experiments/slices/network.toml ${ROUNDS:+--rounds "$ROUNDS"}
rm -f "$folder/network-server.log"
