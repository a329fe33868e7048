"""Chunks: sorted entries in an immutable object, in blocks that can be read one by one.

    block … block index

A block is a stretch of entries; the index says where each begins, what it covers, and its checksum. What the index is,
and its own checksum, says the head that names the chunk: a chunk is read with a request for its index and one for each
block, and no byte is believed that the head does not answer for.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from os import urandom
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.storage.base import CALL
from quire.storage.s3.entries import PUT, RANKS, SLOTS, Entry, Place, slot_of
from quire.storage.s3.objects import damaged

BLOCK_BYTES: Final = 64 << 10
CHUNK_BYTES: Final = 16 << 20
_TITLE: Final = b"quire chunk 1\n"
_BITS, _PROBES = 24, 8  # of 20,000 keys that are not there one seems to be
_CALLS: Final = RANKS[CALL]


class ChunkRef(Struct, frozen=True, array_like=True, gc=False):
    """A chunk as the head names it."""

    id: str
    size: int
    index_at: int
    index_crc: int
    last: tuple[Any, ...]
    """The last place in it."""


class Block(Struct, frozen=True, array_like=True, gc=False):
    """Where a block is and what it covers."""

    first: tuple[Any, ...]
    last: tuple[Any, ...]
    at: int
    size: int
    crc: int


class Index(Struct, frozen=True, array_like=True):
    """The blocks of a chunk in order, and which calls it may know."""

    blocks: list[Block]
    calls: bytes

    def may_hold(self, place: Place) -> bool:
        """False if the place is surely not in the chunk: keys of calls are scattered, so blocks say little of them."""
        if place[0] != _CALLS:
            return True
        return bool(self.calls) and all(self.calls[bit >> 3] >> (bit & 7) & 1 for bit in _bits(place, self.calls))


Row = tuple[Any, ...]
"""An entry in a block: (rank, key, kind, group, order, value), or the place of a record in its group."""


class Rows:
    """A block that was read."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self.places: list[Place] = [row if row[0] == SLOTS else row[:2] for row in rows]

    def entry(self, position: int) -> Entry:
        """The entry at a position."""
        return Entry(*self._rows[position][2:])

    def get(self, place: Place) -> Entry | None:
        """The entry of a record."""
        position = bisect_left(self.places, place)
        found = position < len(self.places) and self.places[position] == place
        return self.entry(position) if found else None


_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_decode_index = msgspec.msgpack.Decoder(Index).decode


class Written(Struct, frozen=True):
    """A chunk to be stored."""

    ref: ChunkRef
    data: bytes


def write_chunks(entries: Iterable[tuple[Place, Entry]], name: str) -> Iterator[Written]:
    """Chunks of sorted entries with the places in groups that follow from them, one after the other.

    `name` begins their ids. Where there is much, several chunks follow on each other.
    """
    chunk, size = _Chunk(name), CHUNK_BYTES
    slots: list[Place] = []
    pending = False
    for place, entry in entries:
        if pending and place[0] > SLOTS:  # type: ignore[operator]
            yield from chunk.add_slots(slots, size)
            pending = False
        slot = slot_of(place, entry)
        if slot is not None:
            slots.append(slot)
            pending = True
        chunk.add((*place, *entry), place, len(entry.value))
        if chunk.size >= size:
            yield chunk.finish()
    if pending:
        yield from chunk.add_slots(slots, size)
    if chunk.size:
        yield chunk.finish()


class _Chunk:
    """A chunk that is being written."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        self._parts: list[bytes] = [_TITLE]
        self._at = len(_TITLE)
        self._blocks: list[Block] = []
        self._rows: list[Row] = []
        self._first: Place = ()
        self._last: Place = ()
        self._pending = 0
        self._calls: list[Place] = []

    def add(self, row: Row, place: Place, size: int) -> None:
        if self._rows and place[0] != self._last[0]:  # blocks of one family: what a chunk has not, its index tells
            self._flush()
        if not self._rows:
            self._first = place
        self._rows.append(row)
        self._last = place
        self._pending += size + 40
        self.size += size + 40
        if place[0] == _CALLS:
            self._calls.append(place)
        if self._pending >= BLOCK_BYTES:
            self._flush()

    def add_slots(self, slots: list[Place], size: int) -> Iterator[Written]:
        slots.sort()
        for slot in slots:
            self.add(slot, slot, 0)
            if self.size >= size:
                yield self.finish()
        slots.clear()

    def finish(self) -> Written:
        """The chunk; the next entries begin another."""
        self._flush()
        index = _encode(Index(self._blocks, _filter(self._calls)))
        data = b"".join((*self._parts, index))
        ref = ChunkRef(f"{self._name}-{urandom(6).hex()}", len(data), self._at, crc32(index), self._last)
        self._begin()
        return Written(ref, data)

    def _flush(self) -> None:
        if self._rows:
            data = _encode(self._rows)
            self._blocks.append(Block(self._first, self._last, self._at, len(data), crc32(data)))
            self._parts.append(data)
            self._at += len(data)
            self._rows, self._pending = [], 0


def read_index(ref: ChunkRef, data: bytes, key: str) -> Index:
    """The index of a chunk. Raises `Corrupt` with the object's key."""
    if crc32(data) != ref.index_crc:
        raise damaged(key, "its index")
    try:
        return _decode_index(data)
    except msgspec.MsgspecError:
        raise damaged(key, "its index") from None


def read_rows(block: Block, data: bytes, key: str) -> Rows:
    """The entries of a block. Raises `Corrupt` with the object's key."""
    if len(data) == block.size and crc32(data) == block.crc:
        try:
            return Rows(_decode_rows(data))
        except msgspec.MsgspecError:
            pass
    raise damaged(key, f"bytes {block.at:,} to {block.at + block.size:,}")


def settled(entries: Iterable[tuple[Place, Entry]]) -> Iterator[tuple[Place, Entry]]:
    """The entries that stand if there is nothing older: neither marks of what is gone nor new values of nothing."""
    return ((place, entry) for place, entry in entries if entry.kind == PUT)


def _filter(places: list[Place]) -> bytes:
    """A Bloom filter of the places."""
    bits = bytearray(-(-len(places) * _BITS // 8)) if places else bytearray()
    for place in places:
        for bit in _bits(place, bits):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def _bits(place: Place, bits: bytes | bytearray) -> Iterator[int]:
    key = place[1]
    assert isinstance(key, int)
    mixed = key * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    step = (mixed >> 32 | 1) + key % 251
    return (((mixed + probe * step) >> 3) % (8 * len(bits)) for probe in range(_PROBES))
