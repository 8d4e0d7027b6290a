#!/usr/bin/env python3
"""A program whose threads take turns and compute in turn: does it lose by being packed in between?

    phases.py PHASES GLEANER [ROUNDS]      as root, on a quiet guest with the haltpoll governor

PHASES is `cargo build --release -p gleaner-workloads --example phases`. Wall times, in seconds, of narrow phases alone,
of wide ones alone (2 s of work for each thread), and of both in turn, by each mode.
"""

import subprocess
import sys
import time

POLL = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"


def took(command, poll=False):
    with open(POLL, encoding="utf-8") as file:
        was = file.read()
    try:
        if poll:
            with open(POLL, "w", encoding="utf-8") as file:
                file.write("200000")
        began = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return round(time.monotonic() - began, 2)
    finally:
        with open(POLL, "w", encoding="utf-8") as file:
            file.write(was)


def main(phases, gleaner, rounds=2):
    kinds = {"narrow": ["150000", "0"], "wide": ["1000", "2000"], "both": ["150000", "2000"]}
    for _ in range(int(rounds)):
        row = {}
        for kind, words in kinds.items():
            command = [phases, "2", *words, "4"]
            row[kind] = {"plain": took(command), "haltpoll": took(command, poll=True),
                         "one": took(["taskset", "-c", "1", *command]),
                         "gleaner": took([gleaner, "run", "-q", "--", *command])}
        best = min(row["narrow"].values()) + min(row["wide"].values())
        print(row, f"best of each phase {best:.2f}, Gleaner has {best / row['both']['gleaner']:.3f} of it", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
