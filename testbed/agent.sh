#!/bin/sh
# Runs inside a guest of the test bed (lab/runner) as its script: takes commands from the host on ttyS1 and answers
# there.
#
# From the host, one command a line, in words quoted for a shell:
#   run ID [NAME=FILE]... -- CMD...   runs CMD; its output and the FILEs come back
#   start ID CMD...                   runs CMD in the background; what it writes is lost
#   keep ID CMD...                    the same, but what it writes is kept in memory, and the answer comes with its
#       first line of progress
#   stop ID                           ends it: SIGTERM, and SIGKILL five seconds later; what was kept comes back
#   clock ID                          tells the guest's time, over and over for some tens of milliseconds
#   bye                               the guest switches itself off
# To the host:
#   ready KERNEL                      once, at the start
#   frame ID NAME                     NAME (output, kept, a FILE's, or left: what Gleaner left behind), each line after
#       a |, then: end
#   clock ID SECONDS                  since the guest's boot, now
#   done ID STATUS                    the command has ended
# Programs that the host wants marked write `began ID` and `ended ID` to ttyS1 themselves.

stty -F /dev/ttyS1 raw -echo

frame() { # frame ID NAME FILE
    echo "frame $1 $2"
    # An answer has an end: output's last 64 KiB; of results as much as Gleaner's longest have (a thousand decisions),
    # for a part of one is none. A last line may lack its newline.
    case $2 in output | left) most=65536 ;; *) most=1048576 ;; esac
    tail -c $most "$3" | sed 's/^/|/'
    echo
    echo end
}

run() {
    id=$1
    shift
    files=
    while [ "$1" != -- ]; do
        files="$files $1"
        shift
    done
    shift
    "$@" >"/tmp/$id.out" 2>&1 </dev/null
    status=$?
    frame "$id" output "/tmp/$id.out"
    for pair in $files; do
        [ ! -s "${pair#*=}" ] || frame "$id" "${pair%%=*}" "${pair#*=}"
        rm -f "${pair#*=}"
    done
    # What Gleaner should not have left.
    find /sys/fs/cgroup /run /tmp -name '*gleaner*' ! -path /run/gleaner >"/tmp/$id.out"
    find /run /tmp -name '*.journal' >>"/tmp/$id.out"
    [ ! -s "/tmp/$id.out" ] || frame "$id" left "/tmp/$id.out"
    rm -f "/tmp/$id.out"
    echo "done $id $status"
}

start() {
    id=$1
    shift
    setsid "$@" >/dev/null 2>&1 </dev/null &
    echo "$!" >"/tmp/$id.pid"
    echo "done $id 0"
}

# In memory: lines of progress over an emulated serial line took programs part of what they tell of.
keep() {
    id=$1
    shift
    setsid "$@" >"/tmp/$id.kept" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"/tmp/$id.pid"
    tries=0
    until grep -q '^progress ' "/tmp/$id.kept"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ] || ! kill -0 "$pid" 2>/dev/null; then
            frame "$id" kept "/tmp/$id.kept"
            echo "done $id 1"
            return
        fi
        sleep 0.1
    done
    echo "done $id 0"
}

stop() {
    id=$1
    pid=$(cat "/tmp/$id.pid")
    kill -TERM "$pid"
    # Whoever does not listen is killed with all its children: it leads a session, hence a process group, of its own.
    (sleep 5; kill -KILL -"$pid") 2>/dev/null &
    killer=$!
    wait "$pid"
    status=$?
    kill "$killer" 2>/dev/null
    [ ! -e "/tmp/$id.kept" ] || frame "$id" kept "/tmp/$id.kept"
    rm -f "/tmp/$id.pid" "/tmp/$id.kept"
    echo "done $id $status"
}

# The kernel tells hundredths: of many readings, spread over more than one of these, the host takes the least delayed.
clock() {
    n=0
    while [ "$n" -lt 40 ]; do
        read -r up _ </proc/uptime
        echo "clock $1 $up"
        n=$((n + 1))
    done
    echo "done $1 0"
}

# busybox's `read` loses what it has of a line when a child ends meanwhile. This loop has no children, and hands on
# whole lines.
lines() {
    while IFS= read -r line; do
        printf '%s\n' "$line"
        [ "$line" != bye ] || break
    done </dev/ttyS1
}

echo "ready $(uname -r)"
lines | while IFS= read -r line; do
    eval "set -- $line"
    command=$1
    shift
    case $command in
        run | start | keep | stop | clock) "$command" "$@" ;;
        bye) exit 0 ;;
        *) echo "noise: unknown command $command" ;;
    esac
done
