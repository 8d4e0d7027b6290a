"""What programs.py needs of the guest: servers and input files, and the kernel's polling, set and taken back."""

import glob, os, shutil, subprocess, time

PARAMETERS = "/sys/module/haltpoll/parameters/guest_halt_poll_"
NGINX = ("daemon off; worker_processes 1; pid {W}/nginx.pid; error_log {W}/error.log; events {{}} http {{ access_log off;"
         " server {{ listen 127.0.0.1:18080; location / {{ return 200 hello; }} }} }}")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def read(path):
    with open(path) as file:
        return file.read().strip()


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def prepare(work):
    """Input files, and the servers whose start takes long: they run all the time, outside of what is measured.
    Returns what stops them."""
    os.chmod(work, 0o777)
    write(f"{work}/nginx.conf", NGINX.format(W=work))
    with open(f"{work}/archive", "wb") as archive:
        for path in sorted(glob.glob("/usr/lib/x86_64-linux-gnu/*.so*"))[:400]:
            with open(path, "rb") as file:
                archive.write(file.read()[:200_000])
    line = "double f{0}(double *a, int n) {{ double s = {0}; for (int k = 0; k < n; k++) s += a[k] * {0}; return s; }}"
    write(f"{work}/x.c", "\n".join(line.format(i) for i in range(150)))
    return [*postgres(work), *mariadb(work)]


def postgres(work):
    binaries = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not binaries:
        return
    run = lambda *words: subprocess.run(["su", "postgres", "-s", "/bin/sh", "-c", " ".join(words)], check=True, **QUIET)
    run(f"{binaries[-1]}/initdb -A trust -D {work}/pg")
    run(f"{binaries[-1]}/pg_ctl -w -D {work}/pg -o '-c listen_addresses= -k {work}' start")
    run(f"pgbench -h {work} -i -s 5 postgres")
    yield lambda: run(f"{binaries[-1]}/pg_ctl -m fast -D {work}/pg stop")


def mariadb(work):
    if not shutil.which("mariadbd"):
        return
    os.makedirs(f"{work}/my")
    subprocess.run(["mariadb-install-db", "--user=root", f"--datadir={work}/my",
                    "--auth-root-authentication-method=normal"], check=True, **QUIET)
    server = subprocess.Popen(["mariadbd", "--no-defaults", "--user=root", f"--datadir={work}/my",
                               f"--socket={work}/my.sock", "--skip-networking", "--innodb-buffer-pool-size=256M"], **QUIET)
    os.environ["O"] = f"--mysql-socket={work}/my.sock --mysql-user=root --tables=2 --table-size=20000 --db-driver=mysql"
    create = ["mariadb", f"--socket={work}/my.sock", "-e", "create database if not exists sbtest"]
    for _ in range(100):
        if subprocess.run(create, **QUIET).returncode == 0:
            break
        time.sleep(0.2)
    subprocess.run(f"sysbench {os.environ['O']} oltp_point_select prepare", shell=True, check=True, **QUIET)
    yield lambda: (server.terminate(), server.wait())


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


def polled():
    return sum(int(read(path)) for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state0/time")) / 1e6
