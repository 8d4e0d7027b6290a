# What the tables of experiments/slices share: medians, intervals, what each VM got done relative to alone with its share of the CPUs.
# Input of the tables: all results of one run of run.sh, slurped (jq -s); one result is one block of rounds, whose seed is its number.

def med: sort | length as $n | if $n == 0 then null elif $n % 2 == 1 then .[($n - 1) / 2] else (.[$n / 2 - 1] + .[$n / 2]) / 2 end;
# How many of that many values may lie beyond each end of the median's 95 % interval (gleaner-stats, interval.rs).
def beyond: . as $n | {heads: 0, share: pow(0.5; $n), below: 0}
    | until(.below + .share > 0.025 or .heads > $n; .below += .share | .share *= ($n - .heads) / (.heads + 1) | .heads += 1) | [.heads - 1, 0] | max;
def interval: sort | length as $n | if $n < 5 then null else ($n | beyond) as $b | [.[$b], .[$n - 1 - $b]]
    | if $n == 5 then (.[1] - .[0]) as $d | [.[0] - 0.15 * $d, .[1] + 0.15 * $d] else . end end;
def spread: {median: med, ci95: interval, n: length};
def digits($n): if . == null then "-" else pow(10; $n) as $p | . * $p | round | . / $p | tostring end;
def shown($n): "\(.median | digits($n)) [" + (if .ci95 then (.ci95 | map(digits($n)) | join(", ")) else "no interval" end) + "] n \(.n)";
def us: if . == null then null else . / 1000 end;
def gmean: map(log) | add / length | exp;

def good: select((.warmup | not) and .exit_status == 0 and .wall_ns != null);
# More is better, in units of its own.
def rate: if (.items_per_second // 0) > 0 then .items_per_second else 1e9 / .wall_ns end;
# A label is `program` or `program/anything`.
def program: .workload | split("/")[0];
def is_capped: .name | endswith("capped");
def slices: [.[] | .scenario.machine.slices // [] | .[]] | reduce .[] as $s ([]; if index([$s]) then . else . + [$s] end);

# Of each program alone with its share of the CPUs: its rate in each block, and over all.
def alone: [.[] | select(is_capped) | .scenario.seed as $block | .runs[] | good | {$block, program: program, rate: rate}]
    | group_by(.program)
    | map({key: .[0].program, value: {all: (map(.rate) | med), n: length,
        block: (group_by(.block) | map({key: (.[0].block | tostring), value: (map(.rate) | med)}) | from_entries)}})
    | from_entries;
# A rate relative to that of the same block; to all blocks' where that one has none.
def relative($alone; $program; $block):
    . / (($alone[$program] // error("\($program): no run of it alone with its share of the CPUs")) | .block[$block | tostring] // .all);

# Every step in which all measured VMs ended well: how far each got relative to alone with its share, their mean (throughput: 1 is as much
# as if nobody lost by sharing), their harmonic mean (balanced: a VM that starves costs as much as it gives), and fairness: the least by the
# most, and Jain's index.
def steps: alone as $alone
    | [.[] | select(is_capped | not) | .scenario.seed as $block | ([.scenario.vm[] | select(.role == "measured")] | length) as $vms
        | [.runs[] | good] | group_by([.round, .order])[] | select(length == $vms)
        | {id: "\($block)/\(.[0].round)", slice: .[0].slice, mix: (sort_by(.vm) | map(program) | join(" + ")), delivered: .[0].delivered,
           vms: (sort_by(.vm) | map(program as $p | {program: $p, relative: (rate | relative($alone; $p; $block))}))}
        | [.vms[].relative] as $r
        | . + {throughput: (($r | add) / ($r | length)), balanced: (($r | length) / ($r | map(1 / .) | add)), least_by_most: (($r | min) / ($r | max)),
               jain: (($r | add) * ($r | add) / (($r | length) * ($r | map(. * .) | add)))}];
# What `of` says of one slice by that of another, of the same mix and round; throughput, unless said.
def paired($a; $b; of): (map(select(.slice == $b) | {key: "\(.mix) \(.id)", value: of}) | from_entries) as $of
    | [.[] | select(.slice == $a) | select($of["\(.mix) \(.id)"]) | of / $of["\(.mix) \(.id)"]];
def paired($a; $b): paired($a; $b; .throughput);
