#!/usr/bin/env python3
"""Real programs as a user runs them: plain, haltpoll at 200 us, polling without limit, `gleaner run`.

    programs.py [--rounds N] [--only NAME,...] [--modes M,...] [--variant NAME=OPTIONS]... [--built-in]
                [--gleaner PATH] [--out FILE]

A variant is `gleaner run` with other options, a mode of its own. --built-in adds `gleaner workload`'s programs.
OPEN_SECONDS: how long redis-100 and redis-1000 are asked (default 3; a trial of yielding threads takes longer).

Modes of one program follow each other in random order, in each round. Wall time counts the start. Needs root, a
cpuidle driver with a POLL state under the haltpoll governor (what it sets there it takes back), and the programs
themselves: what is missing is left out and said.
Raw values go to --out (default target/retention/programs.json), a summary to a file beside it.
"""

import argparse, glob, json, os, platform, random, re, shutil, signal
import statistics, subprocess, sys, tempfile, textwrap, time

PARAMETERS = "/sys/module/haltpoll/parameters/guest_halt_poll_"
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))

# What each program prints last is its figure. `rate`: higher is better; `time`: lower is better, wall time where
# nothing is printed.
# The server is a child of the same command, so it is managed with its client.
SERVER = 'taskset -c 0 {server} >/dev/null 2>&1 & server=$!; trap "kill $server; wait $server" EXIT; '
REDIS = SERVER.format(server='redis-server --port 0 --unixsocket $W/r.sock --save "" --appendonly no') + (
    "until redis-cli -s $W/r.sock ping >/dev/null 2>&1; do sleep 0.02; done; ")
MEMCACHED = (
    "memcached -u nobody -t 2 -s $W/m.sock -a 777 & server=$!; trap 'kill $server; wait $server' EXIT; sleep 0.2; "
)
PROGRAMS = {
    "redis-1": (
        "rate",
        "redis-server",
        REDIS
        + "taskset -c 1 redis-benchmark -s $W/r.sock -c 1 -n 60000 -t get --csv | sed -n"
        " '$s/[^,]*,\"\\([0-9.]*\\).*/\\1/p'",
    ),
    "redis-100": ("time", "redis-server", REDIS + "taskset -c 1 $PYTHON $W/open.py $W/r.sock 100 ${OPEN_SECONDS:-3}"),
    "redis-1000": ("time", "redis-server", REDIS + "taskset -c 1 $PYTHON $W/open.py $W/r.sock 1000 ${OPEN_SECONDS:-3}"),
    "memcached-8": (
        "time",
        "memcslap",
        MEMCACHED
        + "memcslap --servers=$W/m.sock --concurrency=8 --execute-number=8000 --test=get | sed -n 's/^Time total:"
        " *\\([0-9.]*\\).*/\\1/p'",
    ),
    "pgbench-1": (
        "rate",
        "pgbench",
        "pgbench -h $W -U postgres -n -S -c 1 -T 3 postgres 2>/dev/null | sed -n 's/^tps = \\([0-9.]*\\).*/\\1/p'",
    ),
    "pgbench-8": (
        "rate",
        "pgbench",
        "pgbench -h $W -U postgres -n -S -c 8 -j 2 -T 3 postgres 2>/dev/null | sed -n 's/^tps = \\([0-9.]*\\).*/\\1/p'",
    ),
    "nginx-8": (
        "rate",
        "nginx",
        (
            "nginx -p $W -c $W/nginx.conf & server=$!; trap 'kill $server; wait $server' EXIT; sleep 0.3; wrk -t 1 -c 8"
            " -d 3 http://127.0.0.1:18080/ | sed -n 's/^Requests.sec: *//p'"
        ),
    ),
    "pigz": ("time", "pigz", "pigz -b 32 -p 2 -c $W/archive >/dev/null"),
    "pigz-p4": ("time", "pigz", "pigz -b 32 -p 4 -c $W/archive >/dev/null"),
    "hackbench": ("time", "hackbench", "hackbench -p -g 2 -f 4 -l 60000 >/dev/null"),
    "messaging": ("time", "perf", "perf bench sched pipe -T -l 100000 >/dev/null 2>&1"),
    "python-pair": ("time", "python3", "$PYTHON $W/pair.py"),
    "jvm-queue": ("time", "javac", "java -XX:+UseSerialGC -cp $W Queue"),
    "jvm-futures": ("time", "javac", "java -XX:+UseSerialGC -cp $W Futures"),
    "go-channel": ("time", "go", "$W/channel"),
    "x264": ("time", "x264", "x264 --quiet --preset veryfast --threads 2 -o /dev/null $W/film.y4m 2>/dev/null"),
    "sysbench-cpu": ("time", "sysbench", "sysbench cpu --threads=2 --events=6000 --time=0 run >/dev/null"),
    "sysbench-mutex": (
        "time",
        "sysbench",
        "sysbench mutex --threads=4 --mutex-loops=10000 --mutex-locks=40000 run >/dev/null",
    ),
    "mariadb-1": (
        "rate",
        "sysbench",
        (
            "sysbench $O --threads=1 --time=3 oltp_point_select run | sed -n 's/.*transactions:.*(\\([0-9.]*\\)"
            " per.*/\\1/p'"
        ),
    ),
    "mariadb-48": (
        "rate",
        "sysbench",
        (
            "sysbench $O --threads=48 --time=3 oltp_point_select run | sed -n 's/.*transactions:.*(\\([0-9.]*\\)"
            " per.*/\\1/p'"
        ),
    ),
    "true": ("time", "true", "true"),
    "git": ("time", "git", "git -C $ROOT log --stat -n 150 >/dev/null"),
    "make": ("time", "gcc", "for i in 1 2 3 4 5 6; do gcc -O2 -pipe -c $W/x.c -o $W/x$i.o & done; wait"),
}

# `gleaner workload`: one to two seconds each on two vCPUs.
BUILT_IN = {
    "relay": "--threads 2 --items 60000",
    "barrier": "--threads 4 --items 15000",
    "fork-join": "--threads 2 --items 4000",
    "request-reply": "--threads 4 --items 24000",
    "pipeline": "--threads 1 --items 12000",
    "task-queue": "--threads 4 --items 60000",
    "block-io": "--threads 2 --items 8000",
    "freqsleep": "--threads 2 --items 40000",
    "address-space": "--threads 4 --items 20000",
    "spin-lock": "--threads 2 --items 200000",
    "independent": "--threads 4 --items 8000",
    "matmul": "--threads 2 --items 4000",
}

OPEN = """
import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
rate, seconds = int(sys.argv[2]), float(sys.argv[3])
times, due = [], time.monotonic()
for _ in range(int(rate * seconds)):
    due += 1 / rate
    time.sleep(max(0, due - time.monotonic()))
    began = time.perf_counter(); s.send(b"PING\\r\\n"); s.recv(64); times.append(time.perf_counter() - began)
times.sort()
print(times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6)
"""
PAIR = """
import threading, queue
a, b = queue.SimpleQueue(), queue.SimpleQueue()
def echo():
    while (x := a.get()) is not None: b.put(x)
t = threading.Thread(target=echo); t.start()
for i in range(60000): a.put(i); b.get()
a.put(None); t.join()
"""
QUEUE = """
import java.util.concurrent.*;
public class Queue { public static void main(String[] x) throws Exception {
  var a = new SynchronousQueue<Integer>(); var b = new SynchronousQueue<Integer>();
  var t = new Thread(() -> {
   try { for (int i = 0; i < 60000; i++) b.put(a.take()); } catch (InterruptedException e) {}
  });
  t.start(); for (int i = 0; i < 60000; i++) { a.put(i); b.take(); } t.join(); } }
"""
FUTURES = """
import java.util.concurrent.*;
public class Futures { public static void main(String[] x) throws Exception {
  var pool = Executors.newFixedThreadPool(2); long sum = 0;
  for (int i = 0; i < 60000; i++) { int n = i; sum += pool.submit(() -> n * 2).get(); }
  pool.shutdown(); System.err.print(""); } }
"""
CHANNEL = """
package main
import "runtime"
func main() {
	a, b := make(chan int), make(chan int)
	go func() { runtime.LockOSThread(); for x := range a { b <- x }; close(b) }()
	runtime.LockOSThread()
	for i := 0; i < 100000; i++ { a <- i; <-b }
	close(a)
}
"""
NGINX = (
    "daemon off; worker_processes 1; pid {W}/nginx.pid; error_log {W}/error.log; events {{}} http {{ access_log off;"
    " server {{ listen 127.0.0.1:18080; location / {{ return 200 hello; }} }} }}"
)


def read(path):
    with open(path) as file:
        return file.read().strip()


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def prepare(work):
    """What the programs need; servers whose start takes long run all the time, outside of what is measured."""
    for name, text in (
        ("open.py", OPEN),
        ("pair.py", PAIR),
        ("Queue.java", QUEUE),
        ("Futures.java", FUTURES),
        ("channel.go", CHANNEL),
        ("nginx.conf", NGINX.format(W=work)),
    ):
        write(f"{work}/{name}", textwrap.dedent(text))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    os.chmod(work, 0o777)
    with open(f"{work}/archive", "wb") as archive:
        for path in sorted(glob.glob("/usr/lib/x86_64-linux-gnu/*.so*"))[:400]:
            with open(path, "rb") as file:
                archive.write(file.read()[:200_000])
    write(
        f"{work}/x.c",
        "\n".join(
            f"double f{i}(double *a, int n) {{ double s = {i}; for (int k = 0; k < n; k++) s += a[k] * {i}; return"
            " s; }"
            for i in range(150)
        ),
    )
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", work, f"{work}/Queue.java", f"{work}/Futures.java"], check=True)
    if shutil.which("go"):
        subprocess.run(
            ["go", "build", "-o", f"{work}/channel", f"{work}/channel.go"],
            check=True,
            env={**os.environ, "HOME": work, "GOFLAGS": "-mod=mod"},
        )
    if shutil.which("ffmpeg"):
        subprocess.run(
            [
                "ffmpeg",
                "-f",
                "lavfi",
                "-i",
                "testsrc2=size=960x540:rate=25",
                "-frames:v",
                "150",
                "-pix_fmt",
                "yuv420p",
                f"{work}/film.y4m",
            ],
            check=True,
            **quiet,
        )
    servers = []
    binaries = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if binaries:
        run = lambda *words: subprocess.run(
            ["su", "postgres", "-s", "/bin/sh", "-c", " ".join(words)], check=True, **quiet
        )
        run(f"{binaries[-1]}/initdb -A trust -D {work}/pg")
        run(f"{binaries[-1]}/pg_ctl -w -D {work}/pg -o '-c listen_addresses= -k {work}' start")
        run(f"pgbench -h {work} -i -s 5 postgres")
        servers.append(lambda: run(f"{binaries[-1]}/pg_ctl -m fast -D {work}/pg stop"))
    if shutil.which("mariadbd"):
        os.makedirs(f"{work}/my")
        subprocess.run(
            ["mariadb-install-db", "--user=root", f"--datadir={work}/my", "--auth-root-authentication-method=normal"],
            check=True,
            **quiet,
        )
        server = subprocess.Popen(
            [
                "mariadbd",
                "--no-defaults",
                "--user=root",
                f"--datadir={work}/my",
                f"--socket={work}/my.sock",
                "--skip-networking",
                "--innodb-buffer-pool-size=256M",
            ],
            **quiet,
        )
        servers.append(lambda: (server.terminate(), server.wait()))
        os.environ["O"] = (
            f"--mysql-socket={work}/my.sock --mysql-user=root --tables=2 --table-size=20000 --db-driver=mysql"
        )
        for _ in range(100):
            if (
                subprocess.run(
                    ["mariadb", f"--socket={work}/my.sock", "-e", "create database if not exists sbtest"], **quiet
                ).returncode
                == 0
            ):
                break
            time.sleep(0.2)
        subprocess.run(f"sysbench {os.environ['O']} oltp_point_select prepare", shell=True, check=True, **quiet)
    return servers


class Machine:
    """The kernel's polling, set for one run and taken back."""

    def __init__(self):
        self.had = {name: read(PARAMETERS + name) for name in ("ns", "grow", "grow_start", "shrink")}

    def reset(self):
        for name, value in self.had.items():
            write(PARAMETERS + name, value)
        for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state0/disable"):
            write(path, read(path))

    def set(self, mode):
        self.reset()
        if mode == "haltpoll":
            for name, value in (("grow", 2), ("grow_start", 50000), ("shrink", 2), ("ns", 200000)):
                write(PARAMETERS + name, value)
        if mode == "unlimited":
            file = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
            os.write(file, (0).to_bytes(4, "little"))
            return lambda: os.close(file)
        return lambda: None


def polled():
    return sum(int(read(path)) for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state0/time")) / 1e6


def once(command, mode, kind, work, gleaner, machine, options):
    """`options` of `gleaner run`, or None for a mode without it."""
    undo = machine.set(mode)
    words = ["bash", "-c", command]
    if options is not None:
        words = [gleaner, "run", "--quiet", "--json", f"{work}/run.json", *options, "--", *words]
    before, began = polled(), time.monotonic()
    try:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            timeout=120,
            env={**os.environ, "W": work, "ROOT": ROOT, "PYTHON": sys.executable, "GLEANER": gleaner},
        )
    finally:
        wall = time.monotonic() - began
        undo()
    row = {"wall": wall, "polled": polled() - before, "status": done.returncode}
    said = re.findall(r"[0-9.]+", done.stdout.decode())
    row["value"] = float(said[-1 if kind == "rate" else 0]) if said else wall
    if len(said) == 2:
        row["p99"] = float(said[1])
    if options is not None:
        report = json.loads(read(f"{work}/run.json"))
        row["means"] = report["means"]["retention"]
        row["decisions"] = [
            f"{d['at_ns'] / 1e9:.2f} {d['action']} {d['reason']}"
            for d in report["decisions"]
            if d.get("vcpu") in (0, None)
        ]
    return row


def better(kind, value, plain):
    return value / plain if kind == "rate" else plain / value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--modes", default="plain,haltpoll,unlimited,gleaner")
    parser.add_argument("--gleaner", default=f"{ROOT}/target/gleaner")
    parser.add_argument("--options", default="", help="more words for `gleaner run`")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=OPTIONS")
    parser.add_argument("--built-in", action="store_true")
    parser.add_argument("--out", default=f"{ROOT}/target/retention/programs.json")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    variants = {"gleaner": args.options.split()}
    for name, options in (variant.split("=", 1) for variant in args.variant):
        variants[name] = options.split()
    modes = args.modes.split(",") + [name for name in variants if name != "gleaner"]
    if args.built_in:
        for name, options in BUILT_IN.items():
            PROGRAMS[name] = ("time", "true", f"$GLEANER workload {name} {options} >/dev/null 2>&1")
    work = tempfile.mkdtemp(prefix="gleaner-retention-")
    machine, servers, rows = Machine(), [], {}
    try:
        servers = prepare(work)
        names = [name for name in PROGRAMS if not args.only or name in args.only.split(",")]
        for name in names:
            kind, needs, command = PROGRAMS[name]
            if not shutil.which(needs):
                print(f"{name}: left out, {needs} is not installed", file=sys.stderr)
                continue
            rows[name] = {mode: [] for mode in modes}
            for _ in range(args.rounds):
                for mode in random.sample(modes, len(modes)):
                    rows[name][mode].append(
                        once(command, mode, kind, work, args.gleaner, machine, variants.get(mode))
                    )
            ratio = {
                mode: [
                    better(kind, run["value"], plain["value"])
                    for run, plain in zip(rows[name][mode], rows[name]["plain"])
                ]
                for mode in modes
            }
            spent = {mode: statistics.median(run["polled"] for run in rows[name][mode]) for mode in modes}
            bad = sum(run["status"] != 0 for mode in modes for run in rows[name][mode])
            line = "  ".join(
                f"{mode} {statistics.median(ratio[mode]):.2f} ({min(ratio[mode]):.2f}-{max(ratio[mode]):.2f})"
                f" {spent[mode]:.1f}s"
                for mode in modes[1:]
            )
            plain = statistics.median(run["value"] for run in rows[name]["plain"])
            p99 = ""
            if "p99" in rows[name]["plain"][0]:
                p99 = "  p99: " + " ".join(
                    f"{statistics.median(run['p99'] for run in rows[name][mode]):.0f}" for mode in modes
                )
            print(f"{name:14} {plain:9.2f} {line}{p99}{'  FAILED %d' % bad if bad else ''}", flush=True)
    finally:
        machine.reset()
        for stop in servers:
            stop()
        shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.dirname(args.out), exist_ok=True)
    # Of what was measured, which need not be this tree.
    version = subprocess.run([args.gleaner, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    machine = f"Linux {platform.release()}, {os.cpu_count()} vCPUs, {time.strftime('%Y-%m-%d')}, {version}"
    with open(args.out, "w") as file:
        json.dump({"machine": machine, "rounds": args.rounds, "programs": rows}, file, indent=1)
    with open(args.out.removesuffix(".json") + "-summary.json", "w") as file:
        json.dump(summary(machine, args.rounds, rows), file, indent=1)


def summary(machine, rounds, rows):
    """For each program and mode: the speed-up against plain in the same round (median, least, most), polled seconds,
    p99 in us."""
    programs = {}
    for name, modes in rows.items():
        kind, cells = PROGRAMS[name][0], {}
        for mode, runs in modes.items():
            ratios = [better(kind, run["value"], plain["value"]) for run, plain in zip(runs, modes["plain"])]
            cells[mode] = {"speedup": [round(x, 3) for x in (statistics.median(ratios), min(ratios), max(ratios))],
                           "polled_s": round(statistics.median(run["polled"] for run in runs), 2)}
            if "p99" in runs[0]:
                cells[mode]["p99_us"] = round(statistics.median(run["p99"] for run in runs))
        programs[name] = {"value": kind, **cells}
    every = next(iter(rows.values())).keys()
    median = lambda cells, mode: cells[mode]["speedup"][0]
    of = lambda mode, names: [median(programs[name], mode) for name in names]
    mean = lambda mode, names: round(statistics.geometric_mean(of(mode, names)), 3) if names else None
    work = [name for name in programs if name != "true"]
    best = lambda cells: max(median(cells, mode) for mode in every if mode != "gleaner")
    near = [
        name for name in work if "gleaner" in every and median(programs[name], "gleaner") >= 0.95 * best(programs[name])
    ]
    return {"machine": machine, "rounds": rounds,
            "geometric_mean_of_speedups": {mode: mean(mode, programs) for mode in every},
            "geometric_mean_without_true": {mode: mean(mode, work) for mode in every},
            "polled_s": {mode: round(sum(cells[mode]["polled_s"] for cells in programs.values()), 1) for mode in every},
            "gleaner_within_5_percent_of_the_best_without_true": f"{len(near)} of {len(work)}", "programs": programs}


if __name__ == "__main__":
    main()
