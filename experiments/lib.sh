# Shared by the experiments' run.sh: `. "$(dirname "$0")/../lib.sh"`. Changes into the repository's root, builds before anything is measured,
# and names a folder for the raw results after day, kernel and number of CPUs, and $RUN (RUN=b: a second run on the same day beside the first).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
host=$(rustc -vV | sed -n 's/^host: //p')
folder=$here/$(date +%F)-$(uname -r)-$(nproc)cpu${RUN:+-$RUN}
mkdir -p "$folder"
make --no-print-directory build >&2
gleaner=$(readlink -f "${CARGO_TARGET_DIR:-target}/gleaner")
# Other programs' share of the machine is part of every result.
{
    echo "$(date -u +%FT%TZ) commit $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo '+changes') load $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "command: $0 $*"
    "$gleaner" doctor 2>/dev/null | head -n 6
} >>"$folder/machine.txt"

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
# scenario FILE [OPTION...]: runs it on the test bed, the raw result beside the others.
scenario() {
    local name
    name=$(basename "$1" .toml)
    say "$name"
    testbed/run.sh run "$@" --json "$folder/$name.json" >"$folder/$name.txt" 2>"$folder/$name.log" || { tail -n 20 "$folder/$name.log" >&2; return 1; }
    cat "$folder/$name.txt"
}
