# Figures 5 and 6(a, b): throughput and fairness of pairs, or four VMs, by slice. jq -s -r -L experiments/slices -f pairs.jq RESULT...
include "lib";
slices as $slices | steps as $steps | $slices[0] as $first
| "Throughput: mean over the VMs of what each got done relative to alone with its share of the CPUs (equal-capped, same block). Medians over rounds, 95 % interval.",
  ($steps | group_by(.mix)[] | .[0].mix as $mix | . as $of
    | "", "\($mix)", "  slice: throughput; by \($first)'s, paired by round; each VM's share of its own; least by most; Jain",
      ($slices[] as $s | [$of[] | select(.slice == $s)] | select(length > 0) | . as $at
        | "  \($s): \(map(.throughput) | spread | shown(3)); "
          + (if $s == $first then "-" else ($of | paired($s; $first) | spread | shown(3)) end)
          + "; " + ([range($at[0].vms | length) as $i | "\($at[0].vms[$i].program) \([$at[].vms[$i].relative] | med | digits(3))"] | join(", "))
          + "; \(map(.least_by_most) | med | digits(3)); \(map(.jain) | med | digits(3))")),
  "", "Figure 5: throughput by \($first)'s, geometric mean over the pairs that a program is in",
  ([$steps[].vms[].program] | unique[] as $p
    | [$steps[] | select(any(.vms[]; .program == $p))] | group_by(.mix) as $mixes
    | "  \($p) (\($mixes | length)): " + ([$slices[1:][] as $s | [$mixes[] | paired($s; $first) | med | select(. != null)] | select(length > 0)
        | "\($s) \(gmean | digits(3))"] | join(", ")))
