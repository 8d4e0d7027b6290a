#!/usr/bin/env python3
"""Who wakes whom: what Gleaner calls each program, beside what it is.

    wakes.py [--gleaner PATH] [--rounds N] [--only NAME,...] [--out FILE]

Runs the built-in programs, and real ones (commands of ../../retention/programs.py), under `--policy observe --observer
bpf` and reads `wake_pattern`. Prints a table; all answers go to --out (default target/ahead/wakes.json). Needs root.
"""

import argparse, collections, importlib.util, json, os, shutil, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
spec = importlib.util.spec_from_file_location("programs", os.path.join(HERE, "../../retention/programs.py"))
programs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(programs)

# What each is, by its source. Two answers are right where it does both.
BUILT_IN = {
    "relay": "hand-offs", "pipeline": "hand-offs", "request-reply": "hand-offs", "task-queue": "hand-offs",
    "barrier": "broadcasts", "fork-join": "broadcasts",
    "matmul": "independent", "independent": "independent", "freqsleep": "independent", "spin-lock": "independent",
    "address-space": "independent", "block-io": "hand-offs|independent", "open-loop": "hand-offs|independent",
}
REAL = {
    "redis-1": "hand-offs", "memcached-8": "hand-offs", "pgbench-1": "request-reply", "pgbench-8": "request-reply",
    "nginx-8": "hand-offs", "messaging": "hand-offs", "python-pair": "hand-offs", "jvm-queue": "hand-offs",
    "jvm-futures": "hand-offs", "go-channel": "hand-offs", "pigz-p4": "hand-offs|independent",
    "hackbench": "hand-offs|broadcasts", "sysbench-cpu": "independent", "x264": "hand-offs|independent",
    "mariadb-1": "request-reply", "make": "independent", "git": "independent",
}


def once(gleaner, work, words):
    command = [gleaner, "run", "--quiet", "--policy", "observe", "--observer", "bpf", "--json", f"{work}/run.json"]
    env = {**os.environ, "W": work, "ROOT": ROOT, "PYTHON": sys.executable}
    subprocess.run([*command, "--", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, env=env)
    with open(f"{work}/run.json") as file:
        return json.load(file)["wake_pattern"] or "?"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gleaner", default=f"{ROOT}/target/gleaner")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default=f"{ROOT}/target/ahead/wakes.json")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="gleaner-wakes-")
    wanted = lambda name: not args.only or name in args.only.split(",")
    servers, rows = [], {}
    try:
        servers = programs.prepare(work) if any(map(wanted, REAL)) else []
        for name, truth in {**BUILT_IN, **REAL}.items():
            if not wanted(name):
                continue
            if name in BUILT_IN:
                words = [args.gleaner, "workload", name, "--threads", "4", "--for", "1s"]
            else:
                _, needs, command = programs.PROGRAMS[name]
                if not shutil.which(needs):
                    print(f"{name}: left out, {needs} is not installed", file=sys.stderr)
                    continue
                words = ["bash", "-c", command]
            told = [once(args.gleaner, work, words) for _ in range(args.rounds)]
            kinds = [line.split(":")[0] for line in told]
            right = sum(kind in truth.split("|") for kind in kinds)
            rows[name] = {"is": truth, "called": dict(collections.Counter(kinds)), "right": right, "told": told}
            print(f"{name:14} {truth:24} {right}/{len(told)}  {told[-1]}", flush=True)
    finally:
        for stop in servers:
            stop()
        shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    with open(args.out, "w") as file:
        json.dump(rows, file, indent=1)
    right = sum(row["right"] for row in rows.values())
    print(f"right: {right} of {args.rounds * len(rows)}")


if __name__ == "__main__":
    main()
