#!/usr/bin/env python3
"""What `gleaner run` costs a short program: wall time, interleaved with the bare program.

    run.py [--rounds N] [--gleaner PATH]

Medians in ms, of `true` (N rounds, default 60) and of sleeps of 20 and 300 ms (a third of that). Needs root.
"""

import argparse, os, random, statistics, subprocess, time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
MODES = {
    "bare": None,
    "default": [],
    "--profile latency": ["--profile", "latency"],
    "--policy observe": ["--policy", "observe"],
    "--retain yielding": ["--retain", "yielding"],
    "--policy off": ["--policy", "off"],
}
PROGRAMS = {"true": ["/bin/true"], "sleep 0.02": ["/bin/sleep", "0.02"], "sleep 0.3": ["/bin/sleep", "0.3"]}


def ms(words):
    began = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.monotonic() - began) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--gleaner", default=f"{ROOT}/target/gleaner")
    args = parser.parse_args()
    print("| | " + " | ".join(PROGRAMS) + " |\n| --- " + "| --- " * len(PROGRAMS) + "|")
    medians = {mode: [] for mode in MODES}
    for name, program in PROGRAMS.items():
        taken = {mode: [] for mode in MODES}
        for _ in range(args.rounds if name == "true" else args.rounds // 3):
            for mode in random.sample(list(MODES), len(MODES)):
                before = [] if MODES[mode] is None else [args.gleaner, "run", "-q", *MODES[mode], "--"]
                taken[mode].append(ms(before + program))
        for mode in MODES:
            medians[mode].append(statistics.median(taken[mode]))
    for mode, values in medians.items():
        print(f"| {mode} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


main()
