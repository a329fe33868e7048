"""What a command prints: text and tables for people, JSON for programs, and never a control character of a page's."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from quire.cli.paint import Paint
from quire.cli.visible import visible
from quire.cli.width import cut, pad, terminal_width, width

_GAP = "  "


class Out:
    """Standard output, for a person or (with `json`) for a program."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self.paint = Paint.for_terminal() if not json else Paint(colour=False)
        self.columns = terminal_width()

    def line(self, text: str = "") -> None:
        """Print one line."""
        print(text)

    def value(self, value: Any) -> None:
        """Print one JSON value on a line of its own."""
        print(msgspec.json.encode(value, enc_hook=str).decode())

    def note(self, text: str) -> None:
        """Tell a person something beside the result, on standard error."""
        if not self.json:
            print(text, file=sys.stderr)

    def safe(self, text: str) -> str:
        """A page's text as it may go to a terminal: what would steer it is shown. In a pipe it stays as it is."""
        return visible(text) if sys.stdout.isatty() else text

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> None:
        """Print rows under their heads, in columns; numbers stand at the right. The last column gives way."""
        lines = [[self.safe(cell) for cell in row] for row in rows]
        widths = [max(width(line[column]) for line in [head, *lines]) for column in range(len(head))]
        room = max(12, self.columns - sum(widths[:-1]) - len(_GAP) * (len(head) - 1))
        widths[-1] = min(widths[-1], room)
        self.line(self.paint.dim(_row(head, widths, right)))
        for line in lines:
            self.line(_row(line, widths, right, self.paint))

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Print names with their values, one a line."""
        pairs = list(facts)
        widest = max((width(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.line(f"{self.paint.dim(pad(name, widest))}{_GAP}{self.safe(value)}")


def _row(cells: Sequence[str], widths: Sequence[int], right: Collection[int], paint: Paint | None = None) -> str:
    """A line of cells; the first in colour if there is one to paint with."""
    padded = [pad(cell, wide, right=n in right) for n, (cell, wide) in enumerate(zip(cells, widths, strict=True))]
    if (len(cells) - 1) not in right:
        padded[-1] = cut(cells[-1], widths[-1])
    if paint is not None:
        first = padded[0].rstrip() if 0 not in right else padded[0]
        padded[0] = paint.cyan(first) + padded[0][len(first) :]
    return _GAP.join(padded).rstrip()
