# shellcheck shell=bash disable=SC2154 # the caller has $gleaner and items
# Items of each program for 0.25 to 2 s on the test machine (docs/research/workloads.md), two threads; how long depends
# on the hour.
items=([pipeline]=45000 [relay]=60000 [barrier]=25000 [task-queue]=130000 [fork-join]=4000 [independent]=9000 [matmul]=3000 [request-reply]=18000
    [address-space]=30000 [block-io]=22000)

# items_for NAME SECONDS: as many as take about so long at this hour, from the median of three runs without Gleaner.
items_for() {
    local walls
    walls=$(for _ in 1 2 3; do "$gleaner" workload "$1" --threads 2 --items "${items[$1]}" --json 2>/dev/null | sed -n 's/^  "wall_ns": \([0-9]*\),$/\1/p'; done | sort -n)
    echo $((${items[$1]} * $2 * 1000000000 / $(sed -n 2p <<<"$walls")))
}
