#!/usr/bin/env bash
# Every row of the papers' results, as docs/research/reproduction-rows.md: experiments/simulator/rows.sh [--check]
#
# Made from the summaries; --check says whether the page is current (`make check`).
set -euo pipefail
cd "$(dirname "$0")/../.."
page=docs/research/reproduction-rows.md

rows() {
    cat <<'HEAD'
# Every row of the papers' results

Made by `experiments/simulator/rows.sh` from the summaries of [experiments/simulator](../../experiments/simulator/) and
[experiments/cachesim](../../experiments/cachesim/). [Reproductions](reproductions.md) says what a row is, and when it
agrees.

"Fitted" rows were used for calibration, or depend on a value without a source. They count for nothing. Where the paper
gives no number, its words stand there. Scheduling rows have two seeds; cache rows do not depend on one.

HEAD
    jq -n -r --slurpfile sim experiments/simulator/summary.json --slurpfile cache experiments/cachesim/summary.json '
        def number: if type == "number" then (if fabs >= 1000 then round else . end) | tostring else . // "" end;
        def verdict($a; $b; $fitted):
            if $fitted then "fitted"
            elif $a == null then "open"
            elif $b == null or $a == $b then (if $a then "agrees" else "no" end)
            else "by one seed" end;
        def row($ours; $other; $seeds):
            ($ours[0] | split(" | ")) as $at | $ours[1] as $one | (if $other then $other[1] else null end) as $two
            | "| \($at[1]) | \($at[2]) | \($one.paper // $at[3] | number) | \($one.simulated | number)"
              + (if $seeds then " | \($two.simulated | number)" else "" end)
              + " | \(verdict($one.agrees; $two.agrees; $one.fitted // false)) |";
        def section($id; $rows; $others; $seeds):
            "\n## \($id)\n\n| case | figure | paper | ours" + (if $seeds then ", seed 1 | seed 2" else "" end) + " | |\n"
            + "| --- | --- | --- | --- | --- |" + (if $seeds then " --- |" else "" end) + "\n"
            + ([$rows[] | . as $row | row($row; ([$others[] | select(.[0] == $row[0])] | first); $seeds)] | join("\n"));
        def ids: map(.[0] | split(" | ")[0]) | reduce .[] as $id ([]; if index([$id]) then . else . + [$id] end);
        $sim[0].results as $all
        | ([$all | to_entries[] | select(.key | test("/reproductions-1$"))] | last.value) as $one
        | ([$all | to_entries[] | select(.key | test("/reproductions-2$"))] | last.value) as $two
        | ($one | ids[]) as $id
        | section($id; [$one[] | select(.[0] | startswith($id + " | "))]; $two; true)'
    jq -r '
        def number: if type == "number" then tostring else . // "" end;
        [.results | to_entries[] | select(.key | test("/(fig7-10|fig8-10|fig10-10|fig11-10|fig12-3)$"))]
        | sort_by(.key | capture("/fig(?<n>[0-9]+)").n | tonumber)[]
        | "\n## \(.value[0][0] | split(" | ")[0])\n\n| case | figure | paper | ours | |\n| --- | --- | --- | --- | --- |\n"
          + ([.value[] | (.[0] | split(" | ")) as $at | .[1] as $row
              | "| \($at[1]) | \($at[2]) | \($row.paper // $at[3] | number) | \($row.simulated | number) | \(if $row.agrees then "agrees" else "no" end) |"]
             | join("\n"))' experiments/cachesim/summary.json
}

case ${1:-} in
    --check)
        command -v jq >/dev/null || { echo "rows: jq is missing, so $page was not looked at" >&2; exit 0; }
        rows | cmp -s - "$page" || { echo "rows: $page is stale: run $0" >&2; exit 1; }
        ;;
    "") rows >"$page" ;;
    *) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac
