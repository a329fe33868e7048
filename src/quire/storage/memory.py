"""Records in memory: an ordered table, and the storage that is the reference for all others."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import count
from threading import RLock
from typing import Any, Final, Self, TypeVar

from quire.storage.base import check_context_name
from quire.storage.contract import (
    FAMILIES,
    MAX_KEY,
    NOTE,
    Commit,
    Family,
    Flaw,
    Fork,
    Id,
    Loaded,
    Record,
    Storage,
    StoredEntry,
    check_commit,
    conflict,
    name_taken,
    unfinished_copy,
)

Place = tuple[int, int]
"""The place of a page among its siblings: (rank, key)."""
_ENTRIES: Final = "entries"
V = TypeVar("V")


class Table:
    """The records and the entries of one context, in order."""

    def __init__(self) -> None:
        self.records: dict[Family, dict[int, Record]] = {family: {} for family in FAMILIES}
        self.entries: dict[int, StoredEntry] = {}
        self.seq = 0
        self._order: dict[str | int, list[Any]] = {each: [] for each in (*FAMILIES, _ENTRIES)}
        """Sorted lists: the keys of each family, the numbers of the entries, and the places below each parent."""

    @property
    def head(self) -> bytes:
        """The head that the newest entry wrote."""
        return self.entries[self.seq].head

    def copy(self) -> Self:
        other = copy(self)
        other.records = {family: dict(records) for family, records in self.records.items()}
        other.entries = dict(self.entries)
        other._order = {name: list(items) for name, items in self._order.items()}
        return other

    def apply(self, commit: Commit) -> None:
        """Make the changes of a commit. If an interrupt stops it, the same call completes it."""
        for family, record in commit.put:
            self.put(family, record)
        for family, key in commit.delete:
            self.delete(family, key)
        for seq, entry in commit.replace:
            if seq in self.entries:
                self.set_entry(StoredEntry(seq, self.entries[seq].head, entry))
        for made in commit.entries:
            self.set_entry(made)
        numbers = self._order[_ENTRIES]
        while numbers and numbers[0] < commit.expire:
            self.entries.pop(numbers[0], None)
            del numbers[0]
        self.seq = commit.seq

    def get(self, family: Family, keys: Sequence[int]) -> list[Record | None]:
        """Return records, with None for a missing one."""
        return [self.records[family].get(key) for key in keys]

    def put(self, family: Family, record: Record) -> None:
        """Add or replace a record."""
        old = self.records[family].get(record.key)
        if old is None:
            _insert(self._order[family], record.key)
        elif old.parent is not None and (old.parent, old.rank) != (record.parent, record.rank):
            _remove(self._order[old.parent], (old.rank, old.key))
        self.records[family][record.key] = record
        if record.parent is not None:
            _insert(self._order.setdefault(record.parent, []), (record.rank, record.key))

    def delete(self, family: Family, key: int) -> None:
        """Remove a record. A missing one is ignored."""
        old = self.records[family].get(key)
        if old is not None:
            if old.parent is not None:
                _remove(self._order[old.parent], (old.rank, key))
            _remove(self._order[family], key)
            del self.records[family][key]

    def set_entry(self, entry: StoredEntry) -> None:
        """Add or replace an entry."""
        self.entries[entry.seq] = entry
        _insert(self._order[_ENTRIES], entry.seq)

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[Record]:
        """Yield records by key. One that changes meanwhile is read when it is reached."""
        records = self.records[family]
        return (records[key] for key in _between(self._order[family], start, stop, reverse=reverse))

    def scan_entries(self, start: int, stop: int, *, reverse: bool) -> Iterator[StoredEntry]:
        """Yield entries by number."""
        return (self.entries[seq] for seq in _between(self._order[_ENTRIES], start, stop, reverse=reverse))

    def children(self, parent: int, after: Place | None, *, reverse: bool) -> Iterator[Record]:
        """Yield the pages with this parent in order; with `after`, those beyond that place."""
        start, stop = (0, 0), (MAX_KEY + 1, 0)
        if after is not None:
            rank, key = after
            start, stop = (start, (rank, key - 1)) if reverse else ((rank, key + 1), stop)
        records = self.records["page"]
        return (records[key] for _, key in _between(self._order.get(parent, []), start, stop, reverse=reverse))


def _insert(items: list[Any], item: Any) -> None:
    """Insert an item into a sorted list unless it is there."""
    position = bisect_left(items, item)
    if position == len(items) or items[position] != item:
        items.insert(position, item)


def _remove(items: list[Any], item: Any) -> None:
    """Remove an item from a sorted list."""
    position = bisect_left(items, item)
    if position < len(items) and items[position] == item:
        del items[position]


def _between(items: list[Any], start: Any, stop: Any, *, reverse: bool) -> Iterator[Any]:
    """Yield the items of a sorted list with start ≤ item ≤ stop; the list may change meanwhile."""
    position = bisect_right(items, stop) - 1 if reverse else bisect_left(items, start)
    while 0 <= position < len(items) and start <= items[position] <= stop:
        item = items[position]
        yield item
        position = bisect_left(items, item) - 1 if reverse else bisect_right(items, item)


class MemoryStorage:
    """Keeps records in memory, for as long as the object lives."""

    def __init__(self) -> None:
        self._names: dict[str, Id] = {}
        self._tables: dict[Id, Table] = {}
        self._ids = count(1)
        self._lock = RLock()
        self._unfinished: tuple[Table, Commit] | None = None
        """A commit in progress. After an interrupt, the next call completes it."""

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        with self._lock:
            context = self._names.get(check_context_name(name))
            if context is None:
                return None
            table = self._table(context)
            notes = None if seen == (context, table.seq) else tuple(table.scan(NOTE, 0, MAX_KEY, reverse=False))
            return Loaded(context, table.seq, table.head, notes)

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        yield from self._stream(self._table(context).scan_entries(start, stop, reverse=reverse))

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        with self._lock:
            return self._table(context).get(family, keys)

    def scan(
        self, context: Id, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        yield from self._stream(self._table(context).scan(family, start, stop, reverse=reverse))

    def children(
        self, context: Id, parent: int, *, after: Place | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        yield from self._stream(self._table(context).children(parent, after, reverse=reverse))

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        check_commit(commit)
        with self._lock:
            if name is not None and check_context_name(name) in self._names:
                raise name_taken(name)
            table = Table()
            if copy_of is not None:
                origin = self._table(copy_of.context)
                if origin.seq != copy_of.seq:
                    raise conflict(origin.seq or None, copy_of.seq + 1)
                for family in FAMILIES:
                    stop = copy_of.limits.get(family, MAX_KEY + 1) - 1
                    for record in origin.scan(family, 0, stop, reverse=False):
                        table.put(family, record)
            table.apply(commit)
            context = next(self._ids)
            self._tables[context] = table
            if name is not None:
                self._names[name] = context
            return context

    def name(self, context: Id, name: str) -> None:
        with self._lock:
            if check_context_name(name) in self._names:
                raise name_taken(name)
            if context not in self._tables:
                raise conflict(None, 0)
            self._names[name] = context

    def commit(self, context: Id, commit: Commit) -> None:
        check_commit(commit)
        with self._lock:
            table = self._tables.get(context)
            self._finish()
            if table is None or table.seq + 1 != commit.first:
                raise conflict(table.seq if table else None, commit.first)
            self._unfinished = table, commit
            self._finish()

    @contextmanager
    def snapshot(self, context: Id) -> Iterator[Storage]:
        with self._lock:
            name = next((name for name, found in self._names.items() if found == context), None)
            frozen = storage_of(context, name, self._table(context).copy())
        yield frozen

    def contexts(self, after: str = "") -> Iterator[str]:
        with self._lock:
            names = sorted(name for name in self._names if name > after)
        yield from names

    def examine(self) -> Sequence[Flaw]:
        with self._lock:
            unnamed = sorted(self._tables.keys() - self._names.values())
            return [unfinished_copy(context, self._tables[context].seq) for context in unnamed]

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        with self._lock:
            self._check_seen(name, seen)
            self._tables.pop(self._names.pop(check_context_name(name), 0), None)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        """Remove copies without a name. Nothing else is left of what was deleted."""
        with self._lock:
            if context is None:
                self._tables = {found: self._tables[found] for found in self._names.values()}
        return ()

    def close(self) -> None:
        """Do nothing: the records stay available through this object."""

    def _table(self, context: Id) -> Table:
        """Return the records of a context, none if it is gone."""
        with self._lock:
            self._finish()
            return self._tables.get(context) or Table()

    def _check_seen(self, name: str, seen: tuple[Id, int] | None) -> None:
        """Raise `Conflict` if a name does not lead to the context and the entry that a caller has seen."""
        context = self._names.get(check_context_name(name), 0)
        if seen is not None and seen != (context, self._table(context).seq):
            raise conflict(self._table(context).seq or None, seen[1] + 1)

    def _finish(self) -> None:
        """Complete the commit in progress."""
        if self._unfinished is not None:
            table, commit = self._unfinished
            table.apply(commit)
            self._unfinished = None

    def _stream(self, items: Iterator[V]) -> Iterator[V]:
        """Yield the items. The lock is held while one is read, not between two."""
        while True:
            with self._lock:
                found = next(items, None)
            if found is None:
                return
            yield found


def copy_to_memory(storage: Storage, context: Id) -> MemoryStorage:
    """Return one context of a storage in memory, under the same id and without a name."""
    table = Table()
    for family in FAMILIES:
        for record in storage.scan(context, family):
            table.put(family, record)
    for entry in storage.entries(context):
        table.set_entry(entry)
        table.seq = entry.seq
    return storage_of(context, None, table)


def storage_of(context: Id, name: str | None, table: Table) -> MemoryStorage:
    """Return a storage with one context."""
    storage = MemoryStorage()
    storage._tables[context] = table
    if name is not None:
        storage._names[name] = context
    return storage
