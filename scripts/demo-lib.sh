# shellcheck shell=bash
# Shared by the parts of the demonstration: a work folder, and an end that leaves nothing running. To be sourced.
#
# Everything that is started inherits GLEANER_DEMO, whatever becomes of its parent. So whatever ends the demonstration,
# its processes are found by that, and ended by pid. Redis writes its title over its environment; it is found by the
# work folder in that title.

work=$(mktemp -d "${TMPDIR:-/tmp}/gleaner-demo.XXXXXX")
# A part that another one starts marks its processes as both parts'.
export GLEANER_DEMO=${GLEANER_DEMO:-}$work:

# ours [NAME]: pids of what was started here and still runs; with a NAME, only what is not called that.
ours() {
    local process
    for process in /proc/[0-9]*; do
        [[ ${process#/proc/} != "$BASHPID" && ${process#/proc/} != "$$" ]] || continue
        grep -qzF "GLEANER_DEMO=$GLEANER_DEMO" "$process/environ" 2>/dev/null ||
            grep -qF "$work/" "$process/cmdline" 2>/dev/null || continue
        [[ -z ${1:-} || $(cat "$process/comm" 2>/dev/null) != "$1" ]] || continue
        echo "${process#/proc/}"
    done
}

# end_all: Gleaner undoes what it did when its program ends, so it comes last, and gets time.
end_all() {
    local pid name
    for name in gleaner ""; do
        for pid in $(ours "$name"); do kill "$pid" 2>/dev/null || true; done
        for _ in {1..50}; do
            [[ -n $(ours "$name") ]] || break
            sleep 0.1
        done
    done
    for pid in $(ours); do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
# Ends once: a second Ctrl-C does not interrupt the clearing up.
trap 'trap "" INT TERM; end_all' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold="" plain=""; fi
headline() { printf '\n%s== %s%s\n\n' "$bold" "$*" "$plain"; }

# has COMMAND...: whether all are there; else `reason` says which is not.
# shellcheck disable=SC2034 # who sources this reads it
has() {
    local command
    for command in "$@"; do
        command -v "$command" >/dev/null || { reason="$command is missing: run scripts/setup.sh demo"; return 1; }
    done
}

# Debian keeps servers where only root looks for them.
export PATH=$PATH:/usr/sbin
# In redis-tools the server has another name, and is what it is called as.
link_redis_server() { ln -sf "$(command -v redis-check-rdb)" "$work/redis-server"; }
