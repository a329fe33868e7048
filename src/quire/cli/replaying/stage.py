"""Where a conversation is played: lines on standard output, with short pauses where somebody watches."""

import sys
from textwrap import wrap
from time import sleep
from typing import TextIO

from quire.cli.paint import Paint
from quire.cli.width import terminal_width

_MARGIN = "   "
_PAUSE = 0.05


class Stage:
    """Prints what happens, numbered scene by scene."""

    def __init__(self, paint: Paint, *, fast: bool = False, out: TextIO | None = None) -> None:
        self.paint = paint
        self._out = out or sys.stdout
        self._pause = 0.0 if fast or not self._out.isatty() else _PAUSE
        self._scene = 0

    @property
    def columns(self) -> int:
        """The columns that a line has."""
        return min(120, terminal_width()) - len(_MARGIN)

    def scene(self, title: str) -> None:
        """Begin the next part."""
        self._scene += 1
        self.title(f"{self._scene}. {title}")

    def title(self, text: str) -> None:
        """Print a heading."""
        print(f"\n{self.paint.bold(text)}", file=self._out)

    def line(self, text: str) -> None:
        """Print one line."""
        print(f"{_MARGIN}{text}", file=self._out, flush=True)

    def words(self, text: str) -> None:
        """Print a sentence, on more than one line where it is too long for one."""
        for line in wrap(text, self.columns, subsequent_indent="  "):
            self.line(line)

    def beat(self, text: str) -> None:
        """Print one line, and give a reader the time to see it."""
        self.line(text)
        if self._pause:
            sleep(self._pause)
