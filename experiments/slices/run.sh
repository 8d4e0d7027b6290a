#!/usr/bin/env bash
# Guests under different slices: experiments/slices/run.sh WHAT...     README.md says which of them shows what, and how
# long each takes.
#
#   locks      Table I: spinlocks waited for and held, and the guest kernel's own locks
#   corun      Figure 2: every program beside a VM that computes, against alone with half of the CPUs
#   kernel     1 ms against what the kernel does by itself, beside a VM that computes
#   pairs      Figure 5: pairs of programs
#   adaptive   the adaptive agent against every slice for all, on four more pairs; with what `mix` has measured, if that
#       is in the same folder
#   mix        Figure 6(a): four VMs, and the adaptive agent on them
#   turns      likewise on the five mixes, with slices in turn within one run of the programs; blocks up to UNTIL=hh:mm,
#       if that is given
#   wakeup     wake-up p99 of a spinning guest
#   network    Figures 3 and 6(c): iperf3. Takes port 5299 of 127.0.0.1
#   tables     nothing is measured: the tables again, of what is in the folder
#
# AGAINST=slice: `turns` compares the agent with this one alone, in ten passes instead of five.
# CAPPED=folder, seen from that of the results: whose capped runs `turns` is relative to, instead of its own.
# BLOCKS=n: blocks up to this one instead of 5 (corun, pairs: of a round each; adaptive, mix, turns: of two); FIRST=n:
# from this one on, which adds to what a folder has; ONLY=label,...: these workloads of the mixes alone (turns: of the
# pairs). ROUNDS=n: rounds instead of the scenario's (locks, kernel, wakeup, network). RUN=name: a folder of its own.
# Takes root, a cgroup hierarchy with the cpu controller (corun, pairs, adaptive, mix: "capped" is a quota), and a quiet
# machine.
[[ $# -gt 0 ]] || set -- --help
for what in "$@"; do
    case $what in
        locks | corun | kernel | pairs | adaptive | mix | turns | wakeup | network | tables) ;;
        *) sed -n 's/^# \{0,1\}//; 2,20p' "$0" >&2; exit 2 ;;
    esac
done
. "$(dirname "$0")/../lib.sh" "$@"
[[ "$*" == tables ]] || scripts/setup.sh build test >&2
blocks=${BLOCKS:-5} first=${FIRST:-1}
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-slices.XXXXXX")
server=""
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# block FILE NAME BLOCK [OPTION...]: FILE's rounds, in an order that the block's number makes; NAME-BLOCK.json.
block() {
    local from="experiments/slices/$1" to="$work/$2-$3.toml" number=$3
    shift 3
    sed "s/^seed = .*/seed = $number/" "$from" >"$to"
    # Of the turns alone: capped runs have slices of their own.
    [[ -z ${AGAINST:-} ]] || ! grep -q "^in_turn" "$to" || sed -i "s/^slices = .*/slices = [\"$AGAINST\", \"adaptive\"]/; s/^in_turn = .*/in_turn = 10/" "$to"
    scenario "$to" "$@"
}
# cap_holds RESULT...: ends the script where the cap leaves a VM that computes something else than it says. The
# experiment would be of that.
cap_holds() {
    jq -s -e -L experiments/slices -f experiments/slices/cap-share.jq "$@" >/dev/null && return
    say "the cap does not hold here: a VM that computes all the time got less than 0.9 of it, or more than 1.1 (host_cpu_ns by host_wall_ns in $*)"
    exit 1
}
# in_turns FILE CAPPED NAME [OPTION...]: blocks of FILE, and of CAPPED with the options, the one first and then the
# other.
in_turns() {
    local file=$1 capped=$2 name=$3 number
    shift 3
    for ((number = first; number <= blocks; number++)); do
        ((number % 2)) || block "$file" "$name" "$number" ${ONLY:+--only "$ONLY"}
        block "$capped" "capped-$name" "$number" "$@"
        ((number > first)) || cap_holds "$folder/capped-$name-$number.json"
        ((number % 2 == 0)) || block "$file" "$name" "$number" ${ONLY:+--only "$ONLY"}
    done
}
# table NAME JQ PATTERN...: what follows from the results whose names match; nothing where there are none.
table() {
    local name=$1 program=$2 files
    shift 2
    # shellcheck disable=SC2086 # patterns
    mapfile -t files < <(cd "$folder" && compgen -G "$1" >/dev/null && for pattern in "$@"; do compgen -G "$pattern" || true; done | sort -V)
    [[ ${#files[@]} -gt 0 ]] || return 0
    (cd "$folder" && jq -s -r -L "$here" -f "$here/$program.jq" "${files[@]}") | tee "$folder/table-$name.txt"
}

of_pairs=spin-lock,barrier,request-reply,independent,matmul
for what in "$@"; do
    case $what in
        locks)
            for file in locks kernel-locks; do scenario "experiments/slices/$file.toml" ${ROUNDS:+--rounds "$ROUNDS"}; done
            ;;
        wakeup | kernel) scenario "experiments/slices/$what.toml" ${ROUNDS:+--rounds "$ROUNDS"} ;;
        corun) in_turns corun.toml capped.toml corun ;;
        pairs | adaptive) in_turns "$what.toml" capped.toml "$what" --only "$of_pairs" ;;
        mix) in_turns mix.toml mix-capped.toml mix ;;
        turns)
            for ((number = first; number <= blocks; number++)); do
                [[ -z ${UNTIL:-} || $(date +%R) < $UNTIL ]] || { say "it is $UNTIL: no more blocks"; break; }
                block turns.toml turns "$number" ${ONLY:+--only "$ONLY"}
                [[ -n ${ONLY:-} ]] || block mix-turns.toml mix-turns "$number"
                [[ -z ${CAPPED:-} ]] || continue
                block capped.toml capped-turns "$number" --only "$of_pairs"
                [[ -n ${ONLY:-} ]] || block mix-capped.toml capped-mix-turns "$number"
                cap_holds "$folder/capped-turns-$number.json"
            done
            ;;
        network)
            scripts/setup.sh bed experiments >&2
            # The other end; the emulator passes the guest's packets on to it.
            taskset -c 0 iperf3 --server --bind 127.0.0.1 --port 5299 >"$work/server.log" 2>&1 &
            server=$!
            for file in network network-mix; do scenario "experiments/slices/$file.toml" ${ROUNDS:+--rounds "$ROUNDS"}; done
            kill "$server" && server=""
            ;;
    esac
done
table locks locks locks.json
table corun capped 'corun-*.json' 'capped-corun-*.json'
table pairs pairs 'pairs-*.json' 'capped-pairs-*.json' 'adaptive-*.json' 'capped-adaptive-*.json'
table mix pairs 'mix-[0-9]*.json' 'capped-mix-[0-9]*.json'
table adaptive adaptive 'adaptive-*.json' 'capped-adaptive-*.json' 'mix-[0-9]*.json' 'capped-mix-[0-9]*.json'
capped=('capped-turns-*.json' 'capped-mix-turns-*.json')
[[ -z ${CAPPED:-} ]] || capped=("$CAPPED/capped-adaptive-*.json" "$CAPPED/capped-turns-*.json" "$CAPPED/capped-mix-*.json")
table turns turns 'turns-*.json' 'mix-turns-*.json' "${capped[@]}"
table wakeup wakeup wakeup.json
table network network network.json network-mix.json
