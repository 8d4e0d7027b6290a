#!/usr/bin/env python3
"""Real programs in each arm: plain, polling, one vCPU by hand, `gleaner run`: speed, CPU time, and what counts alike.

    programs.py [--rounds N] [--only NAME,...] [--skip NAME,...] [--modes M,...] [--variant NAME=OPTIONS]...
                [--gleaner PATH] [--chosen-by CHOOSES MEASURES] [--out FILE]

Modes: plain; haltpoll (200 us); one (taskset to the last vCPU); poll-one (both); gleaner. Each program does a fixed
amount of work, so the speed is wall time, with the start. Beside it stands what the run counted: CPU time, user time,
switches of both kinds, read and write calls. What is the same in all modes measures progress; the last table says how
far each count is off. --chosen-by takes two earlier summaries: the first chooses a mode for each program, the second
says how fast it was, as a part of the best one here. What is lacking is noise. Needs root and the haltpoll governor
(what it sets there it takes back); a program that is missing is left out and said. Raw values go to --out (default
target/packing/programs.json), a summary beside it.
"""

import argparse, json, math, os, platform, random, re, resource, shutil, signal
import statistics, subprocess, sys, tempfile, time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.dont_write_bytecode = True
import guest

REDIS = ('redis-server --port 0 --unixsocket $W/r.sock --save "" --appendonly no >/dev/null & s=$!;'
         ' until redis-cli -s $W/r.sock ping >/dev/null 2>&1; do sleep 0.02; done; ')
MEMCACHED = "memcached -u root -t 2 -s $W/m.sock -a 777 & s=$!; until [ -e $W/m.sock ]; do sleep 0.02; done; "
END = "; kill $s; wait $s 2>/dev/null; rm -f $W/r.sock $W/m.sock; true"
# Its orderly end takes a second.
KILLED = END.replace("kill", "kill -9", 1)
PGBENCH = "pgbench -h $W -U postgres -n -S -t {} -c {} -j {} postgres >/dev/null 2>&1"
MARIADB = "sysbench $O --threads={} --events={} --time=0 oltp_point_select run >/dev/null"
NGINX = ("nginx -p $W -c $W/nginx.conf & s=$!; until [ -e $W/nginx.pid ]; do sleep 0.02; done; sleep 0.05;"
         " ab -q -n {} -c {} http://127.0.0.1:18080/ >/dev/null 2>&1" + END)
# What takes turns, then what runs side by side. Each needs the program named first.
PROGRAMS = {
    "sysv-semaphores": ("$W/turns", "$W/turns sysv 60000"),
    "posix-semaphores": ("$W/turns", "$W/turns sem 60000"),
    "condition-variable": ("$W/turns", "$W/turns cond 60000"),
    "eventfd": ("$W/turns", "$W/turns eventfd 60000"),
    "socket-pair": ("$W/turns", "$W/turns socket 60000"),
    "message-queue": ("$W/turns", "$W/turns mqueue 60000"),
    "turns-with-work": ("$W/turns", "$W/turns work 10000"),
    "perf-pipe": ("perf", "perf bench sched pipe -l 60000 >/dev/null 2>&1"),
    "perf-pipe-threads": ("perf", "perf bench sched pipe -T -l 60000 >/dev/null 2>&1"),
    "python-threads": ("python3", "$PYTHON $W/pair.py"),
    "python-pipe": ("python3", "$PYTHON $W/pipe.py"),
    "python-asyncio-tcp": ("python3", "$PYTHON $W/tcp.py"),
    "perl-socketpair": ("perl", "perl $W/pair.pl"),
    "bash-coproc": ("bash", "bash $W/coproc.sh"),
    "node-atomics": ("node", "node $W/atomics.js"),
    "node-messages": ("node", "node $W/messages.js"),
    "jvm-queue": ("javac", "java -XX:+UseSerialGC -cp $W Queue"),
    "jvm-pool": ("javac", "java -XX:+UseSerialGC -cp $W Futures"),
    "go-channel-locked": ("go", "$W/channel"),
    "go-channel": ("go", "$W/channel free"),
    "go-pipe": ("go", "$W/channel pipe"),
    "ocaml-event": ("ocamlopt", "$W/events"),
    "ruby-queue": ("ruby", "ruby $W/queue.rb"),
    "sbcl-semaphores": ("sbcl", "sbcl --script $W/semaphores.lisp"),
    "erlang-ring": ("erl", "cd $W && erl -noshell -s ring run 60 20000"),
    "redis-1": ("redis-server", REDIS + "redis-benchmark -s $W/r.sock -c 1 -n 40000 -t get -q >/dev/null" + END),
    "memcached-1": ("memcached", MEMCACHED + "$PYTHON $W/mc.py $W/m.sock 20000" + KILLED),
    "pgbench-1": ("pgbench", PGBENCH.format(8000, 1, 1)),
    "mariadb-1": ("mariadbd", MARIADB.format(1, 8000)),
    "sqlite-sort-pipe": ("sort", "seq 400000 | sort -R --random-source=/dev/zero | sort -n | tail -1 >/dev/null"),
    "stress-futex": ("stress-ng", "stress-ng -q --futex 1 --futex-ops 100000"),
    "stress-sem": ("stress-ng", "stress-ng -q --sem-sysv 1 --sem-sysv-ops 60000"),
    "stress-switch": ("stress-ng", "stress-ng -q --switch 2 --switch-ops 120000"),
    "redis-8": ("redis-server", REDIS + "redis-benchmark -s $W/r.sock -c 8 -n 60000 -t get -q >/dev/null" + END),
    "memcached-8": ("memcslap", MEMCACHED + "memcslap --servers=$W/m.sock --concurrency=8 --execute-number=6000"
                    " --test=get >/dev/null" + KILLED),
    "pgbench-8": ("pgbench", PGBENCH.format(3000, 8, 2)),
    "mariadb-48": ("mariadbd", MARIADB.format(48, 12000)),
    "nginx-8": ("ab", NGINX.format(20000, 8)),
    "nginx-1": ("ab", NGINX.format(8000, 1)),
    "hackbench": ("hackbench", "hackbench -p -g 2 -f 4 -l 20000 >/dev/null"),
    "hackbench-1": ("hackbench", "hackbench -T -g 1 -f 1 -l 60000 >/dev/null"),
    "go-echo": ("go", "$W/echo"),
    "openmp": ("gcc", "OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive $W/regions 10000 20000"),
    "jvm-barrier": ("javac", "java -XX:+UseSerialGC -cp $W Barrier"),
    "python-pool": ("python3", "$PYTHON $W/pool.py"),
    "pigz": ("pigz", "pigz -b 32 -p 2 -c $W/archive >/dev/null"),
    "xz": ("xz", "head -c 8000000 $W/archive | xz -T2 -1 --block-size=1000000 -c >/dev/null"),
    "sysbench-cpu": ("sysbench", "sysbench cpu --threads=2 --events=6000 --time=0 run >/dev/null"),
    "sysbench-mutex": ("sysbench", "sysbench mutex --threads=4 --mutex-loops=10000 --mutex-locks=20000 run >/dev/null"),
    "gcc": ("gcc", "for i in 1 2 3 4 5 6; do gcc -O2 -pipe -c $W/x.c -o $W/x$i.o & done; wait"),
    "git-log": ("git", "git -C $ROOT log --stat -n 150 >/dev/null"),
    "tar-gzip": ("tar", "tar cf - -C $W archive archive | gzip -1 | gzip -d >/dev/null"),
    "true": ("true", "true"),
}


def prepare(work):
    servers = guest.prepare(work)
    for source in os.scandir(f"{ROOT}/experiments/packing/programs"):
        shutil.copy(source.path, work)
    env = {**os.environ, "HOME": work, "GOFLAGS": "-mod=mod"}
    for tool, command in (("gcc", "gcc -O2 -w -o turns turns.c -lpthread -lrt"),
                          ("gcc", "gcc -O1 -fopenmp -o regions regions.c"),
                          ("ocamlopt", "ocamlopt -I +threads unix.cmxa threads.cmxa events.ml -o events"),
                          ("javac", "javac Barrier.java Queue.java Futures.java"),
                          ("erlc", "erlc ring.erl"), ("go", "go build channel.go && go build echo.go")):
        if shutil.which(tool):
            subprocess.run(command, shell=True, cwd=work, check=True, env=env)
    return servers


def counted():
    """What this process' ended children did so far."""
    used, files = resource.getrusage(resource.RUSAGE_CHILDREN), {}
    for line in open("/proc/self/io"):
        name, value = line.split(":")
        files[name] = int(value)
    return {"cpu": used.ru_utime + used.ru_stime, "user": used.ru_utime, "voluntary": used.ru_nvcsw,
            "switches": used.ru_nvcsw + used.ru_nivcsw, "calls": files["syscr"] + files["syscw"]}


COUNTS = ("cpu", "user", "voluntary", "switches", "calls")


def once(command, mode, work, gleaner, machine, options):
    machine.set("haltpoll" if mode in ("haltpoll", "poll-one") else "plain")
    words = ["bash", "-c", command]
    if mode in ("one", "poll-one"):
        words = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *words]
    if options is not None:
        words = [gleaner, "run", "--quiet", "--json", f"{work}/run.json", *options, "--", *words]
    env = {**os.environ, "W": work, "ROOT": ROOT, "PYTHON": sys.executable, "GLEANER": gleaner}
    before, polled, began = counted(), guest.polled(), time.monotonic()
    signal.alarm(120)
    try:
        # subprocess' own time-out looks every 50 ms, which would be in the wall time.
        status = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=env).wait()
    finally:
        wall = time.monotonic() - began
        signal.alarm(0)
    row = {"wall": wall, "polled": guest.polled() - polled, "status": status}
    row |= {name: value - before[name] for name, value in counted().items()}
    if options is not None:
        report = json.loads(guest.read(f"{work}/run.json"))
        row["decisions"] = [f"{d['at_ns'] / 1e9:.2f} {d['action']} {d['reason']}" for d in report["decisions"]]
    return row


def middle(values):
    return statistics.median(values) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--modes", default="plain,haltpoll,one,gleaner")
    parser.add_argument("--gleaner", default=f"{ROOT}/target/gleaner")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=OPTIONS")
    parser.add_argument("--chosen-by", nargs=2, metavar=("CHOOSES", "MEASURES"))
    parser.add_argument("--out", default=f"{ROOT}/target/packing/programs.json")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("a program took longer than two minutes"))
    variants = {"gleaner": []} | {name: words.split() for name, words in (v.split("=", 1) for v in args.variant)}
    modes = args.modes.split(",") + [name for name in variants if name != "gleaner"]
    work = tempfile.mkdtemp(prefix="gleaner-packing-")
    machine, servers, rows = guest.Machine(), [], {}
    try:
        servers = prepare(work)
        names = args.only.split(",") if args.only else [name for name in PROGRAMS if name not in args.skip.split(",")]
        for name in names:
            needs, command = PROGRAMS[name]
            if not shutil.which(needs.replace("$W", work)):
                print(f"{name}: left out, {needs} is not installed", file=sys.stderr)
                continue
            rows[name] = {mode: [] for mode in modes}
            for _ in range(args.rounds):
                for mode in random.sample(modes, len(modes)):
                    rows[name][mode].append(once(command, mode, work, args.gleaner, machine, variants.get(mode)))
            print(line(name, rows[name]), flush=True)
    finally:
        machine.reset()
        for stop in servers:
            stop()
        shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    version = "no gleaner" if "gleaner" not in modes else subprocess.run(
        [args.gleaner, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    about = f"Linux {platform.release()}, {os.cpu_count()} vCPUs, {time.strftime('%Y-%m-%d')}, {version}"
    result = {"machine": about, "rounds": args.rounds, **summary(rows)}
    if args.chosen_by:
        earlier = [json.loads(guest.read(path))["programs"] for path in args.chosen_by]
        result = {"chosen_and_measured_earlier": chosen_by(*earlier, result["programs"]), **result}
    with open(args.out, "w") as file:
        json.dump({"machine": about, "rounds": args.rounds, "programs": rows}, file, indent=1)
    with open(args.out.removesuffix(".json") + "-summary.json", "w") as file:
        file.write(a_line_a_case(result))
    print(json.dumps({key: value for key, value in result.items() if key != "programs"}, indent=1))


def a_line_a_case(result):
    """The summary as JSON with a line for each program."""
    *first, (_, programs) = result.items()
    lines = [f'"{key}": {json.dumps(value)}' for key, value in first]
    lines.append('"programs": {\n' + ",\n".join(f'  "{name}": {json.dumps(cells)}' for name, cells in programs.items()) + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def speedups(modes, mode):
    return [plain["wall"] / run["wall"] for run, plain in zip(modes[mode], modes["plain"])]


def line(name, modes):
    text = f"{name:20} {middle([run['wall'] for run in modes['plain']]):6.2f} s"
    for mode in modes:
        if mode != "plain":
            ratios = speedups(modes, mode)
            text += f"  {mode} {middle(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    bad = sum(run["status"] != 0 for runs in modes.values() for run in runs)
    return text + (f"  FAILED {bad}" if bad else "")


def summary(rows):
    programs, offs = {}, {name: [] for name in COUNTS}
    orders = {name: [] for name in COUNTS}
    for name, modes in rows.items():
        cells = {}
        for mode, runs in modes.items():
            ratios = speedups(modes, mode)
            cells[mode] = {"speedup": [round(x, 3) for x in (middle(ratios), min(ratios), max(ratios))],
                           "wall_s": round(middle([run["wall"] for run in runs]), 3),
                           "cpu_and_polled_s": round(middle([run["cpu"] + run["polled"] for run in runs]), 3)}
            cells[mode] |= {count: round(middle([run[count] for run in runs]), 3) for count in COUNTS}
        programs[name] = cells
        arms = [mode for mode in ("plain", "haltpoll", "one") if mode in cells]
        for i, a in enumerate(arms):
            for b in arms[i + 1:]:
                faster = cells[a]["wall_s"] / cells[b]["wall_s"]
                for count in COUNTS:
                    x, y = cells[a][count], cells[b][count]
                    if not x or not y or abs(math.log(faster)) < 0.05:
                        continue
                    # The rate of the count says that b is so many times as fast as a.
                    says = faster * y / x
                    offs[count].append(abs(math.log(y / x)))
                    orders[count].append((says > 1) == (faster > 1))
    every = next(iter(rows.values())).keys() if rows else []
    speed = lambda mode, cells: cells[mode]["speedup"][0]
    result = {"geometric_mean": {mode: round(statistics.geometric_mean(speed(mode, c) for c in programs.values()), 3)
                                 for mode in every},
              "cpu_and_polled_s": {mode: round(sum(c[mode]["cpu_and_polled_s"] for c in programs.values()), 1)
                                   for mode in every},
              "counts": {count: {"orders_as_wall_time": f"{sum(orders[count])} of {len(orders[count])}",
                                 "off_median": round(math.exp(middle(offs[count])) - 1, 3) if offs[count] else None}
                         for count in COUNTS}}
    best = lambda cells: max(speed(mode, cells) for mode in ("plain", "haltpoll", "one") if mode in cells)
    if programs and "gleaner" in every:
        of_best = [speed("gleaner", c) / best(c) for c in programs.values()]
        result["of_the_best"] = round(statistics.geometric_mean(of_best), 3)
        near = [name for name, c in programs.items() if speed("gleaner", c) >= 0.95 * best(c)]
        result["within_5_percent_of_the_best"] = f"{len(near)} of {len(programs)}"
        result["below_0.97_of_plain"] = [name for name, c in programs.items() if speed("gleaner", c) < 0.97]
    if programs:
        result["best_of_each"] = round(statistics.geometric_mean(best(c) for c in programs.values()), 3)
    return {**result, "programs": programs}


def chosen_by(chooses, measures, programs):
    """What the first has as its best mode by hand, as the second measured it, of the best by hand here."""
    speed = lambda mode, cells: cells[mode]["speedup"][0]
    modes, of_best = ("plain", "haltpoll", "one"), []
    for name in programs.keys() & chooses.keys() & measures.keys():
        chosen = max(modes, key=lambda mode: speed(mode, chooses[name]))
        of_best.append(speed(chosen, measures[name]) / max(speed(mode, programs[name]) for mode in modes))
    near = f"{sum(ratio >= 0.95 for ratio in of_best)} of {len(of_best)}"
    return {"of_the_best": round(statistics.geometric_mean(of_best), 3), "within_5_percent_of_the_best": near}


if __name__ == "__main__":
    main()
