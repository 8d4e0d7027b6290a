#!/usr/bin/env python3
"""The outputs in docs/service.md: a daemon manages Redis, and what it answers replaces what the page showed before.

    scripts/service_page.py [BINARY]      default: target/gleaner; as root, on a quiet KVM guest, with no daemon running
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/service.md"
# As the page has it; the real one lies in a temporary folder.
CONFIGURATION = "/etc/gleaner/gleaner.toml"
COMMANDS = ["gleaner config check", "gleaner status", "gleaner explain redis", "gleaner verify",
            "gleaner top --once --group redis"]


def answers(binary, folder):
    """What each command says while one client asks Redis."""
    socket, file, state = folder / "redis", folder / "gleaner.toml", folder / "state"
    state.mkdir(mode=0o700)
    file.write_text(f'[group.redis]\nprogram = "redis-server"\nprofile = "latency"\n\n'
                    f'[metrics]\nlisten = "unix:{folder}/metrics"\n')
    (folder / "redis-server").symlink_to("/usr/bin/redis-check-rdb")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    last = int(subprocess.check_output("nproc")) - 1
    started = [subprocess.Popen(["taskset", "-c", "0", folder / "redis-server", "--port", "0", "--unixsocket", socket,
                                 "--save", "", "--appendonly", "no"], **quiet)]
    try:
        while subprocess.run(["redis-cli", "-s", socket, "ping"], check=False, **quiet).returncode:
            time.sleep(0.05)
        started.append(subprocess.Popen(["taskset", "-c", str(last), "redis-benchmark", "-s", socket, "-c", "1", "-n",
                                         "5000000", "-t", "get", "-q"], **quiet))
        started.append(subprocess.Popen([binary, "daemon", "--config", file, "--state-dir", state], **quiet))
        time.sleep(12)
        return {command: ask(binary, command, file, state) for command in COMMANDS}
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def ask(binary, command, file, state):
    words = command.split()[1:]
    where = {"config": [file], "top": ["--socket", state / "gleaner.sock"]}
    words += where.get(words[0], ["--state-dir", state])
    said = subprocess.run([binary, *words], check=False, capture_output=True, text=True).stdout
    return said.replace(str(file), CONFIGURATION).rstrip("\n")


def main(words):
    binary = Path(words[0] if words else ROOT / "target/gleaner").resolve()
    with tempfile.TemporaryDirectory() as folder:
        said = answers(binary, Path(folder))
    page = PAGE.read_text()
    for command, text in said.items():
        if not text:
            sys.exit(f"service_page: {command} said nothing")
        # The rest of a block of code from its command on.
        block = re.compile(rf"^\$ {re.escape(command)}\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
        page, found = block.subn(lambda _: f"$ {command}\n{text}\n", page, count=1)
        if not found:
            sys.exit(f"service_page: docs/service.md has no block of {command}")
    PAGE.write_text(page)


main(sys.argv[1:])
