"""The lineage of a fork: a fork reads its own records and, below a key, those of its origin, which may be a fork too.

The rules are the same for every backend with forks that share immutable records.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from quire.errors import InvalidOperation
from quire.storage.base import BODY, IMMUTABLE, MAX_KEY, MESSAGE, Family

Lineage = tuple[tuple[int, Mapping[Family, int]], ...]
"""The contexts that a context reads from, nearest first. Each has, by family, the key below which it is read."""
Span = tuple[int, int, int]
"""(context number, first key, last key): a range of one context's own records."""


def make_lineage(rows: Iterable[tuple[int, int, int]]) -> Lineage:
    """Return the lineage from rows (origin, end of bodies, end of messages), nearest first.

    A context reads no more of an origin than the contexts between them do.
    """
    lineage: list[tuple[int, Mapping[Family, int]]] = []
    for origin, body, message in rows:
        above = lineage[-1][1] if lineage else {BODY: MAX_KEY + 1, MESSAGE: MAX_KEY + 1}
        lineage.append((origin, {BODY: min(body, above[BODY]), MESSAGE: min(message, above[MESSAGE])}))
    return tuple(lineage)


class ForkLineage(ABC):
    """Finds the context that holds a record, from the lineage of every context."""

    @abstractmethod
    def lineage(self, number: int) -> Lineage:
        """Return the contexts that this one reads from."""

    def owner(self, number: int, family: Family, key: int) -> int:
        """Return the number of the context that holds this record of an immutable family."""
        for origin, below in self.lineage(number):
            if key >= below[family]:
                break
            number = origin
        return number

    def spans(self, number: int, family: Family, start: int, stop: int) -> list[Span]:
        """Return the ranges of records that hold the keys from `start` to `stop`, in key order."""
        found: list[Span] = []
        if family in IMMUTABLE:
            for origin, below in self.lineage(number):
                if stop >= below[family]:
                    found.append((number, max(start, below[family]), stop))
                    stop = below[family] - 1
                number = origin
        found.append((number, start, stop))
        return [span for span in reversed(found) if span[1] <= span[2]]

    def check_own(self, number: int, family: Family, key: int) -> None:
        """Raise `InvalidOperation` if a record of an immutable family belongs to the origin and cannot be written."""
        if self.lineage(number) and self.owner(number, family, key) != number:
            raise InvalidOperation(f"{family} record {key} belongs to the fork's origin and cannot be written here.")
