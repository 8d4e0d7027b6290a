# Sourced by the scripts that run inside guests (guest.sh puts it at /checks.sh): checks that a shell can make, and JSON
# for whoever started the guest. A script ends with `exit $failures`.

failures=0
check() { # check WHAT COMMAND...
    what=$1
    shift
    if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failures=$((failures + 1)); fi
}
json() { # json NAME FILE: one object on one line, after its name
    if [ -s "$2" ]; then printf 'json %s ' "$1"; tr -d '\n' <"$2"; echo; else check "there is JSON of $1" false; fi
}
# What a run may change: cgroups and what is written in them, what this shell's children may use, Gleaner's own folders.
state() {
    find /sys/fs/cgroup -type d | sort
    find /sys/fs/cgroup \( -name cgroup.subtree_control -o -name cpuset.cpus -o -name cpuset.cpus.partition -o -name cpu.idle \) | sort |
        while read -r file; do echo "$file: $(cat "$file")"; done
    grep Cpus_allowed_list /proc/self/status
    find /run /tmp -name '*gleaner*' ! -path /run/gleaner | sort
    find /run /tmp -name '*.journal' | sort
}
same() { # same WHAT BEFORE: the machine's state is what it was
    now=$(state)
    check "$1" [ "$2" = "$now" ]
    [ "$2" = "$now" ] || printf 'before:\n%s\nafter:\n%s\n' "$2" "$now"
}
# within SECONDS COMMAND...: tries ten times a second until it succeeds
within() {
    left=$(($1 * 10))
    shift
    while ! "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        usleep 100000
    done
}
