"""Whose records a fork reads: its own, and below a key those of its origin, and so on up the line.

The rules are the same for every backend that lets forks share immutable records; only where the line is kept differs.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from quire.errors import InvalidOperation
from quire.storage.base import BODY, IMMUTABLE, MAX_KEY, MESSAGE, Family

Line = tuple[tuple[int, Mapping[Family, int]], ...]
"""The contexts one reads from, nearest first, each with the keys below which it does."""
Span = tuple[int, int, int]
"""(context number, first key, last key): a stretch of one context's own records."""


def line_of(rows: Iterable[tuple[int, int, int]]) -> Line:
    """The line that rows (origin, end of bodies, end of messages) make, nearest first: nobody reads more than those
    between it and the origin do."""
    line: list[tuple[int, Mapping[Family, int]]] = []
    for origin, body, message in rows:
        above = line[-1][1] if line else {BODY: MAX_KEY + 1, MESSAGE: MAX_KEY + 1}
        line.append((origin, {BODY: min(body, above[BODY]), MESSAGE: min(message, above[MESSAGE])}))
    return tuple(line)


class Lines(ABC):
    """Who reads what from whom, given every context's line."""

    @abstractmethod
    def line(self, number: int) -> Line:
        """The contexts this one reads from."""

    def owner(self, number: int, family: Family, key: int) -> int:
        """The number of the context whose records hold this one of an immutable family."""
        for origin, below in self.line(number):
            if key >= below[family]:
                break
            number = origin
        return number

    def spans(self, number: int, family: Family, start: int, stop: int) -> list[Span]:
        """Whose records hold the keys from `start` to `stop`, in key order."""
        found: list[Span] = []
        if family in IMMUTABLE:
            for origin, below in self.line(number):
                if stop >= below[family]:
                    found.append((number, max(start, below[family]), stop))
                    stop = below[family] - 1
                number = origin
        found.append((number, start, stop))
        return [span for span in reversed(found) if span[1] <= span[2]]

    def check_own(self, number: int, family: Family, key: int) -> None:
        """Raises `InvalidOperation` if a record of an immutable family would be written where nobody reads it."""
        if self.line(number) and self.owner(number, family, key) != number:
            raise InvalidOperation(f"{family} record {key} is the fork's origin's: such records are written once.")
