# Figure 2: execution time beside a VM that computes, by slice, relative to alone with half of the CPUs ("equal-capped solo"), and the same
# of the neighbour. jq -s -r -L experiments/slices -f capped.jq corun-*.json capped-*.json
include "lib";
alone as $alone | slices as $slices
| [.[] | select(is_capped | not) | .scenario.seed as $block | .runs[] | good | program as $p
    | {program: $p, slice, time: (1 / (rate | relative($alone; $p; $block))), latency: .latency.p99_ns,
       neighbour: [.background[] | select(.items_per_second) | .workload as $w | 1 / (.items_per_second | relative($alone; $w; $block))][0]}] as $runs
| [.[] | select(is_capped) | .runs[] | good | select(.latency) | {program: program, p99: .latency.p99_ns}] as $latencies
| "Execution time beside a VM that computes by that alone with half of the CPUs, same block; above 1 is slower. Median over rounds, 95 % interval.",
  "program, slice: its time; the neighbour's time; p99 of its own latency here and alone, ms",
  ($runs | group_by(.program)[] | .[0].program as $p | . as $of | $slices[] as $s | [$of[] | select(.slice == $s)] | select(length > 0)
    | def ms: values | . / 1000000;
      "  \($p), \($s): \(map(.time) | spread | shown(2)); \([.[].neighbour | values] | spread | shown(2))"
      + (if .[0].latency then "; \(map(.latency | ms) | med | digits(2)) and \([$latencies[] | select(.program == $p) | .p99 | ms] | med | digits(2))" else "" end)),
  "", "Share of the cap: CPU time of the capped VM by time, of what computes all the time: " +
    ([.[] | select(is_capped) | .runs[] | good | select(program == "independent") | .host_cpu_ns / .host_wall_ns] | "\(map(digits(2)) | join(" "))")
