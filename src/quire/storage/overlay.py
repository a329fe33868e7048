"""A storage that holds back commits: several operations reach the storage below as one commit, or never.

Reads see the records of the overlay on top of those below. A discarded overlay leaves no trace there, even if its
process dies.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import Final

from quire.errors import InvalidOperation
from quire.storage.contract import (
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
)
from quire.storage.memory import MemoryStorage, Place, Table, storage_of

NEW: Final[Id] = -1
"""The id, in an overlay, of a context that the storage below does not have yet."""
_by_key, _by_place = attrgetter("key"), attrgetter("rank", "key")


class _Deleted(bytes):
    """The value of a record that hides one below."""


class _Layer(Table):
    """The records and the entries of one context, on top of those in another storage up to an entry."""

    def __init__(self, below: Storage, start: Loaded) -> None:
        super().__init__()
        self.below, self._context = below, start.id
        self.seq = self.start = start.seq
        self._head, self._notes = start.head, start.notes

    @property
    def head(self) -> bytes:
        return super().head if self.seq in self.entries else self._head

    def delete(self, family: Family, key: int) -> None:
        self.put(family, Record(key, _Deleted()))

    def get(self, family: Family, keys: Sequence[int]) -> list[Record | None]:
        own = super().get(family, keys)
        lower = self.below.get(self._context, family, keys) if None in own else own
        return [_shown(above or below) for above, below in zip(own, lower, strict=True)]

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[Record]:
        lower = self.below.scan(self._context, family, start, stop, reverse=reverse)
        if family == NOTE and self._notes is not None:  # those of the head: a writer below can be faster than this read
            notes = reversed(self._notes) if reverse else self._notes
            lower = (each for each in notes if start <= each.key <= stop)
        own = super().scan(family, start, stop, reverse=reverse)
        return _unique(merge(own, self._visible(family, lower), key=_by_key, reverse=reverse))

    def children(self, parent: int, after: Place | None, *, reverse: bool) -> Iterator[Record]:
        lower = self.below.children(self._context, parent, after=after, reverse=reverse)
        own = super().children(parent, after, reverse=reverse)
        return _unique(merge(own, self._visible("page", lower), key=_by_place, reverse=reverse))

    def scan_entries(self, start: int, stop: int, *, reverse: bool) -> Iterator[StoredEntry]:
        own = super().scan_entries(start, stop, reverse=reverse)
        lower = self.below.entries(self._context, start, min(stop, self.start), reverse=reverse)
        return chain(own, lower) if reverse else chain(lower, own)

    def _visible(self, family: Family, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records below that are not replaced or deleted here."""
        return (each for each in records if each.key not in self.records[family])


class OverlayStorage(MemoryStorage):
    """One context of another storage, with commits on top that are held in memory. Other contexts are those below."""

    def __init__(self, below: Storage, context: str) -> None:
        super().__init__()
        self.below = below
        self.context = context
        """The name of the context."""
        self.start = below.load(context)
        """The context below when this overlay was made, or None."""
        self.id = self.start.id if self.start else NEW
        if self.start:
            self._top = _Layer(below, self.start)
            self._add()
        else:
            self._top = _Layer(MemoryStorage(), Loaded(NEW, 0, b""))

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        return super().load(name, seen) if name == self.context else self.below.load(name, seen)

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        if copy_of is not None and copy_of.context == self.id:
            raise InvalidOperation(f"Context {self.context!r} has uncommitted changes; fork it after the commit.")
        if name != self.context or copy_of is not None:
            return self.below.create(name, commit, copy_of)
        check_commit(commit)
        with self._lock:
            if self._names:
                raise name_taken(name)
            self._top.apply(commit)
            self._add()
            return self.id

    def name(self, context: Id, name: str) -> None:
        self.below.name(context, name)

    def commit(self, context: Id, commit: Commit) -> None:
        if context != self.id:
            self.below.commit(context, commit)
            return
        if commit.replace or commit.expire:
            raise InvalidOperation("Older entries cannot be changed together with others. Commit these first.")
        super().commit(context, commit)

    def is_outdated(self) -> bool:
        """Return whether another writer changed the context below since this overlay was made."""
        if isinstance(self.below, OverlayStorage) and self.below.is_outdated():
            return True
        seen = (self.start.id, self.start.seq) if self.start else None
        found = self.below.load(self.context, seen)
        return (found and (found.id, found.seq)) != seen

    def as_commit(self) -> Commit | None:
        """Return all changes as one commit for the storage below, or None if nothing changed."""
        with self._lock:
            self._finish()
            top = self._top
            made = [entry for _, entry in sorted(top.entries.items())]
            records = [(family, each) for family, kept in top.records.items() for each in kept.values()]
        if not made:
            return None
        put = [(family, each) for family, each in records if _shown(each)]
        delete = [(family, each.key) for family, each in records if not _shown(each)]
        *earlier, last = made
        return Commit(last.seq, last.head, last.entry, put, delete, earlier=earlier)

    def write_below(self, commit: Commit) -> Id:
        """Make a commit of `as_commit` in the storage below. Return the id that the context has there."""
        if self.start is None:
            return self.below.create(self.context, commit)
        self.below.commit(self.id, commit)
        return self.id

    @contextmanager
    def snapshot(self, context: Id) -> Iterator[Storage]:
        """Return a block in which the context does not change. Raises `Conflict` if it has changed below."""
        with (self._top if context == self.id else self).below.snapshot(context) as lower:
            if context != self.id:
                yield lower
                return
            newest = next(lower.entries(context, reverse=True), None)
            if (newest.seq if newest else 0) != self._top.start:
                raise conflict(newest.seq if newest else None, self._top.start + 1)
            with self._lock:
                self._finish()
                frozen = self._top.copy()
                frozen.below = lower
            yield storage_of(context, self.context, frozen)

    def contexts(self, after: str = "") -> Iterator[str]:
        return self.below.contexts(after)

    def examine(self) -> Sequence[Flaw]:
        return self.below.examine()

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        if name == self.context:
            raise InvalidOperation(f"Context {name!r} has uncommitted changes; drop it after the commit.")
        self.below.drop(name, seen)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        return self.below.scrub(context)

    def _add(self) -> None:
        self._tables[self.id] = self._top
        self._names[self.context] = self.id

    def _table(self, context: Id) -> Table:
        return (
            super()._table(context) if context == self.id else _Layer(self.below, Loaded(context, MAX_KEY, b"", None))
        )


def _shown(record: Record | None) -> Record | None:
    return None if record is not None and isinstance(record.value, _Deleted) else record


def _unique(records: Iterator[Record]) -> Iterator[Record]:
    """Yield the first of several records with the same key, unless it is deleted."""
    last = -1
    for record in records:
        if record.key != last and _shown(record):
            yield record
        last = record.key
