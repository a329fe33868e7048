"""Progress of long work: one line on standard error that is drawn over and gone at the end, only on a terminal."""

import sys
from time import monotonic
from types import TracebackType
from typing import Self

from quire.cli.width import cut, terminal_width

_WAIT = 0.3
"""Seconds that work may take before anybody is told of it."""
_EVERY = 0.1
_BAR = 24


class Progress:
    """A line that says how far something is. Use it in a `with` block."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self._title = title
        self._total = total
        self._shown = sys.stderr.isatty()
        self._next = monotonic() + _WAIT
        self._drawn = False

    def at(self, done: int, what: str = "") -> None:
        """Show how much is done; often called, seldom drawn."""
        if not self._shown or monotonic() < self._next:
            return
        self._next = monotonic() + _EVERY
        self._drawn = True
        words = f"{self._title} {_bar(done, self._total)} {what}".rstrip()
        print(f"\r\x1b[K{cut(words, terminal_width() - 1)}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bar(done: int, total: int | None) -> str:
    if not total:
        return f"{done:,}"
    full = min(_BAR, _BAR * done // total)
    return f"{'█' * full}{'░' * (_BAR - full)} {min(100, 100 * done // total)} %"
