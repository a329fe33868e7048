"""A context at one moment: the commits in its head over the runs below. A snapshot never changes.

A record is looked up from the newest layer to the oldest.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from heapq import merge
from itertools import groupby
from operator import itemgetter

from quire.storage.base import MAX_GROUP, MAX_KEY, PAGE, Family, Record
from quire.storage.file.frames import PATCH, read_frames
from quire.storage.s3.chunks import (
    RANKS,
    SLOTS,
    ChunkReader,
    Entry,
    LogEntries,
    RunReader,
    SortKey,
    combine,
    decode_changes,
    key_in,
    record_of,
)
from quire.storage.s3.client import damaged
from quire.storage.s3.head import HeadObject

Layer = LogEntries | RunReader
"""Entries of one age."""


class Snapshot:
    """The state that one head describes. `tag` is the entity tag of the head object."""

    def __init__(self, head: HeadObject, tag: str, log: LogEntries, folder: str, chunks: ChunkReader) -> None:
        self.head = head
        self.tag = tag
        self.log = log
        self.runs = tuple(RunReader(run, folder, chunks) for run in reversed(head.runs))
        """The newest first, unlike in the head."""
        self._layers: tuple[Layer, ...] = (log, *self.runs)

    def get(self, family: Family, key: int) -> Record | None:
        sort_key = (RANKS[family], key)
        entry: Entry | None = None
        for layer in self._layers:
            found = layer.get(sort_key)
            if found is not None:
                entry = found if entry is None else combine(entry, found)
                if entry.kind != PATCH:
                    break
        return record_of(key, entry)

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[Record]:
        rank, start, stop = RANKS[family], max(start, 0), min(stop, MAX_KEY)
        if start > stop:
            return
        layers = [layer.between((rank, start), (rank, stop), reverse=reverse) for layer in self._layers]
        for sort_key, entry in merge_layers(layers, reverse=reverse):
            record = record_of(key_in(sort_key), entry)
            if record is not None:
                yield record

    def members(
        self, family: Family, group: int, after: tuple[bytes, int] | None, *, reverse: bool
    ) -> Iterator[Record]:
        """Yield the records of a group by (order, key), strictly after the given position."""
        if family != PAGE or not 0 <= group <= MAX_GROUP:
            return
        low: SortKey = (SLOTS, group)
        high: SortKey = (SLOTS, group + 1)
        previous: SortKey | None = None
        if after is not None:
            previous = (SLOTS, group, *after)
            low, high = (low, previous) if reverse else (previous, high)
        layers = [layer.slots_between(low, high, reverse=reverse) for layer in self._layers]
        for slot in merge(*layers, reverse=reverse):
            if slot == previous:
                continue
            previous = slot
            record = self.get(family, key_in(slot))
            if record is not None and (record.group, record.order) == slot[1:3]:
                yield record


def merge_layers(
    layers: Iterable[Iterator[tuple[SortKey, Entry]]], *, reverse: bool = False
) -> Iterator[tuple[SortKey, Entry]]:
    """Merge the entries of several layers, the newest first, into one sorted sequence."""
    first = itemgetter(0)
    for sort_key, found in groupby(merge(*layers, key=first, reverse=reverse), key=first):  # merge is stable
        yield sort_key, reduce(combine, (entry for _, entry in found))


def read_log(head: HeadObject, key: str) -> LogEntries:
    """Return the entries of the commits in a head. Raises `Corrupt` with the object's key."""
    frames = list(read_frames(head.log, 0))
    if (frames[-1].end if frames else 0) != len(head.log):
        raise damaged(key, "a commit in it")
    return LogEntries().with_changes(change for frame in frames for change in decode_changes(frame, head.log))
