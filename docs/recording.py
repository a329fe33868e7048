"""Records the terminal animation of the README: runs `quire demo` in a pseudo-terminal and writes an animated SVG.

python docs/recording.py        writes docs/images/demo.svg

The picture shows the output of the program with its colours; the pace is set for reading.
"""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from quire.cli.terminal import width

COLUMNS, ROWS = 96, 26
PICTURE = Path(__file__).parent / "images" / "demo.svg"
_COMMAND = ["-m", "quire", "demo", "--fast", "--no-serve"]
_UNTIL = "Try next"
"""The heading of the part that is left out: it names files of the machine that made the recording."""

_CELL, _LINE, _BASE, _MARGIN, _TOP = 8.4, 19, 14, 16, 36
"""In points: the width of a column, the height of a line, its baseline, the margin, the bar at the top."""

_STEP, _SECTION, _END = 0.16, 1.6, 6.0
"""In seconds: the time before the next line, the time after a heading, and the time at the end."""

_CODE = re.compile(r"\x1b\[(\d*)m")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}
_STYLE = """
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dde5;white-space:pre}
.b{font-weight:700}.d{fill:#8b96a5}.r{fill:#ff8b85}.g{fill:#7ee2a8}.y{fill:#f2cc60}.u{fill:#7fb8ff}
.m{fill:#d8a6ff}.c{fill:#6fdede}
"""


class Span(NamedTuple):
    """Characters of one style, and their first column."""

    column: int
    classes: str
    text: str


def run_demo() -> list[str]:
    """Return the lines that the demo prints on a terminal, with colour codes."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
    demo = subprocess.Popen([sys.executable, *_COMMAND], stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    printed = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    if demo.wait():
        raise SystemExit(f"The demo ended with {demo.returncode}: {printed.decode()}")
    lines = printed.decode().replace("\r\n", "\n").split("\n")
    return lines[: next(number for number, line in enumerate(lines) if plain(line) == _UNTIL)]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux raises it when the other end of the terminal is closed
        return b""


def plain(line: str) -> str:
    """Return a line without its colour codes."""
    return _CODE.sub("", line)


def spans(line: str) -> Iterator[Span]:
    """Yield the spans of a line."""
    column, classes = 0, ""
    for number, part in enumerate(_CODE.split(line)):
        if number % 2:
            classes = " ".join(filter(None, (classes, _CLASSES[part]))) if part not in {"", "0"} else ""
        elif part:
            yield Span(column, classes, part)
            column += width(part)


def draw(lines: Sequence[str]) -> str:
    """Return the animated picture: a sheet with all lines that moves up, and a cover over the lines to come."""
    shown = ["\x1b[32m$\x1b[0m quire demo", *lines]
    pauses = [_SECTION if re.match(r"\d\. ", plain(line)) else _STEP for line in shown]
    pauses[-1] = _END
    across, down = _MARGIN * 2 + COLUMNS * _CELL, _TOP + ROWS * _LINE + _MARGIN
    rows = "\n".join(_row(number, line) for number, line in enumerate(shown))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {down}" width="{across:g}" role="img">
<title>quire demo, as it runs in a terminal</title>
<style>{_STYLE}{_motion(pauses)}</style>
<rect width="{across:g}" height="{down}" rx="10" fill="#161b22"/>
<g fill="#3d4653"><circle cx="20" cy="18" r="6"/><circle cx="40" cy="18" r="6"/><circle cx="60" cy="18" r="6"/></g>
<svg y="{_TOP}" height="{ROWS * _LINE}" width="{across:g}"><g class="sheet">
{rows}
<rect class="curtain" width="{across:g}" height="{(len(shown) + ROWS) * _LINE}" fill="#161b22"/>
</g></svg>
</svg>
"""


def _row(number: int, line: str) -> str:
    texts = (
        f'<text x="{_MARGIN + span.column * _CELL:.1f}" y="{number * _LINE + _BASE}"'
        f' class="{span.classes}"'
        f' textLength="{width(span.text) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs">{escape(span.text)}</text>'
        for span in spans(line)
        if span.text.strip()
    )
    return "".join(texts)


def _motion(pauses: Sequence[float]) -> str:
    """Return the animation of sheet and cover; with reduced motion, only the last screen is shown."""
    whole = sum(pauses)
    starts = [100 * before / whole for before in accumulate([0.0, *pauses[:-1]])]
    sheet = "".join(f"{at:.2f}%{{{_up(number)}}}" for number, at in enumerate(starts) if number >= ROWS)
    curtain = "".join(f"{at:.2f}%{{{_down(number)}}}" for number, at in enumerate(starts))
    last = len(pauses) - 1
    return (
        f".sheet{{animation:sheet {whole:.1f}s step-end infinite}}"
        f".curtain{{animation:curtain {whole:.1f}s step-end infinite}}\n"
        f"@keyframes sheet{{0%{{{_up(0)}}}{sheet}100%{{{_up(last)}}}}}\n"
        f"@keyframes curtain{{{curtain}100%{{{_down(last)}}}}}\n"
        f"@media (prefers-reduced-motion:reduce){{.sheet{{animation:none;{_up(last)}}}"
        f".curtain{{animation:none;{_down(last)}}}}}\n"
    )


def _up(newest: int) -> str:
    return f"transform:translateY({-max(0, newest - ROWS + 1) * _LINE}px)"


def _down(newest: int) -> str:
    return f"transform:translateY({(newest + 1) * _LINE}px)"


if __name__ == "__main__":
    PICTURE.write_text(draw(run_demo()), encoding="utf-8")
