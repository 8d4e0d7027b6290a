# Figures 3 and 6(c): iperf3 by slice: Mbit/s received, or jitter in ms. jq -s -r -L experiments/slices -f network.jq network.json [network-mix.json]
include "lib";
.[] | .name as $name | ([.] | slices) as $slices
| "\($name): Mbit/s, or jitter in ms. Median over rounds, 95 % interval.",
  ([.runs[] | good | select(.metric) | {slice, workload, beside: ([.background[].workload] | join(", ")), value: .metric.value}] | group_by([.workload, .beside])[]
    | .[0] as $who | . as $of | $slices[] as $s | [$of[] | select(.slice == $s) | .value] | select(length > 0)
    | "  \($who.workload), beside \($who.beside), \($s): \(spread | shown(3))")
