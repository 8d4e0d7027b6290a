#!/usr/bin/env bash
# Slices on a current kernel, in guests of the test bed: experiments/ahead/slices/run.sh kvm|scx [GLEANER]
#
#   kvm   two real KVM guests in a 7.x guest: slices ended by HRTICK, by the ticker, by the kernel's tick
#   scx   two that compute and one that sleeps on one CPU: the same, and a scheduler in BPF (slices.bpf.c)
#
# Needs a debug build (its libbpf), gcc, clang and the packages of `scripts/setup.sh test`. A minute each; nothing else
# should run meanwhile. stdout: what the guest wrote.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
here=experiments/ahead/slices gleaner=${2:-target/gleaner}
guest=testbed/guest.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-slices.XXXXXX")
trap 'rm -rf "$work" testbed/.guest-cx16.sh' EXIT
kernel=$(testbed/fetch-kernel.sh newest | awk 'END { print $2 }')
case ${1:-} in
    kvm)
        files=(--file "$work/vmm:/vmm")
        gcc -O2 -static -pthread -o "$work/vmm" $here/vmm.c
        n=0
        for module in $(testbed/fetch-kernel.sh --modules new kvm); do
            n=$((n + 1))
            files+=(--file "$module:/kvm/$n-$(basename "$module")")
        done
        script=$here/kvm-slices.sh
        ;;
    scx)
        libbpf=$(find target -path '*libbpf-sys*/out/libbpf.a' | head -n 1)
        include=$(dirname "$libbpf")/include
        clang -g -O2 -target bpf -D__TARGET_ARCH_x86 -I"$include" -I/usr/include/x86_64-linux-gnu \
            -c $here/slices.bpf.c -o "$work/slices.bpf.o"
        gcc -O2 -static -I"$include" -o "$work/load" $here/load.c "$libbpf" -lelf -lz
        gcc -O2 -static -o "$work/gauge" $here/gauge.c
        files=(--file "$work/load:/load" --file "$work/gauge:/gauge" --file "$work/slices.bpf.o:/slices.bpf.o")
        script=$here/scx.sh
        # BPF timers are allocated with cmpxchg16b, which guest.sh takes away because QEMU's broke 6.12.
        guest=testbed/.guest-cx16.sh
        sed 's/,cx16=off//' testbed/guest.sh >$guest
        chmod +x $guest
        ;;
    *)
        sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
"$guest" --binary "$gleaner" "${files[@]}" --timeout 170 "$kernel" $script 2
