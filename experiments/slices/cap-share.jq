# Does the cap leave what it says? CPU time of the VM by time, over its cap: of a program that computes all the time 0.9 to 1.1, of any at most 1.1, or
# the result is false. jq -s -e -L experiments/slices -f cap-share.jq capped-*.json
include "lib";
[.[] | select(is_capped) | .scenario as $scenario | .runs[] | good | . as $run
    | {program: program, share: (.host_cpu_ns / .host_wall_ns / ([$scenario.vm[] | select(.name == $run.vm) | .cap][0]))}]
| length > 0 and all(.share <= 1.1 and (.share >= 0.9 or ([.program] | inside(["independent", "matmul"]) | not)))
