"""Order among siblings as byte strings that sort: appending and inserting never touch a neighbour.

Appending takes the next number after the last rank, in six bytes; inserting takes a midpoint, which grows by about a
byte per eight inserts at one spot. `between` returns None when there is no room left worth having: the caller then
spreads the crowded ones anew with `spread`, between neighbours that keep their ranks.
"""

from collections.abc import Iterator

WIDTH = 6
MAX_LENGTH = 64
CROWDED = 16
"""A rank longer than this is one of many inserted at one spot."""
END = b"\xff" * (WIDTH + 1)
"""After every rank that appending gives."""
_START = 1 << (8 * WIDTH - 1)
_END = (1 << (8 * WIDTH)) - 1


def after(last: bytes | None) -> bytes | None:
    """The rank that appends after `last` (None: the first of all), or None if the numbers are used up."""
    if last is None:
        return _START.to_bytes(WIDTH)
    number = int.from_bytes(last[:WIDTH].ljust(WIDTH, b"\0")) + 1
    return number.to_bytes(WIDTH) if number <= _END else None


def between(low: bytes | None, high: bytes | None) -> bytes | None:
    """A rank strictly between two neighbours (None: no neighbour on that side), or None if there is no room."""
    if high is None:
        return after(low)
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


def spread(low: bytes | None, high: bytes, count: int) -> list[bytes]:
    """So many ranks, evenly spread between two neighbours."""
    low = low or b""
    width = max(len(low), len(high)) + 1 + (count.bit_length() + 7) // 8
    first, last = (int.from_bytes(rank.ljust(width, b"\0")) for rank in (low, high))
    return [(first + (last - first) * step // (count + 1)).to_bytes(width) for step in range(1, count + 1)]


def spaced(count: int) -> Iterator[bytes]:
    """Fresh ranks for `count` siblings, in order."""
    for offset in range(count):
        yield (_START + offset).to_bytes(WIDTH)
