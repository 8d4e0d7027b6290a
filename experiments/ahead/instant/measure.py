#!/usr/bin/env python3
"""How soon a packed program has all its vCPUs when a wide phase begins, and what that costs a program with phases.

measure.py GLEANER PHASES burst [BURSTS [MEANS]]   by means, or by one
measure.py GLEANER PHASES phases [ROUNDS]          the same program under `off` and under Gleaner, in turn
measure.py plot SUMMARY                            a picture (SVG) of what `burst` gave
"""

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

# It packs within half a second, again and again: what is measured is how it gives vCPUs back.
EAGER = "hold_off_min_ms = 1\nhold_off_max_ms = 1\nsettle_windows = 1\njudge_windows = 2\nbaseline_windows_min = 2\n" \
        "baseline_windows_max = 3\nwaking_costs_us_min = 0\n"
MASKS = ["--placement", "affinity"]
MEANS = {
    "bpf": (["--observer", "bpf", *MASKS], EAGER),
    "procfs": (["--observer", "procfs", *MASKS], EAGER),
    "window": (["--observer", "bpf", *MASKS], EAGER + "expand_at_once = false\n"),
    "bpf, cpuset": (["--observer", "bpf"], EAGER),
}
# Wide phases of so many ms, and hand-overs in a narrow phase of about the same length on this machine.
LENGTHS = [(50, 2_000, 40), (500, 20_000, 6), (5_000, 200_000, 1)]


def run(gleaner, phases, policy, options, config, numbers):
    with tempfile.TemporaryDirectory() as folder:
        file, report = os.path.join(folder, "params.toml"), os.path.join(folder, "run.json")
        with open(file, "w") as to:
            to.write(config)
        command = [gleaner, "run", "--policy", policy, "--quiet", "--json", report, "--config", file, *options, "--",
                   phases, *map(str, numbers)]
        told = subprocess.run(command, capture_output=True, text=True)
        if told.returncode:
            sys.exit(f"{' '.join(command)}: {told.stderr}")
        with open(report) as text:
            decisions = json.load(text)["decisions"]
        reasons = [decision["reason"] for decision in decisions if decision["action"] == "activate-all"]
        return {**json.loads(told.stdout), "at_once": sum("at once" in reason for reason in reasons),
                "given_back": len(reasons), "packed": sum(one["action"] == "deactivate" for one in decisions),
                "reasons": sorted(set(reasons))[:5]}


def burst(gleaner, phases, bursts, only=None):
    rows = []
    for means, (options, config) in MEANS.items():
        if only not in (None, means):
            continue
        rows.append({"means": means, **run(gleaner, phases, "consolidate", options, config,
                                           [os.cpu_count() + 1, 100_000, 60, bursts])})
        print(rows[-1], file=sys.stderr)
    return rows


def phased(gleaner, phases, rounds):
    rows = []
    for round_ in range(rounds):
        for work_ms, handovers, count in LENGTHS:
            cases = [("off", []), ("full", []), ("consolidate", ["--observer", "bpf"])]
            random.Random(round_ * 7 + work_ms).shuffle(cases)
            for policy, options in cases:
                told = run(gleaner, phases, policy, options, "", [os.cpu_count() + 1, handovers, work_ms, count])
                rows.append({"round": round_, "work_ms": work_ms, "policy": policy, **told})
                print(rows[-1], file=sys.stderr)
    table = []
    for work_ms, *_ in LENGTHS:
        for policy in ("full", "consolidate"):
            at = lambda name, key: [row[key] for row in rows if (row["work_ms"], row["policy"]) == (work_ms, name)]
            for key in ("wall_ms", "wide_ms"):
                pairs = [off / own for off, own in zip(at("off", key), at(policy, key))]
                table.append({"work_ms": work_ms, "policy": policy, "of": key, "speed": round(statistics.median(pairs), 3),
                              "range": [round(min(pairs), 3), round(max(pairs), 3)]})
    return {"table": table, "rows": rows}


def plot(file):
    """Bursts that all vCPUs work for, as a share, over time since the burst."""
    with open(file) as text:
        summary = json.load(text)
    left, right, top, bottom, first, last = 60, 700, 40, 300, math.log10(0.1), math.log10(100)
    x = lambda ms: left + (math.log10(max(ms, 0.1)) - first) / (last - first) * (right - left)
    y = lambda share: bottom - share * (bottom - top)
    text = lambda at, line, how="": f'<text x="{at[0]:.0f}" y="{at[1]:.0f}" {how}>{line}</text>'
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 350" font-family="sans-serif" font-size="13">',
           '<rect width="840" height="350" fill="white"/>',
           text((left, 22), f"Bursts that all {summary['vcpus']} vCPUs work for, after so many ms "
                            f"(Linux {summary['kernel']})", 'font-size="15"')]
    for ms in (0.1, 1, 10, 100):
        out += [f'<path d="M{x(ms):.0f} {top}V{bottom}" stroke="#ddd"/>',
                text((x(ms), bottom + 20), f"{ms:g} ms", 'text-anchor="middle"')]
    for percent in (0, 50, 90, 100):
        at = y(percent / 100)
        out += [f'<path d="M{left} {at:.0f}H{right}" stroke="#ddd"/>',
                text((left - 6, at + 4), f"{percent} %", 'text-anchor="end"')]
    for means, colour in (("bpf", "#0072b2"), ("procfs", "#d55e00"), ("window", "#555")):
        row = next(row for row in summary["bursts"] if row["means"] == means)
        share = 0
        path = f"M{left} {bottom}"
        for count, us in enumerate(row["delays_us"], 1):
            path += f"H{x(us / 1e3):.1f}V{y(count / row['bursts']):.1f}"
            share = count / row["bursts"]
        name = {"bpf": "BPF", "procfs": "/proc", "window": "window alone"}[means]
        out += [f'<path d="{path}H{right}" fill="none" stroke="{colour}" stroke-width="2"/>',
                text((right + 6, y(share) + (16 if means == "bpf" else 2)), name, f'fill="{colour}"')]
    print("\n".join(out + ["</svg>"]))


def main():
    if sys.argv[1:2] == ["plot"]:
        return plot(sys.argv[2])
    gleaner, phases, what, *count = sys.argv[1:]
    number = int(count[0]) if count else 30
    result = burst(gleaner, phases, number, *count[1:]) if what == "burst" else phased(gleaner, phases, number)
    json.dump({"kernel": os.uname().release, "vcpus": os.cpu_count(), "result": result}, sys.stdout, indent=1)
    print()


main()
