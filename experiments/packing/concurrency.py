#!/usr/bin/env python3
"""How many threads of real programs are runnable at once, as Gleaner counts it by BPF, apart and on one vCPU.

    concurrency.py [--only NAME,...] [--gleaner PATH] [--out FILE]

Runs each program of programs.py and a barrier of `gleaner workload` under `--policy observe`, which moves nothing: once
where it likes, and once bound to one vCPU. Prints a table. Needs root.
"""

import argparse, importlib.util, json, os, shutil, subprocess, sys, tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
_spec = importlib.util.spec_from_file_location("programs", f"{ROOT}/experiments/packing/programs.py")
programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)

DOZEN = ("sysv-semaphores,condition-variable,python-threads,jvm-queue,redis-1,mariadb-1,redis-8,mariadb-48,hackbench,"
         "go-echo,jvm-barrier,python-pool,sysbench-mutex,sysbench-cpu,barrier")
MORE = {"barrier": ("true", "$GLEANER workload barrier --threads 2 --for 2s >/dev/null")}
SHARES = ("none", "one", "two", "three", "four", "more")


def once(command, one, work, gleaner):
    words = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] if one else []
    words += ["bash", "-c", command]
    env = {**os.environ, "W": work, "ROOT": ROOT, "PYTHON": sys.executable, "GLEANER": gleaner}
    run = [gleaner, "run", "--quiet", "--json", f"{work}/run.json", "--policy", "observe", "--", *words]
    # On a busy machine a program may be over before anybody looked.
    for _ in range(5):
        subprocess.run(run, stdout=subprocess.DEVNULL, env=env, timeout=120, check=False)
        with open(f"{work}/run.json") as file:
            report = json.load(file)
        if report["concurrency"]:
            break
    shares = [report["concurrency"][f"{share}_ratio"] for share in SHARES]
    switches = report["voluntary_switches"] + report["involuntary_switches"]
    wall_s = report["wall_ns"] / 1e9
    cpus = report["cpu_time_ns"] / report["wall_ns"]
    waits = report["lengths"]["wake_to_run"] or {"mean_ns": 0, "n": 0}
    by_waits = cpus + waits["mean_ns"] * waits["n"] / report["wall_ns"]
    return {"shares": shares, "mean_by_waits": by_waits,
            "mean": report["concurrency"]["threads_mean_min"], "cpus": cpus,
            "switches_per_s": switches / wall_s, "wall_s": wall_s,
            "beside_ns_a_switch": sum(shares[2:]) * wall_s / max(switches, 1) * 1e9}


def row(name, place, found):
    none, one, two, three, four, more = (100 * share for share in found["shares"])
    shares = " | ".join(f"{share:.0f}" for share in (none, one, two, three + four, more))
    return (f"| {name} | {place} | {shares} | {found['cpus']:.2f} | {found['switches_per_s'] / 1e3:.1f} |"
            f" {found['beside_ns_a_switch'] / 1e3:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=DOZEN)
    parser.add_argument("--gleaner", default=f"{ROOT}/target/gleaner")
    parser.add_argument("--out", default=f"{ROOT}/target/packing/concurrency.json")
    args = parser.parse_args()
    work, servers, found = tempfile.mkdtemp(prefix="gleaner-concurrency-"), [], {}
    try:
        servers = programs.prepare(work)
        print("| program | place | none | one | two | 3, 4 | more | CPUs | 1,000 switches/s | two and more, us a switch |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for name in args.only.split(","):
            needs, command = (programs.PROGRAMS | MORE)[name]
            if not shutil.which(needs.replace("$W", work)):
                print(f"{name}: left out, {needs} is not installed", file=sys.stderr)
                continue
            for place in ("apart", "one vCPU"):
                result = once(command, place != "apart", work, args.gleaner)
                found[f"{name}, {place}"] = result
                print(row(name, place, result), flush=True)
    finally:
        for stop in servers:
            stop()
        shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    with open(args.out, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
