#!/usr/bin/env python3
"""Waits that a device or a timer ends: plain, haltpoll at 200 us, polling without limit, `gleaner run`, and
`gleaner run --profile latency`.

    io.py [--rounds N] [--only NAME,...] [--modes M,...] [--seconds S] [--gateway ADDRESS] [--out FILE]

Programs: fio (4 kB random reads of a file, queue depth 1, direct), the same at 1000 a second, echo of the gateway
(the network card), request-reply over the loopback (two vCPUs, no device), sleeps of 100 us. Modes follow each other
in random order, in each round. What ../../retention/programs.py needs is needed here too, and fio and a C compiler.
Several files of raw values are made one summary by `io.py --summary FILE...`.
"""

import argparse, json, os, platform, random, shutil, signal, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(f"{HERE}/../../..")
sys.path.insert(0, f"{HERE}/../../retention")
from programs import Machine, polled  # noqa: E402

FIO = (
    "fio --name=r --filename=$FILE --size=256M --rw=randread --bs=4k --direct=1 --ioengine=psync --iodepth=1"
    " --time_based --runtime=$SECONDS_EACH --output-format=json"
)
PROGRAMS = {
    "fio": FIO,
    "fio-1000": FIO + " --rate_iops=1000",
    "echo": "$W/io icmp $SECONDS_EACH $GATEWAY",
    "lo": "$W/io lo $SECONDS_EACH",
    "timer": "$W/io timer $SECONDS_EACH",
}


def figures(said):
    """Rate per second, p50 and p99 in us."""
    if "{" not in said:
        return [float(word) for word in said.split()]
    read = json.loads(said[said.index("{") :])["jobs"][0]["read"]
    percentile = read["clat_ns"]["percentile"]
    return [read["iops"], percentile["50.000000"] / 1e3, percentile["99.000000"] / 1e3]


def once(name, mode, work, args, machine):
    undo = machine.set("plain" if mode.startswith("gleaner") else mode)
    words = ["bash", "-c", "exec " + PROGRAMS[name]]
    if mode.startswith("gleaner"):
        options = ["--profile", "latency"] if mode == "gleaner-latency" else []
        options += ["--quiet", "--json", f"{work}/run.json", *args.options.split()]
        words = [args.gleaner, "run", *options, "--", *words]
    before = polled()
    environment = {"W": work, "SECONDS_EACH": str(args.seconds), "GATEWAY": args.gateway, "FILE": args.file}
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, timeout=60, check=True, env={**os.environ, **environment}
        )
    finally:
        undo()
    rate, p50, p99 = figures(done.stdout.decode())
    row = {"rate": rate, "p50_us": p50, "p99_us": p99, "polled_s": polled() - before}
    if mode.startswith("gleaner"):
        with open(f"{work}/run.json") as file:
            report = json.load(file)
        row["means"] = report["means"]["retention"]
        row["idle_ended_by"] = report.get("idle_ended_by")
        row["decisions"] = [
            f"{d['at_ns'] / 1e9:.2f} {d.get('vcpu')} {d['action']} {d.get('timeout_ns', '')} {d['reason']}"
            for d in report["decisions"]
        ]
    return row


def summary(machine, rounds, rows):
    """For each program and mode: medians over the rounds, and rate by plain's of the same round (median, least, most).
    """
    programs = {}
    for name, modes in rows.items():
        cells = {}
        for mode, runs in modes.items():
            median = lambda key: statistics.median(run[key] for run in runs)
            ratios = [run["rate"] / plain["rate"] for run, plain in zip(runs, modes["plain"])]
            cells[mode] = {
                "rate_by_plain": [round(x, 2) for x in (statistics.median(ratios), min(ratios), max(ratios))],
                "rate": round(median("rate")),
                "p50_us": round(median("p50_us"), 1),
                "p99_us": round(median("p99_us"), 1),
                "polled_s": round(median("polled_s"), 2),
            }
        programs[name] = cells
    return {"machine": machine, "rounds": rounds, "programs": programs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--modes", default="plain,haltpoll,unlimited,gleaner,gleaner-latency")
    parser.add_argument("--gleaner", default=f"{ROOT}/target/gleaner")
    parser.add_argument("--options", default="", help="more words for `gleaner run`")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--gateway", default="192.0.2.1")
    parser.add_argument("--file", default="/var/tmp/gleaner-io")
    parser.add_argument("--out", default=f"{ROOT}/target/ahead/io.json")
    parser.add_argument("--summary", nargs="+", help="raw files to sum up, instead of measuring")
    args = parser.parse_args()
    if args.summary:
        raws = [json.load(open(path)) for path in args.summary]
        rows = {name: modes for raw in raws for name, modes in raw["programs"].items()}
        json.dump(summary(raws[0]["machine"], raws[0]["rounds"], rows), sys.stdout, indent=1)
        print()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    modes, rows = args.modes.split(","), {}
    work, machine = tempfile.mkdtemp(prefix="gleaner-io-"), Machine()
    try:
        subprocess.run(["cc", "-O2", "-o", f"{work}/io", f"{HERE}/io.c"], check=True)
        for name in [name for name in PROGRAMS if not args.only or name in args.only.split(",")]:
            rows[name] = {mode: [] for mode in modes}
            for _ in range(args.rounds):
                for mode in random.sample(modes, len(modes)):
                    rows[name][mode].append(once(name, mode, work, args, machine))
            for mode in modes:
                cells = summary("", args.rounds, rows)["programs"][name][mode]
                print(name, mode, cells, flush=True)
    finally:
        machine.reset()
        shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    about = f"Linux {platform.release()}, {os.cpu_count()} vCPUs, {time.strftime('%Y-%m-%d')}"
    with open(args.out, "w") as file:
        json.dump({"machine": about, "rounds": args.rounds, "programs": rows}, file, indent=1)


if __name__ == "__main__":
    main()
