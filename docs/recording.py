"""Records the terminal animations of the documentation: runs commands in a pseudo-terminal and writes animated SVGs.

python docs/recording.py        writes docs/images/demo.svg and docs/images/gateway.svg

demo.svg shows `quire demo`. gateway.svg takes two minutes: a scripted client with a real gateway, a search in what it
recorded, a replay and a first program. The pictures show the output with its colours; the pace is set for reading.
"""

import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from html import escape
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from quire.cli.terminal import width

COLUMNS, ROWS = 96, 26
_ROOT = Path(__file__).parent.parent
PICTURE = _ROOT / "docs" / "images" / "demo.svg"
TOUR_PICTURE = _ROOT / "docs" / "images" / "gateway.svg"
DEMO = ("quire demo --fast --no-serve",)
TOUR = (
    "quire gateway demo agent.db --fast",
    "quire find agent.db 'refunds PAY-4471' -c gateway/local/anthropic/demo-1 --limit 3",
    "quire replay examples/session.jsonl --budget 2k,4k --strategies unmanaged,newest,compact",
    "python examples/first_call.py",
)
"""The commands of the recordings. They run in a new folder, which has the examples."""
TOUR_SECONDS = 120.0
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


def run_commands(commands: Sequence[str]) -> list[str]:
    """Return the commands and the lines that each one prints on a terminal, with colour codes."""
    lines: list[str] = []
    with TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(_ROOT / "examples")
        for command in commands:
            printed = _run(command, folder)
            shown = command.replace(" --fast", "").replace(" --no-serve", "")
            lines += [f"\x1b[32m$\x1b[0m {shown}", *printed, ""]
    return lines[:-1]


def _run(command: str, folder: str) -> list[str]:
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
    environment["PYTHONPATH"] = str(_ROOT / "src")
    program, *words = shlex.split(command)
    words = ["-m", "quire", *words] if program == "quire" else words
    process = subprocess.Popen([sys.executable, *words], stdout=follower, stderr=follower, env=environment, cwd=folder)
    os.close(follower)
    printed = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    if process.wait():
        raise SystemExit(f"{command} ended with {process.returncode}: {printed.decode()}")
    text = printed.decode().replace("\r\n", "\n")
    lines = [line.rpartition("\r\x1b[K")[2] for line in text.split("\n")]  # without a line of progress
    end = next((number for number, line in enumerate(lines) if plain(line) == _UNTIL), len(lines))
    return "\n".join(lines[:end]).rstrip("\n").split("\n")


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


def draw(shown: Sequence[str], title: str = "quire demo, as it runs in a terminal", seconds: float = 0.0) -> str:
    """Return the animated picture: a sheet with all lines that moves up, and a cover over the lines to come.

    With `seconds` the whole picture takes this time.
    """
    pauses = [_SECTION if re.match(r"\d\. |\$ ", plain(line)) else _STEP for line in shown]
    pauses[-1] = _END
    if seconds:
        pauses = [pause * seconds / sum(pauses) for pause in pauses]
    across, down = _MARGIN * 2 + COLUMNS * _CELL, _TOP + ROWS * _LINE + _MARGIN
    rows = "\n".join(_row(number, line) for number, line in enumerate(shown))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {down}" width="{across:g}" role="img">
<title>{escape(title)}</title>
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
    PICTURE.write_text(draw(run_commands(DEMO)), encoding="utf-8")
    title = "The gateway, a search, a replay and a first program, as they run in a terminal"
    TOUR_PICTURE.write_text(draw(run_commands(TOUR), title, TOUR_SECONDS), encoding="utf-8")
