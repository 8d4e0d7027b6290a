#!/usr/bin/env bash
# Recording real programs: what it costs, how far their replay is from what was recorded, and one what-if each. About
# two minutes, as root.
. "$(dirname "$0")/../lib.sh" "$@"
laboratory
pairs=${PAIRS:-5}

data=$(mktemp)
trap 'rm -f "$data"' EXIT
# Text that compresses: 24 MB of the sources' own.
while [ "$(stat -c %s "$data")" -lt 25000000 ]; do cat crates/*/src/*.rs >>"$data"; done

program() {
    case $1 in
    pipeline) "${@:2}" "$gleaner" workload pipeline --threads 2 --items 20000 --granularity 40us ;;
    barrier) "${@:2}" "$gleaner" workload barrier --threads 2 --items 20000 --granularity 50us ;;
    pigz) "${@:2}" pigz -p4 -kc "$data" ;;
    esac >/dev/null 2>>"$folder/log.txt"
}
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
took() {
    local began
    began=$(date +%s%N)
    "$@"
    echo $((($(date +%s%N) - began) / 1000))
}

for name in pipeline barrier pigz; do
    say "$name"
    file=$folder/$name.glthreads
    : >"$folder/$name.alone" && : >"$folder/$name.recorded"
    for _ in $(seq "$pairs"); do
        took program "$name" env >>"$folder/$name.alone"
        took program "$name" "$gleaner" record --threads -o "$file" --json "$folder/$name.record.json" -- >>"$folder/$name.recorded"
    done
    alone=$(median <"$folder/$name.alone") recorded=$(median <"$folder/$name.recorded")
    # The last recording.
    {
        echo "== $name: median of $pairs runs, interleaved: alone $alone us, recorded $recorded us, ratio $(awk "BEGIN { printf \"%.3f\", $recorded / $alone }")"
        "$lab" sim from-recording "$file" --vcpus 16 --pcpus 8 --slice 1ms --neighbour matmul --json "$folder/$name.json"
    } | tee -a "$folder/results.txt"
    rm -f "$file"
done
