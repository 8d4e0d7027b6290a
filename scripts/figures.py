#!/usr/bin/env python3
"""The figures that pages quote, from the summaries in experiments/: one place for a number.

    scripts/figures.py            writes them into the pages (make figures)
    scripts/figures.py --check    fails where a page and its summary differ (make check)

QUOTES has pieces of pages. Each {} is a figure; the values beside it say which. Where a piece is worded anew, word it
here as well: a piece that the page has not, or has twice, is an error.
"""

import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURE = r"(-?[0-9][0-9.,]*[0-9]|[0-9])"


def summary(path):
    return json.loads((ROOT / "experiments" / path).read_text())


def rows(results, name):
    """The rows of the newest run that has this result."""
    return dict([rows for key, rows in results.items() if key.endswith(f"/{name}")][-1])


DEMO = summary("demo/summary.json")["results"]
PACKED = summary("packing/summary.json")
SIMULATED = summary("simulator/summary.json")["results"]
CACHES = summary("cachesim/summary.json")["results"]
PAGES = ["README.md", "docs/guide.md", "docs/results.md", "docs/wakeup.svg", "docs/research.md"]
PLACES = ["haltpoll", "one", "gleaner"]


def demo(program):
    """Median, lowest and highest of a program's speed-up in the demonstration."""
    (row,) = rows(DEMO, f"{program}-ab").values()
    return [f"{value:.2f}" for value in row["speedup"]]


def placed(program):
    """Speed-ups by polling, on one vCPU by hand, and by `gleaner run`."""
    return [f"{statistics.median(PACKED['programs'][program][mode]['speedup']):.2f}" for mode in PLACES]


def wakeup(means, gap_us):
    """Three digits: 15.0, 2.87."""
    us = rows(DEMO, "means")[f"{means} | idle for {gap_us} us"]["p50_us"]
    return f"{us:.{2 - math.floor(math.log10(us))}f}"


def wakeups(means):
    return [wakeup(means, gap) for gap in (50, 200, 1000, 10000)]


def agree(prefix):
    """Rows that were predicted and agree, by each seed, and how many could."""
    found = []
    for seed in "12":
        of = [row for at, row in rows(SIMULATED, f"reproductions-{seed}").items()
              if at.startswith(prefix) and not row.get("fitted") and row.get("agrees") is not None]
        found.append(sum(row["agrees"] for row in of))
    return [*found, len(of)]


def cached(figures):
    of = [row for name in figures for row in rows(CACHES, name).values()]
    return [sum(bool(row["agrees"]) for row in of), len(of)]


def share(seed):
    return f"{100 * agree('')[seed] / agree('')[2]:.0f}"


def papers():
    page = "docs/research.md"
    gleaner, micro = agree("gleaner:"), agree("micro:")
    yield page, "With seed 1, {} of {} predicted rows agree. With seed 2, {} of them do.", [
        gleaner[0], gleaner[2], gleaner[1]]
    yield page, "With either seed, {} of {} predicted rows about scheduling agree.", [micro[0], micro[2]]
    whole = [f"fig{figure}-10" for figure in (7, 8, 10, 11)]
    yield page, "use no seed, and {} of {} of their rows agree.", cached(whole)
    for name in ["gleaner:table1", "gleaner:table2", "gleaner:fig1", "gleaner:fig2", "gleaner:fig5", "gleaner:fig7",
                 "gleaner:fig9", "micro:table1", "micro:fig2", "micro:fig3", "micro:fig5", "micro:fig6", "micro:fig9"]:
        # The last column of its row.
        yield page, f"| `{name}` |~| {{}}, {{}} of {{}}", agree(f"{name} ")
    for figure in ("7", "8", "10", "11"):
        yield page, f"| `micro:fig{figure}` |~| {{}} of {{}} |", cached([f"fig{figure}-10"])
    yield page, "({} % of the rows with one seed, {} % with another)", [share(0), share(1)]


def demonstration():
    """README's first lines, and the table of docs/results.md."""
    page = "docs/results.md"
    middle = {name: demo(name)[0] for name in ["redis", "python", "mariadb", "relay", "pbzip2"]}
    yield "README.md", "one Redis client got {} times as many answers per second", [middle["redis"]]
    yield "README.md", "`pbzip2`, which computes all the time, was {} times as fast", [middle["pbzip2"]]
    yield page, "intervals: Redis {}, Python {}, MariaDB {}, relay {}, pbzip2 {}]", list(middle.values())
    for name, title in {"redis": "Redis, one client", "python": "two Python processes", "relay": "`relay`",
                        "mariadb": "MariaDB, one connection", "pbzip2": "`pbzip2`"}.items():
        ((how, row),) = rows(DEMO, f"{name}-ab").items()
        if "per-second" in how:
            unit, did = "/s", [f"{row[mode]:.0f}" for mode in ("off", "full")]
        else:
            unit, did = " s", [f"{row[mode] / 1000:.2f}" for mode in ("off", "full")]
        bold = "" if demo(name)[1] < "1" < demo(name)[2] else "**"
        line = f"\n| {title} | {{}}{unit} | {{}}{unit} | {bold}{{}}{bold}, {{}} to {{}} |"
        yield page, line, [*did, *demo(name)]
    for means, title in {"halted": "nothing: halted", "haltpoll": "haltpoll", "pm-qos": "pm-qos",
                         "yielding": "yielding threads"}.items():
        yield page, f"| {title} |~{{}}~|~{{}}~|~{{}}~|~{{}}~|\n", wakeups(means)
        yield "docs/guide.md", f"\n {means} {{}}us/~ {{}}us/~ ...", wakeups(means)[:2]
    halted, polls = (f"{float(wakeup(means, 50)):.1f}" for means in ("halted", "haltpoll"))
    yield "README.md", "thread runs {} us later on a halted vCPU, {} us on one that polls", [halted, polls]
    picture = "docs/wakeup.svg"
    yield picture, "ago, and its thread runs {} microseconds later", [halted]
    yield picture, "polls, and its thread runs {} microseconds later", [polls]
    yield picture, "schedules vCPU 1: {} µs", [halted]
    yield picture, ">{} µs</text>\n    <rect x=\"302\"", [polls]
    # 25 px are a microsecond.
    yield picture, '<rect x="230" y="84" width="{}"', [f"{float(halted) * 25:.0f}"]
    yield picture, '<rect x="230" y="212" width="{}"', [f"{float(polls) * 25:.0f}"]


def programs():
    page = "docs/results.md"
    for title, name in {"two Python threads": "python-threads", "two Python processes over a pipe": "python-pipe",
                        "pairs over POSIX semaphores": "posix-semaphores", "`perf bench sched pipe`": "perf-pipe",
                        "a JVM's queue": "jvm-queue", "MariaDB, one connection": "mariadb-1",
                        "Redis, one client": "redis-1", "memcached, 8 clients": "memcached-8",
                        "MariaDB, 48 connections": "mariadb-48", "`hackbench`": "hackbench"}.items():
        yield page, f"| {title} | {{}} | {{}} | {{}} |\n", placed(name)
    means = [f"{PACKED['geometric_mean'][mode]:.2f}" for mode in PLACES]
    yield page, "| geometric mean of {} | {} | {} | {} |", [len(PACKED["programs"]), *means]
    taken = [f"{PACKED['cpu_and_polled_s'][mode]:.1f}" for mode in ["plain", *PLACES]]
    yield page, "| CPU time with what was polled (plain {} s) | {} s | {} s | {} s |", taken
    within = [*re.findall("[0-9]+", PACKED["within_5_percent_of_the_best"]), f"{PACKED['of_the_best']:.2f}"]
    yield page, "Of {} it is within 5 % of the best by hand for {}, and has {} of it in the mean", [
        within[1], within[0], within[2]]


def pattern(piece):
    """A blank is any white space, {} a figure; ~ is anything else of the line."""
    words = [re.escape(word).replace(r"\{\}", FIGURE).replace("\\~", "~").replace("~", r"[^\n]*?")
             for word in piece.split(" ")]
    return re.compile(r"\s+".join(words))


def quoted(page, text):
    """The page with the figures of its pieces, and where they differed."""
    wrong = []
    for where, piece, figures in (quote for part in (demonstration, programs, papers) for quote in part()):
        if where != page:
            continue
        found = list(pattern(piece).finditer(text))
        if len(found) != 1:
            sys.exit(f"figures: {page} has {len(found)} times: {piece.strip()}")
        (match,) = found
        for number in range(len(figures), 0, -1):
            if match[number] != str(figures[number - 1]):
                wrong.append(f"{page}: {match[0].strip()}: {match[number]}, and measured was {figures[number - 1]}")
                text = text[:match.start(number)] + str(figures[number - 1]) + text[match.end(number):]
    return text, wrong


def main(words):
    if words not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = []
    for page in PAGES:
        path = ROOT / page
        text, wrong = quoted(page, path.read_text())
        stale += wrong
        if not words:
            path.write_text(text)
    chart = subprocess.check_output([ROOT / "experiments/demo/chart.sh"], text=True)
    drawn = ROOT / "docs/speedups.svg"
    if drawn.read_text() != chart:
        stale.append("docs/speedups.svg is not that of experiments/demo/summary.json")
        if not words:
            drawn.write_text(chart)
    print("\n".join(f"figures: {line}" for line in stale), file=sys.stderr, end="\n" if stale else "")
    if words and stale:
        sys.exit("figures: run make figures")


main(sys.argv[1:])
