#!/usr/bin/env bash
# Builds quick-lackey.c against Debian's valgrind, so that VALGRIND_LIB=FOLDER makes `valgrind --tool=lackey` run it.
#
#   experiments/traces/quick-lackey.sh FOLDER
set -euo pipefail

[[ $# -eq 1 ]] || { printf 'quick-lackey: one folder, please\n' >&2; exit 2; }
here=$(dirname "$(readlink -f "$0")")
libraries=/usr/lib/x86_64-linux-gnu/valgrind
[[ -f $libraries/libcoregrind-amd64-linux.a ]] ||
    { printf "quick-lackey: %s is not there; it comes with Debian's package valgrind on x86-64\n" "$libraries" >&2; exit 1; }
mkdir -p "$1"
ln -sf /usr/libexec/valgrind/* "$1/"
rm -f "$1/lackey-amd64-linux"
gcc -O2 -std=gnu99 -DVGA_amd64 -DVGO_linux -DVGP_amd64_linux -DVGPV_amd64_linux_vanilla -I/usr/include/valgrind \
    -fno-stack-protector -fno-strict-aliasing -fno-builtin -fno-pie -fomit-frame-pointer -o "$1/lackey-amd64-linux" "$here/quick-lackey.c" \
    -no-pie -static -nodefaultlibs -nostartfiles -u _start -Wl,-Ttext-segment=0x58000000 -Wl,--build-id=none \
    "$libraries/libcoregrind-amd64-linux.a" "$libraries/libvex-amd64-linux.a" -lgcc "$libraries/libgcc-sup-amd64-linux.a"
