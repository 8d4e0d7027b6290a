#!/usr/bin/env python3
"""What timer slack does to a timer-driven program, alone and beside one that computes on the same vCPUs.

Eight processes each do a little every millisecond, by the clock. The modes take turns. For each: items per second, how
late they were, entries of idle states per second, CPU time of the program, and turns of the neighbour's loop.
"""

import ctypes
import glob
import json
import os
import random
import statistics
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_TIMERSLACK = 29
PROCESSES, PERIOD, SECONDS, ROUNDS = 8, 1e-3, 2.0, 3
# Name: slack in ns, and whether the program is packed onto one vCPU.
MODES = {
    "plain": (None, False),
    "slack 500us": (500_000, False),
    "slack 2ms": (2_000_000, False),
    "packed": (None, True),
    "packed, slack 500us": (500_000, True),
    "packed, slack 2ms": (2_000_000, True),
}


def idle_entries():
    files = glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*/usage")
    return sum(int(open(file).read()) for file in files) if files else None


def works(number, slack, cpus, end, out):
    if slack is not None:
        LIBC.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(slack), 0, 0, 0)
    os.sched_setaffinity(0, cpus)
    due, late = time.monotonic() + PERIOD * number / PROCESSES, []
    while due < end:
        left = due - time.monotonic()
        if left > 0:
            time.sleep(left)
        late.append(time.monotonic() - due)
        sum(range(100))
        due += PERIOD
    late.sort()
    used = os.times()
    at = lambda share: late[int(len(late) * share)] * 1e6
    os.write(out, (json.dumps([len(late), at(0.5), at(0.99), used.user + used.system]) + "\n").encode())


def computes(end, out):
    turns = 0
    while time.monotonic() < end:
        sum(range(1000))
        turns += 1
    os.write(out, (json.dumps([turns]) + "\n").encode())


def child(body, *args):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            body(*args, write)
        finally:
            os._exit(0)
    os.close(write)
    return pid, read


def result(started):
    pid, read = started
    with os.fdopen(read) as lines:
        line = lines.readline()
    os.waitpid(pid, 0)
    return json.loads(line)


def run(mode, beside):
    slack, packed = MODES[mode]
    all_cpus = os.sched_getaffinity(0)
    cpus = {max(all_cpus)} if packed else all_cpus
    end = time.monotonic() + SECONDS
    before = idle_entries()
    hogs = [child(computes, end) for _ in range(len(all_cpus))] if beside else []
    program = [child(works, number, slack, cpus, end) for number in range(PROCESSES)]
    told = [result(one) for one in program]
    turns = sum(result(hog)[0] for hog in hogs)
    after = idle_entries()
    return {
        "items_per_s": sum(one[0] for one in told) / SECONDS,
        "late_p50_us": statistics.median(one[1] for one in told),
        "late_p99_us": max(one[2] for one in told),
        "cpu_ratio": sum(one[3] for one in told) / SECONDS,
        "idle_entries_per_s": None if before is None else (after - before) / SECONDS,
        "neighbour_turns_per_s": turns / SECONDS if beside else None,
    }


def main():
    rows = []
    for round_ in range(ROUNDS):
        cases = [(mode, beside) for mode in MODES for beside in (False, True)]
        random.Random(round_).shuffle(cases)
        for mode, beside in cases:
            rows.append({"round": round_, "mode": mode, "beside": beside, **run(mode, beside)})
    medians = []
    for beside in (False, True):
        for mode in MODES:
            own = [row for row in rows if row["mode"] == mode and row["beside"] == beside]
            median = lambda key: None if own[0][key] is None else round(statistics.median(row[key] for row in own), 3)
            keys = [key for key in own[0] if key not in ("round", "mode", "beside")]
            medians.append({"mode": mode, "beside": beside, **{key: median(key) for key in keys}})
    json.dump({"kernel": os.uname().release, "vcpus": os.cpu_count(), "medians": medians, "rows": rows}, sys.stdout, indent=1)
    print()


main()
