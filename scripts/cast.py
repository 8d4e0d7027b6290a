#!/usr/bin/env python3
"""The README's first minute: records real commands in a terminal, and draws the recording as an animated SVG.

    scripts/cast.py record [BINARY]    docs/first-minute.cast (asciicast v2), then the picture; default: target/gleaner
    scripts/cast.py draw               docs/first-minute.svg of the recording
    scripts/cast.py check              fails where the picture is not that of the recording

Record on a quiet KVM guest: it shows what the machine gives. The picture shortens waits, and stops for the reader
before each new command.
"""

import html
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CAST = ROOT / "docs/first-minute.cast"
SVG = ROOT / "docs/first-minute.svg"

COMMANDS = [
    "gleaner doctor",
    "gleaner ab -n 5 --metric ': ([0-9.]+) requests per second' --higher-is-better -- scripts/redis-one-client.sh",
]
COLUMNS, ROWS = 104, 26
LONGEST_WAIT_S = 1.5
READING_S = 6.0
LINE_S = 0.05

# Pixels.
CHARACTER, LINE, MARGIN, BAR = 8.0, 18, 14, 26
FONT = 13.3


def record(binary):
    """Runs the commands one after the other; progress bars go to stderr and are left out."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(binary.resolve(), f"{folder}/gleaner")
        environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", TERM="xterm", NO_COLOR="1")
        events, began = [], time.monotonic()
        for command in COMMANDS:
            events.append([time.monotonic() - began, "o", f"$ {command}\r\n"])
            terminal, end = pty.openpty()
            child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=end,
                                     stderr=subprocess.DEVNULL, env=environment, cwd=ROOT)
            os.close(end)
            while chunk := read(terminal):
                events.append([time.monotonic() - began, "o", chunk.decode(errors="replace")])
            os.close(terminal)
            if child.wait() != 0:
                sys.exit(f"cast: {command} ended with {child.returncode}")
            events.append([time.monotonic() - began, "o", "\r\n"])
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "Gleaner's first minute"}
    lines = [header] + [[round(at, 2), kind, text] for at, kind, text in events]
    CAST.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read(terminal):
    """What the terminal has; nothing once the program has closed it."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def shown():
    """The lines, wrapped, each with the time at which it is drawn."""
    lines, text, drawn_at, recorded_at = [], "", 0.0, 0.0
    events = [json.loads(line) for line in CAST.read_text().splitlines()[1:]]
    for at, _, chunk in events:
        drawn_at += min(at - recorded_at, LONGEST_WAIT_S)
        drawn_at += READING_S if lines and chunk.startswith("$ ") else 0
        recorded_at = at
        text += re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", chunk).replace("\r", "")
        *whole, text = text.split("\n")
        for line in whole:
            lines += [(round(drawn_at, 2), part) for part in wrapped(line.rstrip())]
            drawn_at += LINE_S
    while lines and not lines[-1][1]:
        lines.pop()
    return lines


def wrapped(line):
    """At words, below where the text of the line begins: `machine    Linux ...`."""
    indent = re.match(r"\S+ {2,}|\s*", line).end()
    return textwrap.wrap(line, COLUMNS, subsequent_indent=" " * indent, drop_whitespace=True) or [""]


def draw():
    """An SVG whose last picture is also what a reader without animation sees."""
    lines = shown()
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = ROWS * LINE + BAR + 2 * MARGIN
    length = lines[-1][0] + 0.5
    stops = {}
    for number, (at, _) in enumerate(lines, 1):
        stops[round(100 * at / length, 2)] = -LINE * max(0, number - ROWS)
    last = -LINE * max(0, len(lines) - ROWS)
    scroll = "".join(f"{at}%{{transform:translateY({up}px)}}" for at, up in sorted(stops.items()))
    rows = []
    for number, (at, line) in enumerate(lines):
        if not line:
            continue
        start = len(line) - len(line.lstrip())
        words = line.lstrip()
        kind = ' class="c"' if line.startswith("$ ") else ""
        rows.append(f'<text{kind} x="{MARGIN + start * CHARACTER:g}" y="{(number + 1) * LINE}" '
                    f'textLength="{len(words) * CHARACTER:g}" style="animation-delay:{at}s">'
                    f"{html.escape(words)}</text>")
    body = "\n".join(rows)
    said = html.escape("; ".join(line for _, line in lines if line.startswith("$ ")) + ". " + lines[-1][1])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">
<title id="t">The first minute with Gleaner</title><desc id="d">{said}</desc>
<style>
text {{ font: {FONT}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d8d6d3; white-space: pre;
  animation: appear 0.01s linear both }}
.c {{ fill: #7ee0b5; font-weight: bold }}
.s {{ transform: translateY({last}px); animation: scroll {length:g}s step-end both }}
@keyframes appear {{ from {{ visibility: hidden }} }}
@keyframes scroll {{ 0%{{transform:none}}{scroll}100%{{transform:translateY({last}px)}} }}
@media (prefers-reduced-motion: reduce) {{ text, .s {{ animation: none }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#16181b"/>
<g fill="#3a3d42"><circle cx="20" cy="15" r="5"/><circle cx="38" cy="15" r="5"/><circle cx="56" cy="15" r="5"/></g>
<svg y="{BAR}" width="{width}" height="{height - BAR - 4}"><g class="s">
{body}
</g></svg>
</svg>
"""


def main(words):
    match words:
        case ["record", *binary] if len(binary) < 2:
            record(Path(binary[0] if binary else ROOT / "target/gleaner"))
            SVG.write_text(draw())
        case ["draw"]:
            SVG.write_text(draw())
        case ["check"]:
            if SVG.read_text() != draw():
                sys.exit("cast: docs/first-minute.svg is not that of docs/first-minute.cast: run scripts/cast.py draw")
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
