"""What a commit leaves of a record, and how newer and older of it make one.

Records are sorted by the rank of their family and their key. The places of records in their groups are sorted beside
them, so that a group can be read in order. Both are tuples that begin with a rank and never meet.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple

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
from quire.storage.log import Frame

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
