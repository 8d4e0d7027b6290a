#!/usr/bin/env bash
# Figure 6: joules where RAPL can be read; elsewhere CPU seconds as a stand-in, from the comparisons that
# experiments/programs/run.sh machine has made. Both go into a dated folder.
#
#   experiments/energy/run.sh [PROGRAM...]          joules of each built-in program under off and full; default: all; 15
#       minutes
#   experiments/energy/run.sh [RESULT.json...]      the stand-in; default: machine-*.json of the folder of
#       experiments/programs that is newest
#                                                   by its machine.txt; seconds
#
# PAIRS=n (5), SECONDS_EACH=n (4), SEED=n (of the order within pairs; drawn unless given). POWERCAP=/sys/class/powercap
# is where meters are looked for: intel-rapl:N/energy_uj, packages only, for a package's figure has its cores' in it.
# Usually only root may read them.
. "$(dirname "$0")/../lib.sh" "$@"
powercap=${POWERCAP:-/sys/class/powercap}
meters=()
for meter in "$powercap"/intel-rapl:*; do
    # intel-rapl:0:1 is a part of intel-rapl:0, and psys (the whole board) holds the packages.
    [[ ${meter##*/} =~ ^intel-rapl:[0-9]+$ && -r $meter/energy_uj && $(cat "$meter/name" 2>/dev/null) != psys ]] || continue
    meters+=("$meter")
done

# What was used from one reading to the next: a counter begins again after max_energy_range_uj. Once, at most: a range
# is minutes at full power, a run seconds.
joules() { # joules BEFORE AFTER: files with a line of microjoules for each meter
    local -a before after
    local i range used sum=0
    mapfile -t before <"$1"
    mapfile -t after <"$2"
    for i in "${!meters[@]}"; do
        used=$((after[i] - before[i]))
        range=$(cat "${meters[$i]}/max_energy_range_uj")
        [[ $used -ge 0 ]] || used=$((used + range + 1))
        sum=$((sum + used))
    done
    awk -v microjoules=$sum 'BEGIN { printf "%.6f", microjoules / 1e6 }'
}
# The meters are read inside, around the program, as `gleaner ab` takes its time: setting Gleaner up (a second of
# calibration) is in neither.
# shellcheck disable=SC2016 # for the inner shell
around='to=$1; shift; while [ "$1" != -- ]; do meters="$meters $1"; shift; done; shift; cat $meters >"$to/before"; "$@"; status=$?; cat $meters >"$to/after"; exit $status'
measured() { # measured PROGRAM ITEMS POLICY PAIR: one run, one line of JSON
    "$gleaner" run --quiet --policy "$3" --json "$work/run.json" -- sh -c "$around" sh "$work" "${meters[@]/%//energy_uj}" -- \
        "$gleaner" workload "$1" --threads 2 --items "$2" >"$work/out" 2>&1 || { tail -n 5 "$work/out" >&2; return 1; }
    jq -c --arg program "$1" --arg policy "$3" --argjson pair "$4" --argjson items "$2" --argjson joules "$(joules "$work/before" "$work/after")" \
        '{program: $program, policy: $policy, pair: $pair, items: $items, joules: $joules, wall_ns, cpu_time_ns, retained_ns, steal_ns}' "$work/run.json"
}
measure_joules() {
    local name count pair policy
    local -A items
    # shellcheck source=/dev/null
    . experiments/programs/items.sh
    [[ $# -gt 0 ]] || set -- "${!items[@]}"
    for name in "$@"; do
        [[ -n ${items[$name]:-} ]] || { say "'$name' is no built-in program of experiments/programs/items.sh"; exit 2; }
        fresh "$folder/joules-$name.json"
    done
    work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-energy.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    seed=$(random_seed)
    { echo "seed $seed"; for meter in "${meters[@]}"; do echo "meter $meter $(cat "$meter/name" 2>/dev/null || echo unnamed)"; done; } >>"$folder/order.txt"
    for name in "$@"; do
        count=$(items_for "$name" "${SECONDS_EACH:-4}")
        say "$name, $count items"
        for ((pair = 1; pair <= ${PAIRS:-5}; pair++)); do
            for policy in $(shuffled "$seed/$name/$pair" off full); do measured "$name" "$count" "$policy" "$pair" >>"$work/$name.json"; done
        done
        mv "$work/$name.json" "$folder/joules-$name.json"
    done
    {
        echo "joules of the whole machine from start to end of a run, medians; full / off by pair, median and range"
        for name in "$@"; do
            jq -L experiments -s -r 'include "statistics";
                def of($policy): [.[] | select(.policy == $policy)];
                of("off") as $off | of("full") as $full |
                "\(.[0].program): off \($off | map(.joules) | median | two) J, full \($full | map(.joules) | median | two) J; joules \([$full[] as $x | $off[] | select(.pair == $x.pair and .joules > 0) | $x.joules / .joules] | spread); time \([$full[] as $x | $off[] | select(.pair == $x.pair) | $x.wall_ns / .wall_ns] | spread)"' "$folder/joules-$name.json"
        done
    } | tee "$folder/joules.txt"
}
# The folder with machine-*.json whose machine.txt names the latest run of `machine`: names sort by day, kernel and
# suffix, not by time.
newest() {
    local results
    for results in "$raw"/programs/20*/; do
        compgen -G "${results}machine-*.json" >/dev/null || continue
        awk -v results="$results" '
            /^20[0-9-]+T[0-9:]+Z / { date = $1 }
            /^command: / && (NF == 2 || / machine( |$)/) && date > latest { latest = date }
            END { if (latest != "") print latest, results }' "${results}machine.txt"
    done | sort | tail -n 1 | cut -d' ' -f2
}
stand_in() {
    local from="the files given" file table=$folder/cpu-seconds.txt
    if [[ $# -eq 0 ]]; then
        from=$(newest)
        [[ -n $from ]] || { say "no results of experiments/programs/run.sh machine: run that first, or name files"; exit 1; }
        set -- "$from"machine-*.json
    fi
    fresh "$table"
    {
        echo "# CPU seconds, no energy: no RAPL in $powercap. From $from, medians of each mode."
        echo "# useful: CPU seconds of the same work without Gleaner. rest: what full spent beside useful and retained."
        printf '%-16s %10s %10s %10s %10s %10s %12s\n' program 'full CPU s' useful retained rest full/off 'wall off/full'
        for file in "$@"; do
            jq -r --arg name "$(basename "$file" .json)" '.modes[0].median as $off | .modes[1].median as $on | ($on.retained_ns // 0) as $retained |
                [($name | ltrimstr("machine-")), $on.cpu_time_ns / 1e9, $off.cpu_time_ns / 1e9, $retained / 1e9,
                    ($on.cpu_time_ns - $off.cpu_time_ns - $retained) / 1e9, $on.cpu_time_ns / $off.cpu_time_ns, .speedup.median] | @tsv' "$file" |
                awk -F'\t' '{ printf "%-16s %10.2f %10.2f %10.3f %10.3f %10.3f %12.3f\n", $1, $2, $3, $4, $5, $6, $7 }'
        done
    } | tee "$table"
}

if [[ ${#meters[@]} -gt 0 && ${1:-} != *.json ]]; then
    measure_joules "$@"
else
    [[ $# -eq 0 || $1 == *.json ]] || { say "no readable intel-rapl:*/energy_uj in $powercap (as root?): programs can be measured only there"; exit 1; }
    stand_in "$@"
fi
