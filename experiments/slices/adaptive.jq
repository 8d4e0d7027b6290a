# Show 6: `adaptive` against every slice for all, on each mix and over all. jq -s -r -L experiments/slices -f adaptive.jq RESULT...
include "lib";
def verdict($limit): if .ci95 == null then "not shown: too few rounds" elif .ci95[0] > $limit then "yes" else "no" end;
steps as $steps | [slices[] | select(. != "adaptive")] as $static
| [$steps[] | select(.slice == "adaptive") | .mix] | unique as $mixes
| "Throughput with adaptive by that with a slice for all, paired by round; 95 % interval. Throughput as in table-pairs.txt.",
  ($mixes[] as $mix | [$steps[] | select(.mix == $mix)] as $of
    | ([$static[] as $s | {slice: $s, throughput: ([$of[] | select(.slice == $s) | .throughput] | med)} | select(.throughput)] | max_by(.throughput).slice) as $best
    | "", "\($mix): the best slice for all is \($best) (by its median here)",
      ($static[] as $s | ($of | paired("adaptive"; $s) | spread) | select(.n > 0)
        | "  by \($s): \(shown(3))" + (if $s == $best then "; lower end above 0.95: \(verdict(0.95)); ten pairs: \(if .n >= 10 then "yes" else "no" end)" else "" end)),
      ([$of[] | select(.slice == "adaptive") | .delivered.chosen_ns | values] | "  chose, us: " + (map(. / 1000 | tostring) | join(" "))),
      ([$of[] | select(.slice == "adaptive") | .delivered.changes | values] | "  changes while measured: " + (map(tostring) | join(" ")))),
  "", "Over all \($mixes | length) mixes, geometric mean of a round's ratios:",
  ($static[] as $s
    | [$mixes[] as $mix | [$steps[] | select(.mix == $mix)] | paired("adaptive"; $s)] as $by_mix
    # The n-th pair of each mix: rounds of different files are no rounds of one another.
    | ([$by_mix[] | length] | min) as $n
    | [range($n) as $i | [$by_mix[][$i]] | gmean] | spread
    | "  by \($s): \(shown(3)); better: \(verdict(1))")
