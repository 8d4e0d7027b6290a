# Rows of results and the page that they make; summary.sh uses it.
include "statistics";

# Four significant digits are more than anything here is known by. DIGITS: what is drawn or rounded again needs one more.
def short:
    if type != "number" or . == 0 then .
    else . as $x | (($x | fabs | log10 | floor) + 1 - (env.DIGITS // "4" | tonumber)) as $digit
        | if $digit >= 0 then ($x / pow(10; $digit) | round) * pow(10; $digit) | round
          else pow(10; -$digit) as $by | ($x * $by | round) / $by end
    end;
def known: with_entries(select(.value != null));
def over($by): if . == null then null else . / $by end;
def us: over(1e3);
def ms: over(1e6);
def of(words): [words | select(. != null) | tostring] | join(" | ");
# A middle alone where too few rounds make no interval.
def interval: if . == null then null elif .ci95 == null then .median else [.median, .ci95[0], .ci95[1]] end;

# What one result says: [[case, {figure: value}]...]; a value is a number or [median, low, high].
def scenario:
    (.summary[] | [of(.vm, .workload, .background, .slice, .policy), {
        n, items_per_s: .items_per_second_median,
        wall_ms: (if .items_per_second_median == null then .wall_ns_median | ms else null end),
        p50_us: (.latency_p50_ns_median | us), p99_us: (.latency_p99_ns_median | us),
        metric: (.metric.median? // null), speedup: (.speedup | interval),
        neighbour: (.neighbour_speedup | interval), by_slice: (.slice_speedup | interval),
        system: (.system_throughput | interval)}]),
    (.in_turn[]? | select(.warmup | not) | .vms as $vms | .turns | group_by(.slice)[] | . as $turns
        | range($vms | length) as $vm
        | ["\($vms[$vm].vm) | \($vms[$vm].workload) | \($turns[0].slice)",
           {items_per_s: ([$turns[].items_per_second[$vm] | select(. != null)] | median)}]);
def comparison:
    [([.modes[].mode] | join("/")) + (if .metric then " | \(.metric.name)" else "" end),
     {pairs: .speedup.pairs?, speedup: (.speedup | interval)}
        + (.modes | map({(.mode): (.median.metric // (.median.wall_ns | ms))}) | add)];
def wakeups:
    (.settings[]? | [.setting, {n, p50_us: (.p50_ns | us), p90_us: (.p90_ns | us), p99_us: (.p99_ns | us)}]),
    (.means[]? | .means as $by | .cells[]? | ["\($by) | idle for \(.gap_ns / 1000) us",
        {n, p50_us: (.p50_ns | us), p99_us: (.p99_ns | us),
         sooner: ({median: .halted_by_it_ratio, ci95: .halted_by_it_ci95} | interval)}]);
def figures:
    if type != "object" then []
    elif .schema == "gleaner.scenario/1" then [scenario]
    elif .schema == "gleaner.ab/1" then [comparison]
    elif .schema == "gleaner.run/1" then
        [["run", {wall_ms: (.wall_ns | ms), cpu_ms: (.cpu_time_ns | ms), halts, active: .active_vcpus_mean,
            overhead_ms: (.overhead_cpu_ns | ms)}]]
    elif .schema == "gleaner.workload/1" then
        [[.name, {items_per_s: .items_per_second, p50_us: (.latency.p50_ns | us), p99_us: (.latency.p99_ns | us)}]]
    elif .schema == "gleaner.probe/1" then [wakeups]
    elif .schema == "gleaner.reproduction/1" then
        # What the paper says in words tells statements about one figure apart.
        .id as $id | [.rows[] | select(.paper != null or .agrees != null)
            | ["\($id) | \(.case) | \(.metric)" + (if .paper == null and .paper_order then " | \(.paper_order)" else "" end),
               {paper, simulated, agrees, fitted: (if .basis == "calibrated" then true else null end)}]]
    elif .schema == "gleaner.sim/1" then
        [.rows[] | [of(.vm, .workload, .beside, .slice, .policy), {items_per_s, speedup}]]
    elif .schema == null then
        # A line of a script's own: its words say what it is.
        [[([to_entries[] | select(.value | type == "string") | .value] | join(" | ")),
          (map_values(select(type == "number")))]]
    else [] end;

# A file of one round or of many.
def all_of_it: if type == "array" then map(figures) | add // [] else [figures] | add // [] end;

# Most numbers at a name's end are rounds, to be put together; these are a seed, quanta, connections, VMs and a gap.
def numbered: test("^(reproductions|fig|oltp|vms|machine-gap)");

def rows($run; $file):
    ($file | sub("\\.jsonl?$"; "")
        | if numbered then . else sub("-[0-9]+(?<rest>-run)?$"; "\(.rest // "")") end) as $name
    | all_of_it[] | {run: $run, name: $name, case: .[0], figures: (.[1] | known)};

# The median of numbers; of intervals the medians of their middles and ends.
def middle:
    if all(type == "array") then
        . as $all | [range($all[0] | length) | . as $at | [$all[][$at] | select(. != null)] | median | short]
    elif any(type == "array") then map(if type == "array" then .[0] else . end) | median | short
    elif (.[0] | type) == "number" then median | short
    else .[0] end;

def row:
    {case: .[0].case, files: length,
     figures: (map(.figures | to_entries[]) | group_by(.key) | map({(.[0].key): (map(.value) | middle)}) | add // {})}
    | "  [\(.case | tojson), \(.figures + (if .files > 1 then {of: .files} else {} end) | tojson)]";

def page($machines; $rows; $texts):
    "{\"schema\": \"gleaner.experiment-summary/1\",\n\"machines\": {\n"
    + ([$machines[] | "  \(.run | tojson): \(.machine | tojson)"] | join(",\n")) + "\n},\n\"results\": {\n"
    + ([$rows | group_by([.run, .name])[] | .[0] as $first
        | "\("\($first.run)/\($first.name)" | tojson): [\n"
          + ([group_by(.case)[] | row] | join(",\n")) + "\n]"] | join(",\n"))
    + "\n},\n\"texts\": {\n"
    + ([$texts[] | "\(.name | tojson): [\n\(.lines | map("  " + tojson) | join(",\n"))\n]"] | join(",\n")) + "\n}}";
