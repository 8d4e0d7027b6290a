#!/usr/bin/env bash
# What observing and deciding cost in an earlier commit and in this tree, as ratios from one interleaved run.
#
#   scripts/bench-against.sh COMMIT [ROUNDS]
#
# Of each round: what the kernel counts per run of the BPF programs at a switch and at a wake-up (`switch_cost`); CPU
# time of a window for each observer (`window_cost`, 64 threads); CPU time of a window with the policy, of a real run.
# The last lines are the medians of both, and of the ratios within rounds. Needs root; minutes to build, two to run.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=${1:?which commit? scripts/bench-against.sh COMMIT [ROUNDS]}
rounds=${2:-5}
host=$(rustc -vV | sed -n 's/^host: //p')
here=$PWD/target/against
old=$here/old
mkdir -p "$here"
[[ -d $old ]] || git worktree add --detach "$old" "$commit"
git -C "$old" checkout --quiet --detach "$commit"
export CARGO_TARGET_DIR=$here/build CARGO_INCREMENTAL=0

# Builds what is compared in the folder $1, and leaves it as $here/$2.*.
build() {
    (
        cd "$1"
        cargo bench --quiet --locked --target "$host" -p gleaner-observe --bench switch_cost --bench window_cost --no-run \
            --message-format json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' |
            while read -r found; do cp "$found" "$here/$2.$(basename "${found%-*}")"; done
        cargo build --quiet --release --locked --target "$host" -p gleaner --bin gleaner
        cp "$CARGO_TARGET_DIR/$host/release/gleaner" "$here/$2.gleaner"
    )
}
# What is there already is measured again with RUN_ONLY=1.
[[ -n ${RUN_ONLY:-} ]] || { build "$old" old && build "$PWD" new; }

# "NAME VALUE" a line: one run of everything in build $1.
once() {
    "$here/$1.switch_cost" --bench --pairs 1 --rounds 40000 2>/dev/null |
        awk '$1 == "on_switch" || $1 == "on_waking" { print $1 "_ns", $3 }'
    for observer in bpf procfs; do
        "$here/$1.window_cost" --bench --sample-count 6 "$observer" 2>&1 |
            awk -v name="window_${observer}_ns" '/─ 64 .*own CPU time of a window/ { print name, $(NF - 1) }'
    done
    for observer in bpf procfs; do
        "$here/$1.gleaner" run --observer "$observer" --retain none --json "$here/run.json" --quiet -- \
            "$here/$1.gleaner" workload relay --for 1s >/dev/null 2>&1 || true
        jq -r --arg name "run_window_${observer}_ns" \
            'select(.windows > 0) | "\($name) \(.overhead_cpu_ns / .windows | round)"' "$here/run.json"
    done
}

for ((round = 1; round <= rounds; round++)); do
    # Each goes first in every other round.
    order=(old new)
    ((round % 2)) || order=(new old)
    for build in "${order[@]}"; do once "$build" | sed "s/^/$round $build /"; done
done | tee "$here/series.txt"
jq -Rrn '
    def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
    [inputs | split(" ") | {round: .[0], build: .[1], name: .[2], value: (.[3] | tonumber)}] | group_by(.name)[]
    | . as $all | ($all | map(select(.build == "old") | .value) | median) as $old
    | ($all | map(select(.build == "new") | .value) | median) as $new
    | [$all | group_by(.round)[] | select(length == 2) | (map(select(.build == "new").value)[0]) /
        (map(select(.build == "old").value)[0])] as $ratios
    | "\($all[0].name): old \($old), new \($new), ratio \($ratios | median * 1000 | round / 1000) " +
        "(\($ratios | min * 1000 | round / 1000) to \($ratios | max * 1000 | round / 1000), \($ratios | length) rounds)"
' <"$here/series.txt"
