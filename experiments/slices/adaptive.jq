# Show 6: `adaptive` against every slice for all, on each mix and over all. jq -s -r -L experiments/slices -f adaptive.jq RESULT...
include "lib";
def verdict($limit): if .ci95 == null then "not shown: too few rounds" elif .ci95[0] > $limit then "yes" else "no" end;
def by_slice($steps; $static; $mixes; of):
    ($mixes[] as $mix | [$steps[] | select(.mix == $mix)] as $of
    | ([$static[] as $s | {slice: $s, value: ([$of[] | select(.slice == $s) | of] | med)} | select(.value)] | max_by(.value).slice) as $best
    | "", "\($mix): the best slice for all is \($best) (by its median here)",
      ($static[] as $s | ($of | paired("adaptive"; $s; of) | spread) | select(.n > 0)
        | "  by \($s): \(shown(3))" + (if $s == $best then "; lower end above 0.95: \(verdict(0.95)); ten pairs: \(if .n >= 10 then "yes" else "no" end)" else "" end))),
    "", "Over all \($mixes | length) mixes, geometric mean of a round's ratios:",
    ($static[] as $s
    | [$mixes[] as $mix | [$steps[] | select(.mix == $mix)] | paired("adaptive"; $s; of)] as $by_mix
    # The n-th pair of each mix: rounds of different files are no rounds of one another.
    | ([$by_mix[] | length] | min) as $n
    | [range($n) as $i | [$by_mix[][$i]] | gmean] | spread
    | "  by \($s): \(shown(3)); better: \(verdict(1))");
steps as $steps | [slices[] | select(. != "adaptive")] as $static
| [$steps[] | select(.slice == "adaptive") | .mix] | unique as $mixes
| "THROUGHPUT with adaptive by that with a slice for all, paired by round; 95 % interval. Throughput as in table-pairs.txt.",
  by_slice($steps; $static; $mixes; .throughput),
  "", "HARMONIC MEAN of what the VMs got done relative to alone with their share, likewise: starving one for another does not pay.",
  by_slice($steps; $static; $mixes; .balanced),
  "", "What adaptive chose in the end, us, and changes while measured:",
  ($mixes[] as $mix | [$steps[] | select(.mix == $mix and .slice == "adaptive") | .delivered]
    | "  \($mix): \([.[].chosen_ns | values / 1000 | tostring] | join(" ")); \([.[].changes | values | tostring] | join(" "))")
