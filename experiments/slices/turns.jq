# `adaptive` against every slice for all, by turns of one run: jq -s -r -L experiments/slices -f turns.jq RESULT... CAPPED-RESULT...
# A run of the programs counts once: of each slice what the VMs got done in all its turns, which are as many and as long for everybody.
include "lib";
def verdict($limit): if .ci95 == null then "not shown: too few runs" elif .ci95[0] > $limit then "yes" else "no" end;
# As `steps` of lib.jq: one entry for each run and slice.
def in_turn_steps: alone as $alone
    | [.[] | select(.in_turn) | .scenario.seed as $block | .in_turn[] | select(.warmup | not) | . as $run
        | [.vms[].workload | split("/")[0]] as $programs
        # Passes in which everything of every slice is known.
        | ([.turns[].slice] | unique) as $slices
        | [.turns | group_by(.pass)[] | select(length == ($slices | length) and all(.[]; all(.items_per_second[]; . != null)))] as $passes
        | $slices[] as $slice
        | [$passes[][] | select(.slice == $slice) | .items_per_second] as $rates
        | [range($programs | length) as $i | ([$rates[][$i]] | add / length) / $alone[$programs[$i]].all] as $r
        | {id: "\($block)/\($run.round)", slice: $slice, mix: ($programs | join(" + ")), passes: ($passes | length), chosen_ns: $run.chosen_ns, changes: $run.changes,
           agent: $run.agent_cpu_ratio, relative: $r, throughput: (($r | add) / ($r | length)), balanced: (($r | length) / ($r | map(1 / .) | add))}];
def by_slice($steps; $static; $mixes; of):
    ($mixes[] as $mix | [$steps[] | select(.mix == $mix)] as $of
    | ([$static[] as $s | {slice: $s, value: ([$of[] | select(.slice == $s) | of] | med)}] | max_by(.value).slice) as $best
    | "", "\($mix): the best slice for all is \($best) (by its median here)",
      ($static[] as $s | ($of | paired("adaptive"; $s; of) | spread)
        | "  by \($s): \(shown(3))" + (if $s == $best then "; lower end above 0.95: \(verdict(0.95))" else "" end))),
    "", "Over all \($mixes | length) mixes, geometric mean of a round's ratios:",
    ($static[] as $s
    | [$mixes[] as $mix | [$steps[] | select(.mix == $mix)] | paired("adaptive"; $s; of)] as $by_mix
    | ([$by_mix[] | length] | min) as $n
    | [range($n) as $i | [$by_mix[][$i]] | gmean] | spread
    | "  by \($s): \(shown(3)); better: \(verdict(1))");
in_turn_steps as $steps | [slices[] | select(. != "adaptive")] as $static | ([$steps[].mix] | unique) as $mixes
| "HARMONIC MEAN with adaptive by that with a slice for all, of the same run; 95 % interval.", by_slice($steps; $static; $mixes; .balanced),
  "", "THROUGHPUT, likewise.", by_slice($steps; $static; $mixes; .throughput),
  "", "What the VMs got done relative to alone with their share, medians; what adaptive chose in the end, us, and changes; passes; the agent, % of a CPU:",
  ($mixes[] as $mix | [$steps[] | select(.mix == $mix)] as $of | "  \($mix)",
    (($static + ["adaptive"])[] as $s | [$of[] | select(.slice == $s) | .relative] | "    \($s): \([transpose[] | med | digits(2)] | join(" "))"),
    ([$of[] | select(.slice == "adaptive")] | "    \([.[].chosen_ns | values / 1000 | tostring] | join(" ")); \([.[].changes | values | tostring] | join(" ")); \([.[].passes | tostring] | join(" ")); \([.[].agent * 100] | med | digits(2))"))
