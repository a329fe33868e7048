"""Runs: chunks that follow on each other in order, read block by block through a cache that is bounded.

What was sealed together is one run; a newer run lies over the older ones.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Final

from msgspec import Struct, field

from quire.cache import SizedCache
from quire.storage.s3.chunks import Block, ChunkRef, Index, Rows, read_index, read_rows
from quire.storage.s3.entries import SLOTS, Entry, Place
from quire.storage.s3.objects import Objects

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
