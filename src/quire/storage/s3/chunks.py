"""What a commit leaves of a record, and how newer and older of it make one.

Records are sorted by the rank of their family and their key. The places of records in their groups are sorted beside
them, so that a group can be read in order. Both are tuples that begin with a rank and never meet.

Chunks: sorted entries in an immutable object, in blocks that can be read one by one.

    block … block index

A block is a stretch of entries; the index says where each begins, what it covers, and its checksum. What the index is,
and its own checksum, says the head that names the chunk: a chunk is read with a request for its index and one for each
block, and no byte is believed that the head does not answer for.

Runs: chunks that follow on each other in order, read block by block through a cache that is bounded.

What was sealed together is one run; a newer run lies over the older ones.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from os import urandom
from threading import Lock
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct, field

from quire.model.sized_cache import SizedCache
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    FAMILIES,
    JOURNAL,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    VECTOR,
    Delete,
    Family,
    Patch,
    Put,
    Record,
    Write,
)
from quire.storage.file.log import Frame
from quire.storage.s3.client import Objects, damaged

PUT, PATCH, DELETE = 0, 1, 2
Place = tuple[int | bytes, ...]
"""What entries are sorted by: (rank, key) of a record, (SLOTS, group, order, key) of its place in a group."""

_KNOWN: Final[dict[Family, int]] = {
    BODY: 10,
    MESSAGE: 11,
    JOURNAL: 12,
    VECTOR: 13,
    PAGE: 20,
    CALL: 30,
    TALLY: 31,
    PIN: 40,
    ANCHOR: 41,
    NOTE: 42,
    SEGMENT: 43,
}
SLOTS: Final = 21
RANKS: Final[dict[Family, int]] = {family: _KNOWN.get(family, 100 + number) for number, family in enumerate(FAMILIES)}
"""The order of families in a chunk: what is large and rarely read first, what opening reads at the end."""
_FAMILY: Final[dict[int, Family]] = {rank: family for family, rank in RANKS.items()}


class Entry(NamedTuple):
    """What is known of a record from one place on: its whole, its new value alone, or that it is gone."""

    kind: int
    group: int | None
    order: bytes
    value: bytes


GONE: Final = Entry(DELETE, None, b"", b"")


def combine(newer: Entry, older: Entry) -> Entry:
    """Both as one."""
    if newer.kind != PATCH:
        return newer
    return older._replace(value=newer.value) if older.kind != DELETE else older


def record_of(key: int, entry: Entry | None) -> Record | None:
    """The record, if nothing older is known of it."""
    if entry is None or entry.kind != PUT:
        return None
    return Record(key, entry.value, entry.group, entry.order)


def as_write(place: Place, entry: Entry) -> Write:
    """The entry as a write that leaves it."""
    rank, key = place
    assert isinstance(rank, int)
    assert isinstance(key, int)
    family = _FAMILY[rank]
    match entry.kind:
        case 0:
            return Put(family, key, entry.value, entry.group, entry.order)
        case 1:
            return Patch(family, key, entry.value)
        case _:
            return Delete(family, key)


def slot_of(place: Place, entry: Entry) -> Place | None:
    """The place in its group that the entry gives its record."""
    if entry.kind != PUT or entry.group is None or place[0] != RANKS[PAGE]:
        return None
    return (SLOTS, entry.group, entry.order, place[1])


class Recent:
    """The entries of the commits that the head itself holds. It never changes: a commit makes another."""

    def __init__(self, entries: Mapping[Place, Entry] | None = None) -> None:
        self.entries: Mapping[Place, Entry] = entries or {}

    def after(self, changes: Iterable[tuple[Place, Entry]]) -> "Recent":
        """These entries with newer ones over them."""
        entries = dict(self.entries)
        for place, entry in changes:
            old = entries.get(place)
            entries[place] = entry if old is None else combine(entry, old)
        return Recent(entries)

    @cached_property
    def places(self) -> list[Place]:
        """The places of all records, in order."""
        return sorted(self.entries)

    @cached_property
    def slots(self) -> list[Place]:
        """The places in groups, in order."""
        found = (slot_of(place, entry) for place, entry in self.entries.items())
        return sorted(slot for slot in found if slot is not None)

    def get(self, place: Place) -> Entry | None:
        """What is known of a record."""
        return self.entries.get(place)

    def between(self, low: Place, high: Place, *, reverse: bool) -> Iterator[tuple[Place, Entry]]:
        """The records from `low` to `high`."""
        return ((place, self.entries[place]) for place in _cut(self.places, low, high, reverse=reverse))

    def slots_between(self, low: Place, high: Place, *, reverse: bool) -> Iterator[Place]:
        """The places in groups from `low` to `high`."""
        return iter(_cut(self.slots, low, high, reverse=reverse))


def _cut(places: list[Place], low: Place, high: Place, *, reverse: bool) -> list[Place]:
    found = places[bisect_left(places, low) : bisect_right(places, high)]
    return found[::-1] if reverse else found


def changes_of(writes: Iterable[Write]) -> Iterator[tuple[Place, Entry]]:
    """What the writes of a commit leave, in their order."""
    for write in writes:
        place = (RANKS[write.family], write.key)
        match write:
            case Put():
                yield place, Entry(PUT, write.group, write.order, write.value)
            case Patch():
                yield place, Entry(PATCH, None, b"", write.value)
            case Delete():
                yield place, GONE


def changes_in(frame: Frame, data: bytes) -> Iterator[tuple[Place, Entry]]:
    """What the writes of a frame in the log leave, in their order."""
    for entry in frame.entries:
        place = (RANKS[entry.family], entry.key)
        value = data[entry.offset : entry.offset + entry.size]
        yield place, GONE if entry.is_delete else Entry(PUT if entry.is_put else PATCH, entry.group, entry.order, value)


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


_WHOLE: Final = 512 << 10
"""A chunk up to this size is read at once."""
_TAIL: Final = 192 << 10
"""So much before the index comes with it: what opening reads is there."""
_AHEAD: Final = 4 << 20
"""The most that a scan reads in one request."""
_PARSED: Final = 3
"""A block in memory takes about so many times its bytes."""


class Run(Struct, frozen=True, array_like=True):
    """The chunks of a run, in order. Of a rank in `below` only smaller keys count: a fork took no more."""

    chunks: tuple[ChunkRef, ...]
    below: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(chunk.id for chunk in self.chunks)


class Chunks:
    """Reads chunks of one store; blocks and indexes stay in memory up to a number of bytes."""

    def __init__(self, objects: Objects, max_bytes: int) -> None:
        self._objects = objects
        self._indexes: SizedCache[str, Index] = SizedCache(max_bytes // 4)
        self._blocks: SizedCache[tuple[str, int], Rows] = SizedCache(max_bytes - max_bytes // 4)
        self._lock = Lock()

    def index(self, folder: str, ref: ChunkRef) -> Index:
        """The index of a chunk. Raises `Missing`, `Corrupt`."""
        with self._lock:
            found = self._indexes.get(ref.id)
        if found is not None:
            return found
        start = 0 if ref.size <= _WHOLE else max(ref.index_at - _TAIL, 0)
        return self.take(folder, ref, self._objects.get_range(folder + ref.id, start, ref.size), start)

    def take(self, folder: str, ref: ChunkRef, data: bytes, start: int = 0) -> Index:
        """Keep the index and the blocks of a chunk that are in its last bytes, from `start` on."""
        key = folder + ref.id
        index = read_index(ref, data[ref.index_at - start :], key)
        blocks = [(n, block) for n, block in enumerate(index.blocks) if block.at >= start]
        rows = [(n, block, read_rows(block, data[block.at - start :][: block.size], key)) for n, block in blocks]
        with self._lock:
            self._indexes.put(ref.id, index, _PARSED * (ref.size - ref.index_at))
            for number, block, read in rows:
                self._blocks.put((ref.id, number), read, _PARSED * block.size)
        return index

    def take_end(self, folder: str, ref: ChunkRef, data: bytes) -> None:
        """Keep what opening would read of a chunk that was just written."""
        start = max(ref.index_at - _TAIL, 0)
        self.take(folder, ref, data[start:], start)

    def rows(self, folder: str, ref: ChunkRef, index: Index, number: int) -> Rows:
        """One block of a chunk. Raises `Missing`, `Corrupt`."""
        with self._lock:
            found = self._blocks.get((ref.id, number))
        return found or self._fetch(folder, ref, index, number, number)[0]

    def ahead(self, folder: str, ref: ChunkRef, index: Index, numbers: range, most: int) -> list[Rows]:
        """The first block of `numbers`; if it has to be fetched, with as many of the following as `most` bytes hold."""
        with self._lock:
            first = self._blocks.get((ref.id, numbers[0]))
        if first is not None:
            return [first]
        wanted = [numbers[0]]
        size = index.blocks[numbers[0]].size
        for number in numbers[1:]:
            size += index.blocks[number].size
            if size > most:
                break
            wanted.append(number)
        rows = self._fetch(folder, ref, index, min(wanted), max(wanted))
        return rows if numbers.step > 0 else rows[::-1]

    def forget(self, ids: Iterable[str]) -> None:
        """Forget chunks that nobody reads any more."""
        with self._lock:
            for each in ids:
                index = self._indexes.get(each)
                self._indexes.drop(each)
                for number in range(len(index.blocks) if index else 0):
                    self._blocks.drop((each, number))

    def _fetch(self, folder: str, ref: ChunkRef, index: Index, first: int, last: int) -> list[Rows]:
        blocks: list[Block] = index.blocks[first : last + 1]
        start = blocks[0].at
        data = self._objects.get_range(folder + ref.id, start, blocks[-1].at + blocks[-1].size)
        rows = [read_rows(block, data[block.at - start :][: block.size], folder + ref.id) for block in blocks]
        with self._lock:
            for number, (block, read) in enumerate(zip(blocks, rows, strict=True), first):
                self._blocks.put((ref.id, number), read, _PARSED * block.size)
        return rows


class RunReader:
    """One run of a context, whose chunks lie in a folder."""

    def __init__(self, run: Run, folder: str, chunks: Chunks) -> None:
        self.run = run
        self._folder = folder
        self._chunks = chunks
        self._lasts: list[Place] = [chunk.last for chunk in run.chunks]

    def get(self, place: Place) -> Entry | None:
        """What the run knows of a record."""
        if not _counts(place, self.run.below):
            return None
        at = bisect_left(self._lasts, place)
        if at == len(self._lasts):
            return None
        ref = self.run.chunks[at]
        index = self._chunks.index(self._folder, ref)
        if not index.may_hold(place):
            return None
        number = bisect_left(index.blocks, place, key=_last)
        if number == len(index.blocks) or index.blocks[number].first > place:
            return None
        return self._chunks.rows(self._folder, ref, index, number).get(place)

    def between(self, low: Place, high: Place, *, reverse: bool) -> Iterator[tuple[Place, Entry]]:
        """The records from `low` to `high`, in order or backwards."""
        for rows, first, last in self._stretches(low, high, reverse=reverse):
            positions = range(last - 1, first - 1, -1) if reverse else range(first, last)
            for position in positions:
                place = rows.places[position]
                if place[0] != SLOTS and _counts(place, self.run.below):
                    yield place, rows.entry(position)

    def slots_between(self, low: Place, high: Place, *, reverse: bool) -> Iterator[Place]:
        """The places in groups from `low` to `high`, in order or backwards."""
        for rows, first, last in self._stretches(low, high, reverse=reverse):
            places = rows.places[first:last]
            yield from reversed(places) if reverse else places

    def _stretches(self, low: Place, high: Place, *, reverse: bool) -> Iterator[tuple[Rows, int, int]]:
        """The blocks that cover what lies between, each with the first position that counts and the end."""
        refs = self.run.chunks[bisect_left(self._lasts, low) :]
        most = 0
        for ref in reversed(self._needed(refs, high)) if reverse else self._needed(refs, high):
            index = self._chunks.index(self._folder, ref)
            numbers = _covering(index, low, high)
            while numbers:
                ordered = numbers[::-1] if reverse else numbers
                for rows in self._chunks.ahead(self._folder, ref, index, ordered, most):
                    numbers = numbers[:-1] if reverse else numbers[1:]
                    first = bisect_left(rows.places, low)
                    last = _after(rows.places, high)
                    if first < last:
                        yield rows, first, last
                most = min(max(most * 2, 128 << 10), _AHEAD)

    def _needed(self, refs: tuple[ChunkRef, ...], high: Place) -> list[ChunkRef]:
        """Of chunks that end after the start, those that may begin before the end."""
        found: list[ChunkRef] = []
        for ref in refs:
            found.append(ref)
            if ref.last >= high:
                break
        return found


def _covering(index: Index, low: Place, high: Place) -> range:
    """The numbers of the blocks that may hold something between."""
    first = bisect_left(index.blocks, low, key=_last)
    last = first
    while last < len(index.blocks) and index.blocks[last].first <= high:
        last += 1
    return range(first, last)


def _after(places: list[Place], high: Place) -> int:
    position = bisect_left(places, high)
    return position + 1 if position < len(places) and places[position] == high else position


def _last(block: Block) -> Place:
    return block.last


def _counts(place: Place, below: Mapping[int, int]) -> bool:
    limit = below.get(place[0]) if below else None  # type: ignore[arg-type]
    return limit is None or place[1] < limit  # type: ignore[operator]
