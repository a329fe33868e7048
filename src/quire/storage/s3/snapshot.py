"""A context as one head shows it: the commits in the head over the runs below. It never changes.

Reading goes from the newest to the oldest. What a scan or a listing gives is all of one moment.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Protocol

from quire.storage.base import MAX_GROUP, MAX_KEY, PAGE, Family, Record
from quire.storage.file.log import read_frames
from quire.storage.s3.chunks import (
    PATCH,
    RANKS,
    SLOTS,
    Chunks,
    Entry,
    Place,
    Recent,
    RunReader,
    changes_in,
    combine,
    record_of,
)
from quire.storage.s3.client import damaged
from quire.storage.s3.head import HeadObject


class Layer(Protocol):
    """Entries of one age."""

    def get(self, place: Place) -> Entry | None:
        """What is known here of a record."""

    def between(self, low: Place, high: Place, *, reverse: bool) -> Iterator[tuple[Place, Entry]]:
        """The records from `low` to `high`."""

    def slots_between(self, low: Place, high: Place, *, reverse: bool) -> Iterator[Place]:
        """The places in groups from `low` to `high`."""


class Standing:
    """Where a context stands, and what can be read there. `tag` is that of the head object."""

    def __init__(self, head: HeadObject, tag: str, recent: Recent, runs: tuple[RunReader, ...]) -> None:
        self.head = head
        self.tag = tag
        self.recent = recent
        self.runs = runs
        """The oldest first, as in the head."""
        self.layers: tuple[Layer, ...] = (recent, *reversed(runs))

    def get(self, family: Family, key: int) -> Record | None:
        """One record, or None."""
        place = (RANKS[family], key)
        known: Entry | None = None
        for layer in self.layers:
            found = layer.get(place)
            if found is not None:
                known = found if known is None else combine(known, found)
                if known.kind != PATCH:
                    break
        return record_of(key, known)

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[Record]:
        """The records with start ≤ key ≤ stop, by key."""
        rank, start, stop = RANKS[family], max(start, 0), min(stop, MAX_KEY)
        if start > stop:
            return
        layers = [layer.between((rank, start), (rank, stop), reverse=reverse) for layer in self.layers]
        for place, entry in merged(layers, reverse=reverse):
            record = record_of(_key(place), entry)
            if record is not None:
                yield record

    def members(
        self, family: Family, group: int, after: tuple[bytes, int] | None, *, reverse: bool
    ) -> Iterator[Record]:
        """The records of a group by (order, key), those strictly after the given place."""
        if family != PAGE or not 0 <= group <= MAX_GROUP:
            return
        low: Place = (SLOTS, group)
        high: Place = (SLOTS, group + 1)
        if after is not None:
            edge: Place = (SLOTS, group, *after)
            low, high = (low, edge) if reverse else (edge, high)
        layers = [layer.slots_between(low, high, reverse=reverse) for layer in self.layers]
        before: Place | None = None if after is None else edge
        for slot in merge(*layers, reverse=reverse):
            if slot == before:
                continue
            before = slot
            key = _key(slot)
            record = self.get(family, key)
            if record is not None and (record.group, record.order) == slot[1:3]:
                yield record


def merged(layers: Iterable[Iterator[tuple[Place, Entry]]], *, reverse: bool) -> Iterator[tuple[Place, Entry]]:
    """The entries of several layers, the newest first, as those of one."""
    ranked = [_aged(layer, -age if reverse else age) for age, layer in enumerate(layers)]
    place: Place | None = None
    known: Entry | None = None
    for found, _, entry in ranked[0] if len(ranked) == 1 else merge(*ranked, key=_order, reverse=reverse):
        if found == place and known is not None:
            known = combine(known, entry)
            continue
        if place is not None and known is not None:
            yield place, known
        place, known = found, entry
    if place is not None and known is not None:
        yield place, known


Aged = tuple[Place, int, Entry]


def _aged(layer: Iterator[tuple[Place, Entry]], age: int) -> Iterator[Aged]:
    return ((place, age, entry) for place, entry in layer)


def _order(item: Aged) -> tuple[Place, int]:
    return item[0], item[1]


def _key(place: Place) -> int:
    key = place[-1]
    assert isinstance(key, int)
    return key


def recent_of(head: HeadObject, key: str) -> Recent:
    """The entries of the commits in a head. Raises `Corrupt` with the object's key."""
    frames = list(read_frames(head.log, 0))
    if (frames[-1].end if frames else 0) != len(head.log):
        raise damaged(key, "a commit in it")
    return Recent().after(change for frame in frames for change in changes_in(frame, head.log))


def standing_of(head: HeadObject, tag: str, key: str, folder: str, chunks: Chunks) -> Standing:
    """The context as this head shows it. Raises `Corrupt` with the object's key."""
    return standing_over(head, tag, recent_of(head, key), folder, chunks)


def standing_over(head: HeadObject, tag: str, recent: Recent, folder: str, chunks: Chunks) -> Standing:
    """The same, if the entries of its commits are known."""
    return Standing(head, tag, recent, tuple(RunReader(run, folder, chunks) for run in head.runs))
