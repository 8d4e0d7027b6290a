#!/usr/bin/env bash
# What dedup's stages ask of the kernel, by chunk: system calls that change the address space or release memory, page
# faults, and each stage's part of the CPU time.
#
#   experiments/simulator/dedup-stages.sh [ROUNDS]     default: 3; as root (perf's tracepoints), with a network: the
#       input are Debian packages
#
# glibc's per-thread caches (since 2.26) and its threshold for trimming arenas (later than 2.15, too) are off, and
# arenas are as many as on 16 cores: what is left of malloc is as in
# 2.15, which the Gleaner paper's Ubuntu 12.04 has (malloc/arena.c: heap_trim, grow_heap, shrink_heap).
rounds=${1:-3}
# Before anything is written down.
stop() { printf '%s: %s\n' "$0" "$1" >&2; exit "$2"; }
[[ $rounds =~ ^[1-9][0-9]*$ ]] || stop "'$rounds' is no number of rounds" 2
for tool in gcc perf jq; do
    command -v "$tool" >/dev/null || stop "$tool is not there: scripts/setup.sh experiments installs it" 1
done
[[ $EUID -eq 0 ]] || stop "perf's tracepoints want root" 1
. "$(dirname "$0")/../lib.sh" "$@"
tunables=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=128:glibc.malloc.trim_threshold=0
calls=(madvise mprotect mmap munmap brk futex write)

fresh "$folder/counts.jsonl" "$folder/medians.jsonl"
begun=yes

cd "$here"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
gcc -O2 -Wall -Wextra -o "$scratch/stages" dedup-stages.c -lz -lcrypto -lpthread
# Compressed packages, as on dedup's native input, a Fedora image.
(cd "$scratch" && apt-get download -q chromium firefox-esr llvm-14-dev mariadb-server-core qemu-system-x86 >&2)
cat "$scratch"/*.deb >"$scratch/input"
{ (cd "$scratch" && sha256sum -- *.deb); echo "transparent huge pages: $(cat /sys/kernel/mm/transparent_hugepage/enabled)"; } >>"$folder/machine.txt"

for ((round = 1; round <= rounds; round++)); do
    for on in "16 0-1" "16 0" "8 0-1" "8 0" "4 0-1" "4 0"; do
        read -r threads cpus <<<"$on"
        say "round $round, $threads threads a stage on CPUs $cpus"
        # CSV: value, unit, event.
        GLIBC_TUNABLES=$tunables perf stat -x, -o "$scratch/perf" $(printf -- '-e syscalls:sys_enter_%s ' "${calls[@]}") -e faults -e cs \
            taskset -c "$cpus" "$scratch/stages" "$threads" "$scratch/input" "$scratch/output" >"$scratch/said"
        jq -c --arg cpus "$cpus" --argjson round "$round" --rawfile perf "$scratch/perf" '
            ($perf | split("\n") | map(split(",") | select(.[2] != null) | {(.[2] | sub(".*sys_enter_"; "")): (.[0] | tonumber)}) | add) as $counts |
            . as $run | ($run.cpu_s | add) as $cpu |
            {round: $round, cpus: $cpus} + $run + {
                a_chunk: ($counts | map_values(. / $run.chunks * 1000 | round / 1000)),
                faults_a_chunk: ($run.faults | map_values(. / $run.chunks * 1000 | round / 1000)),
                part_of_cpu: ($run.cpu_s | map_values(. / $cpu * 1000 | round / 1000))
            }' "$scratch/said" | tee -a "$folder/counts.jsonl"
    done
done
say "medians by threads a stage and CPUs"
jq -s -c 'def median: sort | .[length / 2 | floor];
    group_by([.threads, .cpus])[] | {threads: .[0].threads, cpus: .[0].cpus, rounds: length,
        a_chunk: (map(.a_chunk) | . as $all | .[0] | with_entries(.key as $k | .value = ($all | map(.[$k]) | median))),
        faults_a_chunk: (map(.faults_a_chunk) | . as $all | .[0] | with_entries(.key as $k | .value = ($all | map(.[$k]) | median))),
        part_of_cpu: (map(.part_of_cpu) | . as $all | .[0] | with_entries(.key as $k | .value = ($all | map(.[$k]) | median)))}' \
    "$folder/counts.jsonl" | tee "$folder/medians.jsonl"
