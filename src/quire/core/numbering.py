"""Numbering: message indices, and the ranks that order siblings.

A message has a number, which never changes. Its index is its position among the numbers that a cleanup left.

A rank is a byte string; siblings sort by it, so appending and inserting never change a neighbour. Appending takes the
next six-byte number after the last rank. Inserting takes a midpoint, which grows by about a byte per eight inserts at
one place. `rank_between` returns None when there is no room; the caller then gives the crowded siblings new ranks with
`spread_ranks`, between neighbours that keep theirs.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy

Gap = tuple[int, int]
"""A run of deleted numbers: the first and the last."""


class Numbering:
    """The mapping between message numbers and message indices."""

    def __init__(self, gaps: Sequence[Gap] = (), end: int = 0) -> None:
        self.end = end
        self._firsts = [first for first, _ in gaps]
        self._lasts = [last for _, last in gaps]
        self._before: list[int] = []  # how many numbers are deleted before each gap
        gone = 0
        for first, last in gaps:
            self._before.append(gone)
            gone += last - first + 1
        self._gone = gone
        self.length = end - gone

    def ending_at(self, end: int) -> "Numbering":
        """Return the same gaps with another end."""
        if end == self.end:
            return self
        other = copy(self)
        other.end, other.length = end, end - self._gone
        return other

    def index(self, number: int) -> int | None:
        """Return the index of a message, or None if it was deleted."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return number
        first, last = self._firsts[place], self._lasts[place]
        return None if number <= last else number - self._before[place] - (last - first + 1)

    def number(self, index: int) -> int:
        """Return the number of the message with this index."""
        low, high = 0, len(self._firsts)
        while low < high:  # find the gaps with fewer than `index` messages before them
            middle = (low + high) // 2
            if self._firsts[middle] - self._before[middle] <= index:
                low = middle + 1
            else:
                high = middle
        return index if low == 0 else index + self._before[low - 1] + self._lasts[low - 1] - self._firsts[low - 1] + 1

    def numbers(self) -> Iterator[int]:
        """Yield all numbers that are left, in order."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(start, first)
            start = last + 1
        yield from range(start, self.end)


def merge_gaps(gaps: Sequence[Gap], gone: Sequence[int]) -> tuple[Gap, ...]:
    """Return the gaps with further numbers deleted."""
    runs = sorted([*gaps, *((number, number) for number in gone)])
    merged: list[Gap] = []
    for first, last in runs:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


# Ranks

WIDTH = 6
MAX_LENGTH = 64
CROWDED = 16
"""A longer rank is one of many inserted at one place."""
END = b"\xff" * (WIDTH + 1)
"""Sorts after every rank of an append."""
_START = 1 << (8 * WIDTH - 1)
_END = (1 << (8 * WIDTH)) - 1


def rank_after(last: bytes | None) -> bytes | None:
    """Return the rank after `last` (None: the first rank), or None if all numbers are used."""
    if last is None:
        return _START.to_bytes(WIDTH)
    number = int.from_bytes(last[:WIDTH].ljust(WIDTH, b"\0")) + 1
    return number.to_bytes(WIDTH) if number <= _END else None


def rank_between(low: bytes | None, high: bytes | None) -> bytes | None:
    """Return a rank between two neighbours (None: no neighbour on that side), or None if there is no room."""
    if high is None:
        return rank_after(low)
    low = low or b""
    if low >= high:
        return None
    rank = bytearray()
    position = 0
    bounded = True  # True while `high` limits the byte at this position
    while len(rank) < MAX_LENGTH:
        if bounded and position >= len(high):  # `high` is `low` and zeros: nothing fits between
            return None
        floor = low[position] if position < len(low) else 0
        ceiling = high[position] if bounded else 256
        if ceiling - floor > 1:
            rank.append((floor + ceiling) // 2)
            return bytes(rank)
        rank.append(floor)
        bounded = bounded and ceiling == floor
        position += 1
    return None


def spread_ranks(low: bytes | None, high: bytes, count: int) -> list[bytes]:
    """Return `count` ranks, evenly spread between two neighbours."""
    low = low or b""
    width = max(len(low), len(high)) + 1 + (count.bit_length() + 7) // 8
    first, last = (int.from_bytes(rank.ljust(width, b"\0")) for rank in (low, high))
    return [(first + (last - first) * step // (count + 1)).to_bytes(width) for step in range(1, count + 1)]


def initial_ranks(count: int) -> Iterator[bytes]:
    """Yield the first ranks for `count` siblings, in order."""
    for offset in range(count):
        yield (_START + offset).to_bytes(WIDTH)
