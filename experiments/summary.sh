#!/usr/bin/env bash
# What folders of raw results come to, for the tree: experiments/summary.sh RAW-FOLDER... >experiments/NAME/summary.json
#
# For each run its machine, and a row for each case: medians over the rounds that lie in files of their own
# (NAME-1.json, NAME-2.json). Raw results stay out of the tree (experiments/README.md).
set -euo pipefail
shopt -s nullglob

[[ $# -gt 0 ]] || { echo "usage: $0 RAW-FOLDER..." >&2; exit 2; }
library=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What run.sh wrote down of the machine; where a run was by hand, what its doctor said.
machine() {
    if [[ -e $1/machine.txt ]]; then
        grep -hE -m 8 'commit|^(hypervisor|kernel|vcpus|CPU|machine)' "$1/machine.txt"
    elif [[ -e $1/doctor.json ]]; then
        jq -r '.machine | "\(.hypervisor), Linux \(.kernel), \(.vcpus_online) vCPUs; idle: \(.idle_driver)"' \
            "$1/doctor.json"
    elif [[ -e $1/doctor.txt ]]; then
        grep -hE -m 2 '^(hypervisor|machine)' "$1/doctor.txt"
    else
        echo "not written down but in the folder's name"
    fi || true
}

# What was printed, apart from what says how it was measured.
printed() {
    find "$1" -maxdepth 1 -name '*.txt' ! -name machine.txt ! -name order.txt ! -name steal.txt \
        ! -name demo.txt -size -6k | sort
}

for folder in "$@"; do
    run=$(basename "$folder")
    [[ -d $folder ]] || { echo "$folder: no such folder" >&2; exit 2; }
    machine "$folder" | cut -c1-160 | jq -R . | jq -s --arg run "$run" '{run: $run, machine: .}' >>"$scratch/machines"
    for file in "$folder"/*.json "$folder"/*.jsonl; do
        jq -c --arg run "$run" --arg file "$(basename "$file")" -L "$library" \
            'include "summary"; rows($run; $file)' "$file"
    done >"$scratch/of-this"
    cat "$scratch/of-this" >>"$scratch/rows"
    # Of what has no result in JSON, what was printed; beside results it is the first to go where there is no room.
    to=texts
    [[ ! -s $scratch/of-this ]] || to=beside
    while read -r file; do
        [[ ! -e ${file%.txt}.json && ! -e ${file%.txt}.jsonl ]] || continue
        jq -R . "$file" | jq -s -c --arg name "$run/$(basename "$file" .txt)" \
            '{name: $name, lines: map(sub("\\s+$"; ""))}' >>"$scratch/$to"
    done < <(printed "$folder")
done
touch "$scratch/rows" "$scratch/texts" "$scratch/beside"

summary() {
    cat "$@" >"$scratch/printed"
    jq -n -r -L "$library" --slurpfile machines "$scratch/machines" --slurpfile rows "$scratch/rows" \
        --slurpfile texts "$scratch/printed" 'include "summary"; page($machines; $rows; $texts)' >"$scratch/summary"
    [[ $(stat -c %s "$scratch/summary") -le 100000 ]]
}
summary "$scratch/texts" "$scratch/beside" || summary "$scratch/texts" ||
    { echo "$0: over 100 kB; name fewer folders" >&2; exit 1; }
cat "$scratch/summary"
