"""Entries, chunks and runs: how records are sorted, stored in objects, and read again.

An entry says what a commit did to a record. Entries are sorted by a tuple: the rank of the family and the key. The
positions of records in their groups ("slots") are sorted tuples too, so that a group can be read in order.

A chunk is an immutable object with sorted entries:

    block … block index

The index lists the range and the checksum of each block. The head that names a chunk has the checksum of the index.
Reading a record takes one request for the index and one for a block, and every byte is checked.

A run is a sequence of chunks that were written together. A newer run overrides the older ones.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from os import urandom
from threading import Lock
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct, field

from quire.model.sized_cache import SizedCache
from quire.storage.base import CALL, PAGE, Delete, Family, Patch, Put, Record, Write
from quire.storage.file.frames import DELETE, PATCH, PUT, Frame
from quire.storage.s3.client import Objects, damaged

SortKey = tuple[int | bytes, ...]
"""(rank, key) of a record, or (SLOTS, group, order, key) of its position in a group."""

RANKS: Final[dict[Family, int]] = {
    "body": 10,
    "message": 11,
    "journal": 12,
    "vector": 13,
    "page": 20,
    "call": 30,
    "tally": 31,
    "sheet": 32,
    "layout": 39,
    "pin": 40,
    "anchor": 41,
    "note": 42,
    "segment": 43,
}
"""The order of families in a chunk. Opening a context reads the end of a chunk, so the small families are there."""
SLOTS: Final = 21
_FAMILIES: Final[dict[int, Family]] = {rank: family for family, rank in RANKS.items()}


class Entry(NamedTuple):
    """The effect of commits on a record: a whole record, a new value only, or a deletion."""

    kind: int
    group: int | None
    order: bytes
    value: bytes


def combine(newer: Entry, older: Entry) -> Entry:
    """Return one entry with the effect of the older entry followed by the newer one."""
    if newer.kind != PATCH:
        return newer
    return older._replace(value=newer.value) if older.kind != DELETE else older


def record_of(key: int, entry: Entry | None) -> Record | None:
    """Return the record of an entry that has no older entry; None if there is no record."""
    if entry is None or entry.kind != PUT:
        return None
    return Record(key, entry.value, entry.group, entry.order)


def key_in(sort_key: SortKey) -> int:
    """Return the key of the record."""
    key = sort_key[-1]
    assert isinstance(key, int)
    return key


def to_write(sort_key: SortKey, entry: Entry) -> Write:
    """Return the write that has the effect of an entry."""
    family, key = _FAMILIES[sort_key[0]], key_in(sort_key)  # type: ignore[index]
    if entry.kind == PUT:
        return Put(family, key, entry.value, entry.group, entry.order)
    return Patch(family, key, entry.value) if entry.kind == PATCH else Delete(family, key)


def slot_of(sort_key: SortKey, entry: Entry) -> SortKey | None:
    """Return the position in its group that an entry gives to its record, if any."""
    if entry.kind != PUT or entry.group is None or sort_key[0] != RANKS[PAGE]:
        return None
    return (SLOTS, entry.group, entry.order, sort_key[1])


class LogEntries:
    """The entries of the commits in a head. It never changes: a commit makes a new one."""

    def __init__(self, entries: Mapping[SortKey, Entry] | None = None) -> None:
        self.entries: Mapping[SortKey, Entry] = entries or {}

    def with_changes(self, changes: Iterable[tuple[SortKey, Entry]]) -> "LogEntries":
        """Return these entries with newer ones over them."""
        entries = dict(self.entries)
        for sort_key, entry in changes:
            old = entries.get(sort_key)
            entries[sort_key] = entry if old is None else combine(entry, old)
        return LogEntries(entries)

    @property
    def size(self) -> int:
        """The approximate number of bytes in a chunk."""
        return sum(len(entry.value) + _ROW_BYTES for entry in self.entries.values())

    @cached_property
    def _sorted_keys(self) -> list[SortKey]:
        return sorted(self.entries)

    @cached_property
    def _slots(self) -> list[SortKey]:
        slots = (slot_of(sort_key, entry) for sort_key, entry in self.entries.items())
        return sorted(slot for slot in slots if slot is not None)

    def get(self, sort_key: SortKey) -> Entry | None:
        return self.entries.get(sort_key)

    def between(self, low: SortKey, high: SortKey, *, reverse: bool = False) -> Iterator[tuple[SortKey, Entry]]:
        """Yield the entries from `low` to `high`."""
        return ((sort_key, self.entries[sort_key]) for sort_key in _cut(self._sorted_keys, low, high, reverse=reverse))

    def slots_between(self, low: SortKey, high: SortKey, *, reverse: bool = False) -> Iterator[SortKey]:
        """Yield the slots from `low` to `high`."""
        return iter(_cut(self._slots, low, high, reverse=reverse))


def _cut(items: list[SortKey], low: SortKey, high: SortKey, *, reverse: bool) -> list[SortKey]:
    found = items[bisect_left(items, low) : bisect_right(items, high)]
    return found[::-1] if reverse else found


def changes_of(writes: Iterable[Write]) -> Iterator[tuple[SortKey, Entry]]:
    """Yield the entries of the writes of a commit, in their order."""
    for write in writes:
        sort_key = (RANKS[write.family], write.key)
        match write:
            case Put():
                yield sort_key, Entry(PUT, write.group, write.order, write.value)
            case Patch():
                yield sort_key, Entry(PATCH, None, b"", write.value)
            case Delete():
                yield sort_key, Entry(DELETE, None, b"", b"")


def decode_changes(frame: Frame, data: bytes) -> Iterator[tuple[SortKey, Entry]]:
    """Yield the entries of the writes of a frame in the log, in their order."""
    for write in frame.entries:
        value = data[write.offset : write.offset + write.size]
        yield (RANKS[write.family], write.key), Entry(write.kind, write.group, write.order, value)


BLOCK_BYTES: Final = 64 << 10
CHUNK_BYTES: Final = 16 << 20
_ROW_BYTES: Final = 40
"""The bytes of a row besides its value, roughly."""
_TITLE: Final = b"quire chunk 1\n"
_BITS, _PROBES = 24, 8  # one of 20,000 absent keys passes the filter
_CALLS: Final = RANKS[CALL]


class ChunkRef(Struct, frozen=True, array_like=True, gc=False):
    """A chunk as the head names it. `last` is the last sort key in it."""

    id: str
    size: int
    index_at: int
    index_crc: int
    last: tuple[Any, ...]


class Block(Struct, frozen=True, array_like=True, gc=False):
    """The position of a block and the range of its sort keys."""

    first: tuple[Any, ...]
    last: tuple[Any, ...]
    at: int
    size: int
    crc: int


class Index(Struct, frozen=True, array_like=True):
    """The blocks of a chunk in order, and a Bloom filter of its calls."""

    blocks: list[Block]
    calls: bytes

    def may_hold(self, sort_key: SortKey) -> bool:
        """Return False if the chunk certainly lacks a call. Their keys are scattered: block ranges do not show it."""
        if sort_key[0] != _CALLS:
            return True
        bits = self.calls
        return bool(bits) and all(bits[bit >> 3] >> (bit & 7) & 1 for bit in _filter_bits(sort_key, bits))


Row = tuple[Any, ...]
"""A row of a block: (rank, key, kind, group, order, value), or a slot."""


class BlockRows:
    """The rows of a block that was read."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self.sort_keys: list[SortKey] = [row if row[0] == SLOTS else row[:2] for row in rows]

    def entry(self, position: int) -> Entry:
        """Return the entry at a position."""
        return Entry(*self._rows[position][2:])

    def get(self, sort_key: SortKey) -> Entry | None:
        position = bisect_left(self.sort_keys, sort_key)
        found = position < len(self.sort_keys) and self.sort_keys[position] == sort_key
        return self.entry(position) if found else None


_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_decode_index = msgspec.msgpack.Decoder(Index).decode


class NewChunk(Struct, frozen=True):
    """A chunk that is not stored yet."""

    ref: ChunkRef
    data: bytes


def write_chunks(entries: Iterable[tuple[SortKey, Entry]], name: str) -> Iterator[NewChunk]:
    """Yield chunks with sorted entries and their slots. Their ids begin with `name`."""
    writer = _ChunkWriter(name)
    slots: list[SortKey] = []
    for sort_key, entry in entries:
        if slots and sort_key[0] > SLOTS:  # type: ignore[operator]
            yield from writer.add_slots(slots)
            slots = []
        slot = slot_of(sort_key, entry)
        if slot is not None:
            slots.append(slot)
        yield from writer.add((*sort_key, *entry), sort_key, len(entry.value))
    yield from writer.add_slots(slots)
    if writer.size:
        yield writer.finish()


class _ChunkWriter:
    """Collects rows and returns a chunk whenever one is full."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()

    def _start(self) -> None:
        self.size = 0
        self._parts: list[bytes] = [_TITLE]
        self._at = len(_TITLE)
        self._blocks: list[Block] = []
        self._rows: list[Row] = []
        self._first: SortKey = ()
        self._last: SortKey = ()
        self._block_size = 0
        self._calls: list[SortKey] = []

    def add(self, row: Row, sort_key: SortKey, size: int) -> Iterator[NewChunk]:
        if self._rows and sort_key[0] != self._last[0]:  # one family a block: the index then shows what is absent
            self._end_block()
        if not self._rows:
            self._first = sort_key
        self._rows.append(row)
        self._last = sort_key
        self._block_size += size + _ROW_BYTES
        self.size += size + _ROW_BYTES
        if sort_key[0] == _CALLS:
            self._calls.append(sort_key)
        if self._block_size >= BLOCK_BYTES:
            self._end_block()
        if self.size >= CHUNK_BYTES:
            yield self.finish()

    def add_slots(self, slots: list[SortKey]) -> Iterator[NewChunk]:
        for slot in sorted(slots):
            yield from self.add(slot, slot, 0)

    def finish(self) -> NewChunk:
        """Return the chunk. The next row begins another one."""
        self._end_block()
        index = _encode(Index(self._blocks, _build_filter(self._calls)))
        data = b"".join((*self._parts, index))
        ref = ChunkRef(f"{self._name}-{urandom(6).hex()}", len(data), self._at, crc32(index), self._last)
        self._start()
        return NewChunk(ref, data)

    def _end_block(self) -> None:
        if self._rows:
            data = _encode(self._rows)
            self._blocks.append(Block(self._first, self._last, self._at, len(data), crc32(data)))
            self._parts.append(data)
            self._at += len(data)
            self._rows, self._block_size = [], 0


def _decode_block(block: Block, data: bytes, key: str) -> BlockRows:
    """Return the rows of a block. Raises `Corrupt` with the object's key."""
    if len(data) == block.size and crc32(data) == block.crc:
        try:
            return BlockRows(_decode_rows(data))
        except msgspec.MsgspecError:
            pass
    raise damaged(key, f"bytes {block.at:,} to {block.at + block.size:,} cannot be read")


def only_puts(entries: Iterable[tuple[SortKey, Entry]]) -> Iterator[tuple[SortKey, Entry]]:
    """Yield the entries that have an effect if nothing older exists: no deletions, and no patches of nothing."""
    return ((sort_key, entry) for sort_key, entry in entries if entry.kind == PUT)


def _build_filter(sort_keys: list[SortKey]) -> bytes:
    """Return a Bloom filter."""
    bits = bytearray(-(-len(sort_keys) * _BITS // 8)) if sort_keys else bytearray()
    for sort_key in sort_keys:
        for bit in _filter_bits(sort_key, bits):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def _filter_bits(sort_key: SortKey, bits: bytes | bytearray) -> Iterator[int]:
    key = key_in(sort_key)
    mixed = key * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    step = (mixed >> 32 | 1) + key % 251
    return (((mixed + probe * step) >> 3) % (8 * len(bits)) for probe in range(_PROBES))


_WHOLE_BYTES: Final = 512 << 10
"""A chunk up to this size is read in one request."""
_TAIL_BYTES: Final = 192 << 10
"""The bytes before the index that are read with it. Opening a context needs them."""
_AHEAD_BYTES: Final = 4 << 20
"""The most that a scan reads in one request."""
_first, _last = attrgetter("first"), attrgetter("last")
_MEMORY_FACTOR: Final = 3
"""A block in memory takes about this many times its bytes."""


class Run(Struct, frozen=True, array_like=True):
    """Chunks in order. Entries with a rank in `below` are visible only below that key: a fork copied no more."""

    chunks: tuple[ChunkRef, ...]
    below: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(chunk.id for chunk in self.chunks)


class ChunkReader:
    """Reads the chunks of a store. Blocks and indexes stay in memory up to `max_bytes`."""

    def __init__(self, objects: Objects, max_bytes: int) -> None:
        self._objects = objects
        self._indexes: SizedCache[str, Index] = SizedCache(max_bytes // 4)
        self._blocks: SizedCache[tuple[str, int], BlockRows] = SizedCache(max_bytes - max_bytes // 4)
        self._lock = Lock()

    def index(self, folder: str, ref: ChunkRef) -> Index:
        """Return the index of a chunk. Raises `ObjectMissing` and `Corrupt`."""
        with self._lock:
            found = self._indexes.get(ref.id)
        if found is not None:
            return found
        start = 0 if ref.size <= _WHOLE_BYTES else max(ref.index_at - _TAIL_BYTES, 0)
        return self._cache(folder, ref, self._objects.get_range(folder + ref.id, start, ref.size), start)

    def cache_new(self, folder: str, ref: ChunkRef, data: bytes, *, whole: bool = True) -> None:
        """Cache a chunk that was just written: all of it, or the part that opening a context reads."""
        start = 0 if whole else max(ref.index_at - _TAIL_BYTES, 0)
        self._cache(folder, ref, data[start:], start)

    def _cache(self, folder: str, ref: ChunkRef, data: bytes, start: int) -> Index:
        """Cache the index and the blocks in the bytes of a chunk from `start` on."""
        key, index_data = folder + ref.id, data[ref.index_at - start :]
        if crc32(index_data) != ref.index_crc:
            raise damaged(key, "its index cannot be read")
        try:
            index = _decode_index(index_data)
        except msgspec.MsgspecError:
            raise damaged(key, "its index cannot be read") from None
        first = sum(block.at < start for block in index.blocks)
        self._decode_blocks(key, ref, index.blocks[first:], first, data, start)
        with self._lock:
            self._indexes.put(ref.id, index, _MEMORY_FACTOR * (ref.size - ref.index_at))
        return index

    def rows_ahead(self, folder: str, ref: ChunkRef, index: Index, numbers: range, limit: int) -> list[BlockRows]:
        """Return the first block of `numbers`. If it must be fetched, add the next ones up to `limit` bytes.

        Raises `ObjectMissing` and `Corrupt`.
        """
        with self._lock:
            cached = self._blocks.get((ref.id, numbers[0]))
        if cached is not None:
            return [cached]
        count, size = 1, index.blocks[numbers[0]].size
        while count < len(numbers) and (size := size + index.blocks[numbers[count]].size) <= limit:
            count += 1
        first = min(numbers[0], numbers[count - 1])
        blocks = index.blocks[first : first + count]
        key, start = folder + ref.id, blocks[0].at
        data = self._objects.get_range(key, start, blocks[-1].at + blocks[-1].size)
        rows = self._decode_blocks(key, ref, blocks, first, data, start)
        return rows if numbers.step > 0 else rows[::-1]

    def forget(self, ids: Iterable[str]) -> None:
        """Drop chunks from the cache."""
        with self._lock:
            for each in ids:
                index = self._indexes.get(each)
                self._indexes.drop(each)
                for number in range(len(index.blocks) if index else 0):
                    self._blocks.drop((each, number))

    def _decode_blocks(
        self, key: str, ref: ChunkRef, blocks: list[Block], first: int, data: bytes, start: int
    ) -> list[BlockRows]:
        """Return and cache blocks from number `first` on. `data` begins at byte `start` of the chunk."""
        rows = [_decode_block(block, data[block.at - start :][: block.size], key) for block in blocks]
        with self._lock:
            for number, (block, read) in enumerate(zip(blocks, rows, strict=True), first):
                self._blocks.put((ref.id, number), read, _MEMORY_FACTOR * block.size)
        return rows


class RunReader:
    """Reads one run. Its chunks are in a folder."""

    def __init__(self, run: Run, folder: str, chunks: ChunkReader) -> None:
        self.run = run
        self._folder = folder
        self._chunks = chunks
        self._lasts: list[SortKey] = [chunk.last for chunk in run.chunks]

    def get(self, sort_key: SortKey) -> Entry | None:
        if not self._is_visible(sort_key):
            return None
        at = bisect_left(self._lasts, sort_key)
        if at == len(self._lasts):
            return None
        ref = self.run.chunks[at]
        index = self._chunks.index(self._folder, ref)
        if not index.may_hold(sort_key):
            return None
        number = bisect_left(index.blocks, sort_key, key=_last)
        if number == len(index.blocks) or index.blocks[number].first > sort_key:
            return None
        return self._chunks.rows_ahead(self._folder, ref, index, range(number, number + 1), 0)[0].get(sort_key)

    def between(self, low: SortKey, high: SortKey, *, reverse: bool = False) -> Iterator[tuple[SortKey, Entry]]:
        """Yield the entries from `low` to `high`, in order or backwards."""
        for rows, positions in self._blocks_between(low, high, reverse=reverse):
            for position in positions:
                sort_key = rows.sort_keys[position]
                if sort_key[0] != SLOTS and self._is_visible(sort_key):
                    yield sort_key, rows.entry(position)

    def slots_between(self, low: SortKey, high: SortKey, *, reverse: bool = False) -> Iterator[SortKey]:
        """Yield the slots from `low` to `high`, in order or backwards."""
        for rows, positions in self._blocks_between(low, high, reverse=reverse):
            yield from (rows.sort_keys[position] for position in positions)

    def _blocks_between(self, low: SortKey, high: SortKey, *, reverse: bool) -> Iterator[tuple[BlockRows, range]]:
        """Yield the blocks with sort keys in the range, each with the positions that are in the range."""
        refs = self.run.chunks[bisect_left(self._lasts, low) : bisect_left(self._lasts, high) + 1]
        limit = 0
        for ref in reversed(refs) if reverse else refs:
            index = self._chunks.index(self._folder, ref)
            first = bisect_left(index.blocks, low, key=_last)
            numbers = range(first, max(bisect_right(index.blocks, high, key=_first), first))
            numbers = numbers[::-1] if reverse else numbers
            while numbers:
                found = self._chunks.rows_ahead(self._folder, ref, index, numbers, limit)
                numbers = numbers[len(found) :]
                for rows in found:
                    positions = range(bisect_left(rows.sort_keys, low), bisect_right(rows.sort_keys, high))
                    yield rows, positions[::-1] if reverse else positions
                limit = min(max(limit * 2, 128 << 10), _AHEAD_BYTES)

    def _is_visible(self, sort_key: SortKey) -> bool:
        limit = self.run.below.get(sort_key[0]) if self.run.below else None  # type: ignore[arg-type]
        return limit is None or sort_key[1] < limit  # type: ignore[operator]
