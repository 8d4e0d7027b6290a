# Table I: a guest's spinlocks, waited for and held, by slice and neighbour: medians of the rounds' averages, in us.
# jq -s -r -L experiments/slices -f locks.jq locks.json
include "lib";
slices as $slices
| [.[] | .runs[] | good | {slice, workload, beside: ([.background[].workload] | join(", ")),
    waited: .latency.mean_ns, waited_p99: .latency.p99_ns, held: .holding.mean_ns, held_p99: .holding.p99_ns}] as $runs
| def figure(f): map(f | values) | if length == 0 then "-" else map(us) | spread | shown(1) end;
  "us. A run's mean and p99, of these the median over rounds with its 95 % interval. workload, beside, slice: waited, mean; p99; held, mean; p99",
  ($runs | group_by([.workload, .beside])[] | .[0] as $who | . as $of
    | $slices[] as $s | [$of[] | select(.slice == $s)] | select(length > 0)
    | "  \($who.workload), \($who.beside), \($s): \(figure(.waited)); \(figure(.waited_p99)); \(figure(.held)); \(figure(.held_p99))")
