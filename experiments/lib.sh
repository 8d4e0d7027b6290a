# Shared by the experiments' run.sh: `. "$(dirname "$0")/../lib.sh"`. Changes into the repository's root, builds before
# anything is measured, and names a folder for the raw results below target/experiments/ (or $OUT) after day, kernel and
# number of CPUs, and $RUN (RUN=b: a second run on the same day beside the first).
# shellcheck shell=bash
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
# shellcheck disable=SC2034 # the scripts' own
host=$(rustc -vV | sed -n 's/^host: //p')
# shellcheck disable=SC2034
raw=${OUT:-${CARGO_TARGET_DIR:-target}/experiments}
folder=$raw/$(basename "$here")/$(date +%F)-$(uname -r)-$(nproc)cpu${RUN:+-$RUN}
mkdir -p "$folder"
folder=$(readlink -f "$folder") raw=$(readlink -f "$raw")
make --no-print-directory build >&2
gleaner=$(readlink -f "${CARGO_TARGET_DIR:-target}/gleaner")
recorded_before=$(stat -c %s "$folder/machine.txt" 2>/dev/null || echo 0)
# What changes a result and is not in the commit: other programs' share of the machine, settings, sources that are not
# committed.
{
    changed=$(git diff --stat HEAD)
    echo "$(date -u +%FT%TZ) commit $(git rev-parse --short HEAD)${changed:++changes} load $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "command: $0 $*"
    for name in RUN ROUNDS WORK TMPDIR; do
        [[ -z ${!name:-} ]] || echo "setting: $name=${!name}"
    done
    [[ -z $changed ]] || printf 'changed: %s\n' "${changed//$'\n'/$'\n'changed: }"
    "$gleaner" doctor 2>/dev/null | head -n 6
} >>"$folder/machine.txt"

# laboratory: builds gleaner-lab, for the scripts that simulate; $lab is its path.
laboratory() {
    make --no-print-directory lab >&2
    lab=$(readlink -f "${CARGO_TARGET_DIR:-target}/gleaner-lab")
}
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
# fresh FILE...: ends the script where an earlier run has left one. Measured once is kept: another run gets a folder of
# its own. Several commands may fill one folder (`programs/run.sh machine`, then `relay`), so it is asked file by file,
# before anything is measured; and machine.txt tells of no run that was not.
fresh() {
    local file
    for file in "$@"; do
        [[ -e $file ]] || continue
        say "$file exists: a result of an earlier run, which is not overwritten; set RUN=name for a folder beside it"
        [[ -n ${begun:-} ]] || truncate -s "$recorded_before" "$folder/machine.txt"
        exit 1
    done
}
# scenario FILE [OPTION...]: runs it on the test bed, the raw result beside the others; with $WORK times the work.
scenario() {
    local name
    name=$(basename "$1" .toml)
    fresh "$folder/$name.json"
    begun=yes
    say "$name"
    testbed/run.sh run "$@" ${WORK:+--work "$WORK"} --json "$folder/$name.json" >"$folder/$name.txt" 2>"$folder/$name.log" || { tail -n 20 "$folder/$name.log" >&2; return 1; }
    cat "$folder/$name.txt"
}
