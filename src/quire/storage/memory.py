"""Records in memory: an ordered table, the memory backend, and a reader of prefetched records.

The memory backend is the reference for all others. The values of a table are of any type: bytes in the memory backend,
positions in a log in the file backend.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap
from threading import RLock
from typing import Final, Generic, NamedTuple, TypeVar

from quire.storage.base import (
    ANCHOR,
    FAMILIES,
    LAYOUT,
    MAX_KEY,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Storage,
    check_context_name,
    check_families,
    conflict,
    fork_by_copy,
    sum_orders,
)

V = TypeVar("V")
Slot = tuple[bytes, int]
"""The position of a record in its group: (order, key)."""


class Row(NamedTuple, Generic[V]):
    """A record in a table, without its key."""

    value: V
    group: int | None
    order: bytes


class Table(Generic[V]):
    """The records of one context by family and key, with their groups in order.

    An interrupt can stop a change at any point. The same change made again completes it.
    """

    def __init__(self) -> None:
        self._rows: dict[Family, dict[int, Row[V]]] = {family: {} for family in FAMILIES}
        self._keys: dict[Family, list[int]] = {family: [] for family in FAMILIES}
        self._groups: dict[tuple[Family, int], list[Slot]] = {}

    def copy(self) -> "Table[V]":
        other: Table[V] = Table()
        other._rows = {family: dict(rows) for family, rows in self._rows.items()}
        other._keys = {family: list(keys) for family, keys in self._keys.items()}
        other._groups = {group: list(slots) for group, slots in self._groups.items()}
        return other

    def get(self, family: Family, key: int) -> Row[V] | None:
        return self._rows[family].get(key)

    def keys(self) -> Iterator[tuple[Family, int]]:
        """Yield the family and key of every row."""
        return ((family, key) for family, rows in self._rows.items() for key in rows)

    def put(self, family: Family, key: int, value: V, group: int | None, order: bytes) -> None:
        """Add or replace a row."""
        rows = self._rows[family]
        old = rows.get(key)
        if old is not None and (old.group, old.order) != (group, order):
            self._remove_from_group(family, key, old)
        rows[key] = Row(value, group, order)
        _insert(self._keys[family], key)
        if group is not None:
            _insert(self._groups.setdefault((family, group), []), (order, key))

    def patch(self, family: Family, key: int, value: V) -> None:
        """Give an existing row a new value. A missing row is ignored."""
        old = self._rows[family].get(key)
        if old is not None:
            self._rows[family][key] = old._replace(value=value)

    def delete(self, family: Family, key: int) -> None:
        """Remove a row. A missing row is ignored."""
        rows = self._rows[family]
        old = rows.get(key)
        if old is not None:
            self._remove_from_group(family, key, old)
            _remove(self._keys[family], key)
            del rows[key]

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[tuple[int, Row[V]]]:
        """Yield the rows with start ≤ key ≤ stop, by key. A row that changes meanwhile is read when it is reached."""
        keys, rows = self._keys[family], self._rows[family]
        position = bisect_right(keys, stop) - 1 if reverse else bisect_left(keys, start)
        while 0 <= position < len(keys) and start <= keys[position] <= stop:
            key = keys[position]
            yield key, rows[key]
            position = bisect_left(keys, key) - 1 if reverse else bisect_right(keys, key)

    def members(self, family: Family, group: int, after: Slot | None, *, reverse: bool) -> Iterator[tuple[int, Row[V]]]:
        """Yield the rows of a group in order; with `after`, only those after that position."""
        rows = self._rows[family]
        while slots := self._groups.get((family, group)):
            if after is None:
                position = len(slots) - 1 if reverse else 0
            else:
                position = bisect_left(slots, after) - 1 if reverse else bisect_right(slots, after)
            if not 0 <= position < len(slots):
                return
            after = slots[position]
            yield after[1], rows[after[1]]

    def sum_members(self, family: Family, group: int) -> tuple[int, int]:
        """Return the number of rows of a group, and the sum of their orders."""
        return sum_orders(order for order, _ in self._groups.get((family, group), ()))

    def _remove_from_group(self, family: Family, key: int, old: Row[V]) -> None:
        if old.group is not None and (slots := self._groups.get((family, old.group))) is not None:
            _remove(slots, (old.order, key))
            if not slots:
                del self._groups[family, old.group]


Item = TypeVar("Item", int, Slot)


def _insert(items: list[Item], item: Item) -> None:
    """Insert an item into a sorted list unless it is there. Appending, the common case, needs no search."""
    if not items or items[-1] < item:
        items.append(item)
    elif items[place := bisect_left(items, item)] != item:
        items.insert(place, item)


def _remove(items: list[Item], item: Item) -> None:
    """Remove an item from a sorted list if it is there."""
    place = bisect_left(items, item)
    if place < len(items) and items[place] == item:
        del items[place]


class MemoryStorage:
    """Records in dictionaries. Threads can share one object. Everything is lost when the process ends."""

    def __init__(self) -> None:
        self._contexts: dict[str, tuple[Head, Table[bytes]]] = {}
        self._lock = RLock()
        self._unfinished: tuple[str, Commit] | None = None
        """A commit that is being made. If an interrupt stops it, the next call completes it."""

    def head(self, context: str) -> Head | None:
        check_context_name(context)
        with self._lock:
            found = self._find(context)
        return found[0] if found else None

    def get(self, context: str, family: Family, key: int) -> Record | None:
        with self._lock:
            found = self._find(context)
            row = found[1].get(family, key) if found else None
        return row_record(key, row) if row else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        with self._lock:
            found = self._find(context)
        if found:
            yield from stream_records(found[1].scan(family, start, stop, reverse=reverse), self._lock)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        with self._lock:
            found = self._find(context)
        if found:
            yield from stream_records(found[1].members(family, group, after, reverse=reverse), self._lock)

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        with self._lock:
            found = self._find(context)
            return found[1].sum_members(family, group) if found else (0, 0)

    def commit(self, context: str, commit: Commit) -> None:
        check_context_name(context)
        with self._lock:
            found = self._find(context)
            head = found[0] if found else None
            if not commit.follows(head):
                raise conflict(context, head, commit.expect)
            check_families(commit.writes)
            self._unfinished = context, commit
            self._finish(context, commit)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        with self._lock:
            fork_by_copy(self, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        with self._lock:
            self._find("")
            names = sorted(name for name in self._contexts if name > after)
        yield from names

    def drop(self, context: str) -> None:
        check_context_name(context)
        with self._lock:
            self._find(context)
            self._contexts.pop(context, None)

    @contextmanager
    def snapshot(self, context: str) -> Iterator["MemoryStorage"]:
        """Return a copy of the context as it is now."""
        check_context_name(context)
        copy = MemoryStorage()
        with self._lock:
            found = self._find(context)
            if found is not None:
                copy._contexts[context] = found[0], found[1].copy()
        yield copy

    def close(self) -> None:
        """Do nothing: the records stay available through this object."""

    def _find(self, context: str) -> tuple[Head, Table[bytes]] | None:
        """Return the head and the records of a context. Complete an interrupted commit first."""
        if self._unfinished is not None:
            self._finish(*self._unfinished)
        return self._contexts.get(context)

    def _finish(self, context: str, commit: Commit) -> None:
        found = self._contexts.get(context)
        table = found[1] if found else Table[bytes]()
        for write in commit.writes:
            match write:
                case Put():
                    table.put(write.family, write.key, write.value, write.group, write.order)
                case Patch():
                    table.patch(write.family, write.key, write.value)
                case Delete():
                    table.delete(write.family, write.key)
        self._contexts[context] = Head(commit.version, commit.head), table
        self._unfinished = None


def stream_records(rows: Iterator[tuple[int, Row[bytes]]], lock: RLock) -> Iterator[Record]:
    """Yield the records in rows. The lock is held while a row is read, not between two rows."""
    while True:
        with lock:
            found = next(rows, None)
        if found is None:
            return
        yield row_record(*found)


def row_record(key: int, row: Row[bytes]) -> Record:
    """Return the record in a row."""
    return Record(key, row.value, row.group, row.order)


SMALL: Final[tuple[Family, ...]] = (SEGMENT, PAGE, TALLY, PIN, NOTE, ANCHOR, LAYOUT)
"""The families of small records. They are read when a context is opened and when its view is rendered."""


class PrefetchReader:
    """Reads one context at one version: small records from memory, the others from its storage.

    Over a network this saves requests: one request reads the head and all small records.
    """

    def __init__(self, storage: Storage, records: Iterable[tuple[Family, Record]]) -> None:
        self._storage = storage
        self._table: Table[bytes] = Table()
        for family, record in records:
            self._table.put(family, record.key, record.value, record.group, record.order)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if family not in SMALL:
            return self._storage.get(context, family, key)
        row = self._table.get(family, key)
        return row_record(key, row) if row else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        if family not in SMALL:
            return self._storage.scan(context, family, start, stop, reverse=reverse)
        return starmap(row_record, self._table.scan(family, start, stop, reverse=reverse))

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        if family not in SMALL:
            return self._storage.members(context, family, group, after=after, reverse=reverse)
        return starmap(row_record, self._table.members(family, group, after, reverse=reverse))

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        return self._table.sum_members(family, group)
