"""Text for a terminal: widths, colours, control characters, tables, progress, and what a command prints."""

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache, partialmethod
from textwrap import wrap
from time import monotonic, sleep
from typing import Any, Self, TextIO
from unicodedata import category, east_asian_width

Values = dict[str, Any]
"""Values for `--json`, by name."""
DEFAULT_WIDTH = 100
_GAP = "  "
_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or change the direction of text, without tab and line break."""
_PROGRESS_DELAY = 0.3
"""Seconds before progress is drawn for the first time."""
_PROGRESS_INTERVAL = 0.1
_PROGRESS_CELLS = 24
_MARGIN = "   "
_PAUSE = 0.05


def terminal_width() -> int:
    """Return the columns of the terminal, or of `COLUMNS`; 100 without a terminal."""
    return max(40, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns)


def width(text: str) -> int:
    """Return the columns of a text: two for a Chinese character, none for a combining mark."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, room: int) -> str:
    """Return the text, shortened with an ellipsis if it is wider than `room` columns."""
    if width(text) <= room:
        return text
    start, left = "", room - 1
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        start += character
    return f"{start.rstrip()}…" if room > 0 else ""


def cut_around(text: str, place: int, room: int) -> str:
    """Return the part of the text around `place` that fits `room`, about a third of it before the place."""
    start, before, left = place, 0, room - 1 - width(text[place:])
    while start > 0:
        before += _columns(text[start - 1])
        if before > max(room // 3, left):
            break
        start -= 1
    if start <= 0 or width(text) <= room:
        return cut(text, room)
    return f"…{cut(text[start:].lstrip(), room - 1)}" if room > 0 else ""


def pad(text: str, room: int, *, right: bool = False) -> str:
    """Return the text in exactly `room` columns, cut or filled with spaces; `right` aligns it at the right."""
    text = cut(text, room)
    spaces = " " * (room - width(text))
    return spaces + text if right else text + spaces


def escape_control(text: str) -> str:
    """Return the text with each control character as a symbol or as its code point."""
    return _CONTROL.sub(_symbol, text)


def pick(value: object, *names: str) -> Values:
    """Return attributes of a value by their names."""
    return {name: getattr(value, name) for name in names}


def count_of(number: int, thing: str) -> str:
    """Return a number with its noun: `1 page`, `2,000 pages`, `2 entries`."""
    if number == 1:
        return f"1 {thing}"
    return f"{number:,} {thing[:-1]}ies" if thing.endswith("y") else f"{number:,} {thing}s"


@lru_cache(maxsize=8_192)
def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"<U+{code:04X}>"


class Paint:
    """Colours text, or returns it unchanged."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    @classmethod
    def for_terminal(cls) -> "Paint":
        """Return a `Paint` that colours on a terminal; `NO_COLOR` and `FORCE_COLOR` decide first."""
        if os.environ.get("NO_COLOR"):
            return cls(colour=False)
        return cls(colour=bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty())

    def colour(self, name: str, text: str) -> str:
        """Return the text in a colour."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self._colour and text else text

    bold = partialmethod(colour, "bold")
    dim = partialmethod(colour, "dim")
    red = partialmethod(colour, "red")
    green = partialmethod(colour, "green")
    yellow = partialmethod(colour, "yellow")
    blue = partialmethod(colour, "blue")
    cyan = partialmethod(colour, "cyan")


class Output:
    """Standard output of a command: text for a person, or JSON for a program."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self.paint = Paint.for_terminal() if not json else Paint(colour=False)
        self.columns = terminal_width()

    def line(self, *lines: str) -> None:
        """Print lines; without any, an empty one."""
        print(*lines, sep="\n")

    def value(self, value: Any) -> None:
        """Print one JSON value on one line."""
        import msgspec

        print(msgspec.json.encode(value, enc_hook=str).decode())

    def result(self, value: Any, *lines: str) -> None:
        """Print the result of a command: a JSON value for a program, lines for a person."""
        if self.json:
            self.value(value)
        else:
            self.line(*lines)

    def note(self, text: str) -> None:
        """Print a remark for a person on standard error."""
        if not self.json:
            print(text, file=sys.stderr)

    def safe(self, text: str) -> str:
        """Return stored text with control characters escaped if the output is a terminal; unchanged in a pipe."""
        return escape_control(text) if sys.stdout.isatty() else text

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> None:
        """Print rows in columns below `head`. Columns in `right` are right-aligned; the last column is cut to fit."""
        lines = [[self.safe(cell) for cell in row] for row in rows]
        widths = [max(width(line[column]) for line in [head, *lines]) for column in range(len(head))]
        room = max(12, self.columns - sum(widths[:-1]) - len(_GAP) * (len(head) - 1))
        widths[-1] = min(widths[-1], room)
        self.line(self.paint.dim(_row(head, widths, right)), *(_row(line, widths, right, self.paint) for line in lines))

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Print names with their values, one pair on each line."""
        pairs = list(facts)
        widest = max((width(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.line(f"{self.paint.dim(pad(name, widest))}{_GAP}{self.safe(value)}")


def _row(cells: Sequence[str], widths: Sequence[int], right: Collection[int], paint: Paint | None = None) -> str:
    """Return one line of a table; with `paint`, the first cell is coloured."""
    padded = [pad(cell, wide, right=n in right) for n, (cell, wide) in enumerate(zip(cells, widths, strict=True))]
    if (len(cells) - 1) not in right:
        padded[-1] = cut(cells[-1], widths[-1])
    if paint is not None:
        first = padded[0].rstrip() if 0 not in right else padded[0]
        padded[0] = paint.cyan(first) + padded[0][len(first) :]
    return _GAP.join(padded).rstrip()


class Narration:
    """Prints numbered sections of indented lines, with short pauses on a terminal."""

    def __init__(self, paint: Paint, *, fast: bool = False, file: TextIO | None = None) -> None:
        self.paint = paint
        self._file = file or sys.stdout
        self._pause = 0.0 if fast or not self._file.isatty() else _PAUSE
        self._section = 0

    @property
    def columns(self) -> int:
        """The columns of a line."""
        return min(120, terminal_width()) - len(_MARGIN)

    def section(self, title: str) -> None:
        """Print the numbered heading of the next section."""
        self._section += 1
        self.title(f"{self._section}. {title}")

    def title(self, text: str) -> None:
        """Print a heading."""
        print(f"\n{self.paint.bold(text)}", file=self._file)

    def line(self, *lines: str) -> None:
        """Print lines."""
        for text in lines:
            print(f"{_MARGIN}{text}", file=self._file, flush=True)

    def paragraph(self, text: str) -> None:
        """Print a sentence, wrapped if it is too long for one line."""
        self.line(*wrap(text, self.columns, subsequent_indent="  "))

    def slow_line(self, text: str) -> None:
        """Print one line and pause for the reader."""
        self.line(text)
        if self._pause:
            sleep(self._pause)


class Progress:
    """A line of progress on standard error, redrawn in place and erased at the end; drawn on a terminal only."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self._title = title
        self._total = total
        self._enabled = sys.stderr.isatty()
        self._next = monotonic() + _PROGRESS_DELAY
        self._is_drawn = False

    def at(self, done: int, what: str = "") -> None:
        """Show how much is done. Most calls draw nothing, so that it may be called often."""
        if not self._enabled or monotonic() < self._next:
            return
        self._next = monotonic() + _PROGRESS_INTERVAL
        self._is_drawn = True
        text = f"{self._title} {_bar(done, self._total)} {what}".rstrip()
        print(f"\r\x1b[K{cut(text, terminal_width() - 1)}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bar(done: int, total: int | None) -> str:
    if not total:
        return f"{done:,}"
    full = min(_PROGRESS_CELLS, _PROGRESS_CELLS * done // total)
    return f"{'█' * full}{'░' * (_PROGRESS_CELLS - full)} {min(100, 100 * done // total)} %"
