# Does the cap leave what it says? CPU time of the VM by time, of a program that computes all the time, over its cap: 0.9 to 1.1, or the result
# is false. jq -s -e -L experiments/slices -f cap-share.jq capped-*.json
include "lib";
[.[] | select(is_capped) | .scenario as $scenario | .runs[] | good | select(program == "independent" or program == "matmul") | . as $run
    | .host_cpu_ns / .host_wall_ns / ([$scenario.vm[] | select(.name == $run.vm) | .cap][0])]
| length > 0 and all(. >= 0.9 and . <= 1.1)
