#!/usr/bin/env python3
"""A daemon with many groups: what does a window cost, and the daemon in all?

    scripts/scale.py [--groups 200] [--threads 50] [--busy 0] [--seconds 20] [--binary target/gleaner]
        [--profile PROFILE] [--observer auto] [--count-bpf] [--retain auto] [--overhead WORD]

Makes so many cgroups with one program each, whose threads wake up every two seconds, and lets a daemon manage them. In
busy ones two threads hand a byte to and fro, a thousand times a second. Once the daemon has settled, it is measured:
what it takes, how long its windows are, and how soon it answers. --count-bpf: the kernel counts meanwhile what the BPF
programs take of whom they interrupt (kernel.bpf_stats_enabled), which makes them a little slower.
Needs root. All that it made is taken away again.
"""

import argparse, json, os, socket, statistics, subprocess, sys, tempfile, time

PROGRAM = """
import os, sys, threading, time
threading.stack_size(64 * 1024)
def nap():
    while True: time.sleep(2)
def echo(source, target):
    while True: os.write(target, os.read(source, 1))
if int(sys.argv[2]):
    (here, there), (back, again) = os.pipe(), os.pipe()
    threading.Thread(target=echo, args=(here, again), daemon=True).start()
    def ask():
        while True:
            os.write(there, b"x")
            os.read(back, 1)
            time.sleep(0.001)
    threading.Thread(target=ask, daemon=True).start()
for _ in range(int(sys.argv[1]) - 1): threading.Thread(target=nap, daemon=True).start()
nap()
"""


SETTLES = 15


def hierarchy():
    """Where cgroups can be made: version 2, or a version 1 controller that any process may be put into."""
    for folder in ("/sys/fs/cgroup/freezer", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"):
        if os.path.exists(f"{folder}/cgroup.procs"):
            return folder
    sys.exit("no cgroup file system is mounted")


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_thread(pid):
    """CPU seconds of each thread, by name."""
    taken = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        name = open(f"/proc/{pid}/task/{tid}/comm").read().strip()
        ran = int(open(f"/proc/{pid}/task/{tid}/schedstat").read().split()[0]) / 1e9
        taken[name] = taken.get(name, 0) + ran
    return taken


def bpf_seconds(pid):
    """Run time of the programs that the process has, as far as the kernel counts it."""
    taken = {}
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            lines = open(f"/proc/{pid}/fdinfo/{fd}").read().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if "run_time_ns" in fields:
            taken[fields["prog_id"]] = int(fields["run_time_ns"]) / 1e9
    return sum(taken.values())


def asked(folder):
    """How long the daemon takes to answer `status`, in seconds, and the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{folder}/gleaner.sock")
        began = time.monotonic()
        client.sendall(b'{"request":"status"}\n')
        answer = b""
        while not answer.endswith(b"\n"):
            part = client.recv(1 << 20)
            if not part:
                break
            answer += part
        return time.monotonic() - began, json.loads(answer)["status"]


def context_switches():
    return int(next(line for line in open("/proc/stat") if line.startswith("ctxt")).split()[1])


def count_bpf(on):
    with open("/proc/sys/kernel/bpf_stats_enabled", "r+") as file:
        before = file.read().strip()
        file.seek(0)
        file.write(on)
    return before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--binary", default="target/gleaner")
    parser.add_argument("--profile", default="frugal")
    parser.add_argument("--observer", default="auto")
    parser.add_argument("--retain", default="auto")
    parser.add_argument("--overhead")
    parser.add_argument("--count-bpf", action="store_true")
    args = parser.parse_args()
    top = f"{hierarchy()}/gleaner-scale-{os.getpid()}"
    folder = tempfile.mkdtemp()
    programs, daemon, counted = [], None, None
    ask = lambda *what: subprocess.run(
        [args.binary, *what, "--state-dir", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout
    try:
        os.mkdir(top)
        for n in range(args.groups):
            os.mkdir(f"{top}/{n}")
            programs.append(subprocess.Popen([sys.executable, "-c", PROGRAM, str(args.threads), str(int(n < args.busy))]))
            with open(f"{top}/{n}/cgroup.procs", "w") as file:
                file.write(str(programs[-1].pid))
        with open(f"{folder}/c.toml", "w") as file:
            file.write(f'[daemon]\ngroups_max = {args.groups}\nobserver = "{args.observer}"\n')
            file.write(f'retain = "{args.retain}"\n')
            if args.overhead:
                file.write(f'overhead = "{args.overhead}"\n')
            file.write(f'[group.scale]\ncgroup = "{top}/*"\nprofile = "{args.profile}"\n')
        command = [args.binary, "daemon", "--config", f"{folder}/c.toml", "--state-dir", folder]
        daemon = subprocess.Popen(command, stderr=open(f"{folder}/log", "w"))
        groups = lambda: len(json.loads(ask("status", "--json") or '{"groups": []}')["groups"])
        began = time.monotonic()
        while groups() < args.groups:
            if time.monotonic() - began > 60 or daemon.poll() is not None:
                sys.exit(f"only {groups()} groups:\n{open(f'{folder}/log').read()[-2000:]}")
            time.sleep(0.5)
        adopted = time.monotonic() - began
        # By then it has chosen its observer, and what adopting took is not of the last ten seconds.
        time.sleep(SETTLES)
        counted = count_bpf("1") if args.count_bpf else None
        threads, bpf, switches = by_thread(daemon.pid), bpf_seconds(daemon.pid), context_switches()
        before, since = cpu_seconds(daemon.pid), time.monotonic()
        time.sleep(args.seconds)
        elapsed = time.monotonic() - since
        share = (cpu_seconds(daemon.pid) - before) / elapsed
        bpf = (bpf_seconds(daemon.pid) - bpf) / elapsed
        ran = {name: (taken - threads.get(name, 0)) / elapsed for name, taken in by_thread(daemon.pid).items()}
        switches = (context_switches() - switches) / elapsed
        answers = [asked(folder) for _ in range(20)]
        status = answers[-1][1]
        memory = next(line for line in open(f"/proc/{daemon.pid}/status") if line.startswith("VmRSS")).split()[1]
        print(f"{args.groups} groups of {args.threads} threads, {args.busy} busy, all adopted after {adopted:.1f} s")
        print(f"the machine switches {switches:,.0f} times a second")
        print(f"the daemon takes {share:.2%} of a CPU, and {int(memory) / 1024:.1f} MiB")
        print("  by thread:", ", ".join(f"{name} {taken:.2%}" for name, taken in sorted(ran.items()) if taken > 1e-5))
        if counted is not None:
            print(f"  its BPF programs take {bpf:.2%} of a CPU beside that, of whom they interrupt")
        paced = ", paced" if status["windows_paced"] else ""
        print(f"windows of {status['window_ns'] / 1e6:.0f} ms{paced}")
        took = sorted(took * 1e3 for took, _ in answers)
        print(f"status is answered in {statistics.median(took):.1f} ms in the median, {took[-1]:.1f} at most")
        print("by its own count:", next((x for x in ask("status").splitlines() if "observing takes" in x), "?").strip())
        print("seen by:", sorted({group.get("observer") or "?" for group in status["groups"]}))
    finally:
        if counted is not None:
            count_bpf(counted)
        if daemon:
            daemon.terminate()
            print("the daemon ended with", daemon.wait())
        for program in programs:
            program.kill()
            program.wait()
        for n in range(len(programs)):
            os.rmdir(f"{top}/{n}")
        os.rmdir(top)


main()
