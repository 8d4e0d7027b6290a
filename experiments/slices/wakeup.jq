# Wake-up p99 of a spinning guest by slice, and the first slice's by another's. jq -s -r -L experiments/slices -f wakeup.jq wakeup.json
include "lib";
slices as $slices | [.[] | .scenario.seed as $block | .runs[] | good | select(.metric) | {id: "\($block)/\(.round)", slice, p99: .metric.value}] as $runs
| $slices[0] as $first | ($runs | map(select(.slice == $first) | {key: .id, value: .p99}) | from_entries) as $of
| "Wake-up p99 of a spinning guest beside a VM that computes: us; \($first)'s by this slice's, paired by round. 5 is wanted at 1ms.",
  ($slices[] as $s | [$runs[] | select(.slice == $s)] | select(length > 0)
    | "  \($s): \(map(.p99 | us) | spread | shown(0))" + (if $s == $first then "" else "; \([.[] | select($of[.id]) | $of[.id] / .p99] | spread | shown(2))" end))
