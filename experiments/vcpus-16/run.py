#!/usr/bin/env python3
"""Programs on a guest with many vCPUs: plain, and under each GLEANER given.

    run.py [--rounds N] [--seconds S] [--out FILE] GLEANER...

Modes of one program follow each other in random order, in each round. A figure above 1 is better than plain. Programs
that are not installed are left out and said. Four minutes for three rounds of two binaries. Needs root, and a machine
with nothing else to do.
"""

import argparse, json, os, platform, random, re, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../retention")
# A client that asks at a fixed rate, and prints p50 and p99.
from programs import OPEN  # noqa: E402

REDIS = (
    'redis-server --port 0 --unixsocket $W/r.sock --save "" --appendonly no >/dev/null & '
    'server=$!; trap "kill $server; wait $server" EXIT; '
    "until redis-cli -s $W/r.sock ping >/dev/null 2>&1; do sleep 0.02; done; "
)
MEMCACHED = (
    "memcached -u nobody -t 4 -s $W/m.sock -a 777 & server=$!; trap 'kill $server; wait $server' EXIT; sleep 0.2; "
)


def programs(vcpus, seconds, gleaner):
    """Name: what is wanted, whether a rate or a time is printed last (else wall time), command."""
    built_in = lambda name, threads: (None, "rate", f"{gleaner} workload {name} --threads {threads} --seconds {seconds}")
    return {
        "relay-2": built_in("relay", 2),
        "relay": built_in("relay", vcpus),
        "barrier": built_in("barrier", vcpus),
        "fork-join": built_in("fork-join", vcpus),
        "request-reply": built_in("request-reply", vcpus),
        "pipeline": built_in("pipeline", vcpus // 2),
        "block-io": built_in("block-io", 2),
        "independent": built_in("independent", vcpus),
        "hackbench": ("hackbench", "time", "hackbench -p -g 2 -f 4 -l 300000 >/dev/null"),
        "redis-1": (
            "redis-server",
            "rate",
            REDIS + "redis-benchmark -s $W/r.sock -c 1 -n 80000 -t get --csv | sed -n '$s/[^,]*,\"\\([0-9.]*\\).*/\\1/p'",
        ),
        "redis-100": ("redis-server", "printed", REDIS + f"{sys.executable} $W/open.py $W/r.sock 100 {seconds}"),
        "memcached-8": (
            "memcslap",
            "printed",
            MEMCACHED + "memcslap --servers=$W/m.sock --concurrency=8 --execute-number=20000 --test=get | sed -n 's/^Time"
            " total: *\\([0-9.]*\\).*/\\1/p'",
        ),
        "sysbench-cpu": (
            "sysbench",
            "time",
            f"sysbench cpu --threads={vcpus} --events={vcpus * 3000} --time=0 run >/dev/null",
        ),
    }


def figure(kind, command, folder):
    """Higher is better."""
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, "W": folder}, text=True, timeout=120)
    wall = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{command}: status {done.returncode}")
    if kind == "time":
        return 1 / wall
    # A built-in program's line ends in "items/s"; of all else the first number counts.
    found = re.search(r"([0-9.]+) items/s", done.stdout) or re.search(r"([0-9.]+)", done.stdout)
    return float(found[1]) if kind == "rate" else 1 / float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gleaner", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--out", default="target/vcpus-16/summary.json")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="gleaner-vcpus.")
    os.chmod(folder, 0o777)
    with open(f"{folder}/open.py", "w") as file:
        file.write(OPEN)
    modes = {"plain": []} | {name: [name, "run", "--quiet"] for name in args.gleaner}
    rows = []
    try:
        for name, (needs, kind, command) in programs(os.cpu_count(), args.seconds, args.gleaner[0]).items():
            if needs and not shutil.which(needs):
                print(f"{name}: left out, {needs} is not installed", flush=True)
                continue
            figures = {mode: [] for mode in modes}
            for _ in range(args.rounds):
                for mode in random.sample(list(modes), len(modes)):
                    profile = ["--profile", "latency"] if name == "redis-100" and mode != "plain" else []
                    under = [*modes[mode], *profile, "--"] if modes[mode] else []
                    figures[mode].append(figure(kind, [*under, "sh", "-c", command], folder))
            row = {"program": name}
            for mode in args.gleaner:
                ratios = sorted(own / plain for own, plain in zip(figures[mode], figures["plain"]))
                row[os.path.basename(mode)] = [round(x, 3) for x in (statistics.median(ratios), ratios[0], ratios[-1])]
            rows.append(row)
            print(row, flush=True)
    finally:
        shutil.rmtree(folder)
    machine = {"kernel": platform.release(), "vcpus": os.cpu_count(), "rounds": args.rounds, "seconds": args.seconds}
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w") as file:
        json.dump({"machine": machine, "speedup_median_least_most": rows}, file, indent=1)


main()
