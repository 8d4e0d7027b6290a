#!/usr/bin/env bash
# Does quick-lackey.c see the accesses that Debian's lackey sees? Counts lines of both for one program, and those that
# differ.
#
#   experiments/traces/same.sh [CMD [ARG]...]       default: bzip2 of a few kilobytes
#
# Both run in the same environment, from folders whose names are equally long: the environment is on the program's
# stack, and its loader reads the names. What may still differ are addresses that hang on the 16 random bytes or the
# process id that the kernel hands out.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ $# -eq 0 ]]; then
    head -c 3000 /bin/bash >"$work/data"
    set -- bzip2 -9kc "$work/data"
fi
"$here/quick-lackey.sh" "$work/quick"
mkdir "$work/plain"
ln -s /usr/libexec/valgrind/* "$work/plain/"
for which in plain quick; do
    VALGRIND_LIB=$work/$which valgrind --tool=lackey --basic-counts=no --trace-mem=yes --log-file="$work/$which.txt" "$@" >/dev/null
    # Lackey writes one M for a load and a store of the same place.
    grep '^[I ]' "$work/$which.txt" | sed 's/^ M \(.*\)/ L \1\n S \1/' >"$work/$which.lines"
done
printf 'lackey %s, quick-lackey %s, of these different %s\n' "$(wc -l <"$work/plain.lines")" "$(wc -l <"$work/quick.lines")" \
    "$(diff "$work/plain.lines" "$work/quick.lines" | grep -c '^<' || true)"
