"""Message indices: the numbers in order of arrival, without those that a cleanup took.

Order among siblings as byte strings that sort: appending and inserting never touch a neighbour.

Appending takes the next number after the last rank, in six bytes; inserting takes a midpoint, which grows by about a
byte per eight inserts at one spot. `between` returns None when there is no room left worth having: the caller then
spreads the crowded ones anew with `spread`, between neighbours that keep their ranks.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

Gap = tuple[int, int]
"""A run of numbers that are no more: the first and the last."""


class Numbering:
    """From the number a message arrived under, which never changes, to the index a user knows it by, and back."""

    def __init__(self, gaps: Sequence[Gap] = (), end: int = 0) -> None:
        self.end = end
        self._firsts = [first for first, _ in gaps]
        self._lasts = [last for _, last in gaps]
        self._before: list[int] = []  # how many numbers are gone before each gap
        gone = 0
        for first, last in gaps:
            self._before.append(gone)
            gone += last - first + 1
        self._gone = gone
        self.length = end - gone

    def ending_at(self, end: int) -> "Numbering":
        """The same gaps up to another end; shares what it knows of them."""
        if end == self.end:
            return self
        other = object.__new__(Numbering)
        other.__dict__.update(self.__dict__)
        other.end, other.length = end, end - self._gone
        return other

    def index(self, number: int) -> int | None:
        """The index of a message, or None if it is no more."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return number
        first, last = self._firsts[place], self._lasts[place]
        return None if number <= last else number - self._before[place] - (last - first + 1)

    def number(self, index: int) -> int:
        """The number of the message with this index."""
        low, high = 0, len(self._firsts)
        while low < high:  # the gaps before which fewer than `index` messages are left
            middle = (low + high) // 2
            if self._firsts[middle] - self._before[middle] <= index:
                low = middle + 1
            else:
                high = middle
        return index if low == 0 else index + self._before[low - 1] + self._lasts[low - 1] - self._firsts[low - 1] + 1

    def numbers(self) -> Iterator[int]:
        """All numbers that are left, in order."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(start, first)
            start = last + 1
        yield from range(start, self.end)


def merge_gaps(gaps: Sequence[Gap], gone: Sequence[int]) -> tuple[Gap, ...]:
    """The gaps with further numbers taken out."""
    runs = sorted([*gaps, *((number, number) for number in gone)])
    merged: list[Gap] = []
    for first, last in runs:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


WIDTH = 6
MAX_LENGTH = 64
CROWDED = 16
"""A rank longer than this is one of many inserted at one spot."""
END = b"\xff" * (WIDTH + 1)
"""After every rank that appending gives."""
_START = 1 << (8 * WIDTH - 1)
_END = (1 << (8 * WIDTH)) - 1


def rank_after(last: bytes | None) -> bytes | None:
    """The rank that appends after `last` (None: the first of all), or None if the numbers are used up."""
    if last is None:
        return _START.to_bytes(WIDTH)
    number = int.from_bytes(last[:WIDTH].ljust(WIDTH, b"\0")) + 1
    return number.to_bytes(WIDTH) if number <= _END else None


def rank_between(low: bytes | None, high: bytes | None) -> bytes | None:
    """A rank strictly between two neighbours (None: no neighbour on that side), or None if there is no room."""
    if high is None:
        return rank_after(low)
    low = low or b""
    if low >= high:
        return None
    rank = bytearray()
    position = 0
    bounded = True  # whether `high` still limits the byte at this position
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
    """So many ranks, evenly spread between two neighbours."""
    low = low or b""
    width = max(len(low), len(high)) + 1 + (count.bit_length() + 7) // 8
    first, last = (int.from_bytes(rank.ljust(width, b"\0")) for rank in (low, high))
    return [(first + (last - first) * step // (count + 1)).to_bytes(width) for step in range(1, count + 1)]


def initial_ranks(count: int) -> Iterator[bytes]:
    """Fresh ranks for `count` siblings, in order."""
    for offset in range(count):
        yield (_START + offset).to_bytes(WIDTH)
