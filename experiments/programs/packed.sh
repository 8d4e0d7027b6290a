#!/usr/bin/env bash
# How fast is each program in a guest of 4 vCPUs when its threads may use all of them, two, or one, beside a VM that
# computes? No policy acts: what consolidation could gain, and what hand-overs say of it. About six minutes.
#
#   ROUNDS=3 experiments/programs/packed.sh
. "$(dirname "$0")/../lib.sh" "$@"
fresh "$folder/packed.txt"
begun=yes
scripts/setup.sh build test >&2
kernel=$(testbed/fetch-kernel.sh 6.1 | tail -n 1 | cut -d' ' -f2)
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-packed.XXXXXX")
neighbour=""
trap '[[ -z $neighbour ]] || kill "$neighbour" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
echo 'gleaner workload matmul --threads 2 --items 1000000000 --granularity 20us >/dev/null 2>&1' >"$work/neighbour.sh"
{
    echo "rounds=${ROUNDS:-3}"
    cat <<'GUEST'
run() { # run LABEL ARGUMENTS...: a line for each mask
    label=$1
    shift
    for mask in f 3 1; do
        taskset $mask gleaner run --quiet --policy observe --observer procfs --json /tmp/x.json -- gleaner workload "$@" >/tmp/o 2>&1 || { cat /tmp/o; exit 1; }
        key() { tr -d '\n ' </tmp/x.json | grep -oE "\"$1\":[0-9.]+" | head -n 1 | cut -d: -f2; }
        echo "$label $mask $(key wall_ns) $(key cpu_time_ns) $(key voluntary_switches) $(key involuntary_switches)"
    done
}
round=0
while [ $round -lt "$rounds" ]; do
    run relay-2 relay --threads 2 --items 64000 --granularity 5us
    run relay relay --threads 4 --items 32000 --granularity 5us
    run pipeline pipeline --threads 2 --items 3000 --granularity 2us
    run barrier barrier --threads 4 --items 24000 --granularity 5us
    run task-queue task-queue --threads 4 --items 500000 --granularity 5us
    run fork-join fork-join --threads 4 --items 10000 --granularity 5us
    run independent independent --threads 4 --items 50000
    run request-reply request-reply --threads 4 --items 14000 --granularity 5us
    run address-space address-space --threads 4 --items 2000
    run block-io block-io --threads 4 --items 36000
    round=$((round + 1))
done
GUEST
} >"$work/measured.sh"
say "${ROUNDS:-3} rounds of 10 programs on 4, 2 and 1 vCPUs"
testbed/guest.sh --binary "$gleaner" --timeout 3600 "$kernel" "$work/neighbour.sh" 2 >"$work/neighbour.log" 2>&1 &
neighbour=$!
sleep 8
echo "# program, mask of vCPUs (f: all four), wall ns, CPU ns, voluntary and involuntary switches" >"$folder/packed.txt"
testbed/guest.sh --binary "$gleaner" --timeout 3600 "$kernel" "$work/measured.sh" 4 >>"$folder/packed.txt"
sort -s -k1,2 "$folder/packed.txt" | awk '
    function median(n,    i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j-1] > v[j]; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t } return n % 2 ? v[(n+1)/2] : (v[n/2] + v[n/2+1]) / 2 }
    /^#/ { next }
    { key = $1 " " $2; if (!(key in count)) { if (!($1 in seen)) { seen[$1] = 1; order[++programs] = $1 } } count[key]++; wall[key, count[key]] = $3 / 1e9; rate[key, count[key]] = $5 / $3; both[key, count[key]] = ($5 + $6) / $3 }
    function of(a, key,    i) { for (i = 1; i <= count[key]; i++) v[i] = a[key, i]; return median(count[key]) }
    END { print "program          s on 4   faster on 2, voluntary switches/s, all switches/s    on 1"
        for (p = 1; p <= programs; p++) { name = order[p]; all = of(wall, name " f"); printf "%-14s %8.2f", name, all
            for (m = 3; m >= 1; m -= 2) { key = name " " m; printf "   %6.2f %6.2f %6.2f", all / of(wall, key), of(rate, key) / of(rate, name " f"), of(both, key) / of(both, name " f") } print "" } }' | tee "$folder/packed-table.txt"
