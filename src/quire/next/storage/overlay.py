"""A storage that holds back commits: several operations reach the storage below as one commit, or never.

Reads see the records of the overlay on top of those below. A discarded overlay leaves no trace there, even if its
process dies.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from heapq import merge
from itertools import chain
from operator import attrgetter
from threading import RLock
from typing import Final

from msgspec.structs import replace

from quire.errors import InvalidOperation
from quire.next.storage.contract import (
    FAMILIES,
    MAX_KEY,
    NOTE,
    Commit,
    Family,
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
from quire.next.storage.memory import MemoryStorage, Place, Table, storage_of

NEW: Final[Id] = -1
"""The id, in an overlay, of a context that the storage below does not have yet."""
_by_key, _by_place = attrgetter("key"), attrgetter("rank", "key")


class _Deleted(bytes):
    """The value of a record of the overlay that hides one below."""


class OverlayStorage:
    """One context of another storage, with commits on top that are held in memory. Other contexts are those below."""

    def __init__(self, below: Storage, context: str) -> None:
        self.below = below
        self.context = context
        """The name of the context."""
        self.start = below.load(context)
        """The context below when this overlay was made, or None."""
        self.id = self.start.id if self.start else NEW
        self._seq = self.start.seq if self.start else 0
        self._own: Storage = storage_of(self.id, None, Table(self._seq))
        self._lower: Storage = below if self.start else MemoryStorage()
        self._replaced: dict[int, bytes] = {}
        self._expire = 0
        self._lock = RLock()

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        if name != self.context:
            return self.below.load(name, seen)
        with self._lock:
            newest = next(self._own.entries(self.id, reverse=True), None) or self.start
            if newest is None:
                return None
            notes = None if seen == (self.id, newest.seq) else tuple(self.scan(self.id, NOTE))
            return Loaded(self.id, newest.seq, newest.head, notes)

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        if context != self.id:
            return self.below.entries(context, start, stop, reverse=reverse)
        start = max(start, self._expire)
        own = self._own.entries(context, start, stop, reverse=reverse)
        lower = (
            StoredEntry(each.seq, each.head, self._replaced.get(each.seq, each.entry))
            for each in self._lower.entries(context, start, min(stop, self._seq), reverse=reverse)
        )
        return chain(own, lower) if reverse else chain(lower, own)

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        if context != self.id:
            return self.below.get(context, family, keys)
        own = self._own.get(context, family, keys)
        lower = self._lower.get(context, family, keys) if None in own else own
        return [_shown(above or below) for above, below in zip(own, lower, strict=True)]

    def scan(
        self, context: Id, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        if context != self.id:
            return self.below.scan(context, family, start, stop, reverse=reverse)
        own, lower = (each.scan(context, family, start, stop, reverse=reverse) for each in (self._own, self._lower))
        return _unique(merge(own, self._visible(family, lower), key=_by_key, reverse=reverse))

    def children(
        self, context: Id, parent: int, *, after: Place | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        if context != self.id:
            return self.below.children(context, parent, after=after, reverse=reverse)
        own, lower = (each.children(context, parent, after=after, reverse=reverse) for each in (self._own, self._lower))
        return _unique(merge(own, self._visible("page", lower), key=_by_place, reverse=reverse))

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        if copy_of is not None and copy_of.context == self.id:
            raise InvalidOperation(f"Context {self.context!r} has uncommitted changes; fork it after the commit.")
        if name != self.context or copy_of is not None:
            return self.below.create(name, commit, copy_of)
        check_commit(commit)
        with self._lock:
            if self.load(name):
                raise name_taken(name)
            self._own = storage_of(self.id, None, table := Table())
            table.apply(commit)
            return self.id

    def name(self, context: Id, name: str) -> None:
        self.below.name(context, name)

    def commit(self, context: Id, commit: Commit) -> None:
        if context != self.id:
            self.below.commit(context, commit)
            return
        with self._lock:
            if self.load(self.context) is None:
                raise conflict(None, commit.first)
            gone = ((family, Record(key, _Deleted())) for family, key in commit.delete)
            self._own.commit(context, replace(commit, put=[*commit.put, *gone], delete=(), expire=0))
            self._replaced = {**self._replaced, **dict(commit.replace)}
            self._expire = max(self._expire, commit.expire)

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
            made = list(self._own.entries(self.id))
            records = [(family, each) for family in FAMILIES for each in self._own.scan(self.id, family)]
        if not made:
            return None
        put = [(family, each) for family, each in records if _shown(each)]
        delete = [(family, each.key) for family, each in records if not _shown(each)]
        older = [(seq, entry) for seq, entry in self._replaced.items() if seq <= self._seq]
        *earlier, last = made
        return Commit(last.seq, last.head, last.entry, put, delete, older, self._expire, earlier)

    def write_below(self, commit: Commit) -> Id:
        """Make a commit of `as_commit` in the storage below. Return the id that the context has there."""
        if self.start is None:
            return self.below.create(self.context, commit)
        self.below.commit(self.id, commit)
        return self.id

    @contextmanager
    def snapshot(self, context: Id) -> Iterator[Storage]:
        """Return a block in which the context does not change. Raises `Conflict` if it has changed below."""
        with (self._lower if context == self.id else self.below).snapshot(context) as lower:
            if context != self.id:
                yield lower
                return
            newest = next(lower.entries(context, reverse=True), None)
            if (newest.seq if newest else 0) != self._seq:
                raise conflict(newest.seq if newest else None, self._seq + 1)
            with self._lock, self._own.snapshot(context) as own:
                frozen = copy(self)
                frozen._own, frozen._lower = own, lower
            yield frozen

    def contexts(self, after: str = "") -> Iterator[str]:
        return self.below.contexts(after)

    def drop(self, name: str) -> None:
        if name == self.context:
            raise InvalidOperation(f"Context {name!r} has uncommitted changes; drop it after the commit.")
        self.below.drop(name)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        return self.below.scrub(context)

    def close(self) -> None:
        """Do nothing: the storage below stays open."""

    def _visible(self, family: Family, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records below that the overlay does not replace or delete."""
        return (each for each in records if self._own.get(self.id, family, [each.key]) == [None])


def _shown(record: Record | None) -> Record | None:
    return None if record is not None and isinstance(record.value, _Deleted) else record


def _unique(records: Iterator[Record]) -> Iterator[Record]:
    """Yield the first of several records with the same key, unless it is deleted."""
    last = -1
    for record in records:
        if record.key != last and _shown(record):
            yield record
        last = record.key
