"""A storage that holds back commits: several operations reach the storage below as one commit, or never.

Reads see the overlay's records on top of those below. `as_commit()` returns everything as one commit for the storage
below. A discarded overlay leaves no trace there, even if its process dies.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from heapq import merge
from itertools import groupby
from threading import RLock
from typing import Any

from quire.errors import InvalidOperation
from quire.storage.base import (
    FAMILIES,
    MAX_KEY,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Storage,
    Write,
    check_families,
    conflict,
    snapshot_of,
    sum_orders,
)
from quire.storage.memory import Row, Table, row_record, stream_records

Rows = Iterator[tuple[int, Row[bytes]]]
RowsAfter = Callable[[Record | None], Rows]
"""Returns the overlay's own rows after a record, or all of them."""
SortKey = Callable[[Record], Any]


class OverlayStorage:
    """One context of another storage, with its own commits on top."""

    def __init__(self, below: Storage, context: str) -> None:
        self.below = below
        self.context = context
        self.start = below.head(context)
        """The head of the context below when this overlay was created."""
        self._head = self.start
        self._table: Table[bytes] = Table()
        self._deleted: set[tuple[Family, int]] = set()
        self._lock = RLock()
        self._unfinished: tuple[Commit, Mapping[tuple[Family, int], Record | None]] | None = None
        """A commit in progress, with the records that it patches. After an interrupt, the next call completes it."""

    def head(self, context: str) -> Head | None:
        if context != self.context:
            return self.below.head(context)
        with self._lock:
            self._finish()
            return self._head

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if context == self.context:
            with self._lock:
                self._finish()
                row = self._table.get(family, key)
                if row is not None:
                    return row_record(key, row)
                if (family, key) in self._deleted:
                    return None
        return self.below.get(context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        lower = self.below.scan(context, family, start, stop, reverse=reverse)
        if context != self.context:
            return lower

        def own_rows(last: Record | None) -> Rows:
            first = last.key + 1 if last and not reverse else start
            return self._table.scan(family, first, last.key - 1 if last and reverse else stop, reverse=reverse)

        return self._merge_records(family, lower, own_rows, _key, reverse)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        lower = self.below.members(context, family, group, after=after, reverse=reverse)
        if context != self.context:
            return lower

        def own_rows(last: Record | None) -> Rows:
            return self._table.members(family, group, _slot(last)[1:] if last else after, reverse=reverse)

        return self._merge_records(family, lower, own_rows, _slot, reverse)

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        return sum_orders(record.order for record in self.members(context, family, group))

    def commit(self, context: str, commit: Commit) -> None:
        if context != self.context:
            self.below.commit(context, commit)
            return
        with self._lock:
            self._finish()
            if not commit.follows(self._head):
                raise conflict(context, self._head, commit.expect)
            patched: dict[tuple[Family, int], Record | None] = {}
            check_families(commit.writes)  # everything that can fail comes before the first change
            for write in commit.writes:
                if isinstance(write, Patch):
                    patched[write.family, write.key] = self.get(context, write.family, write.key)
            self._unfinished = commit, patched
            self._finish()

    def _finish(self) -> None:
        """Complete the unfinished commit, if there is one. The caller holds the lock."""
        if self._unfinished is None:
            return
        commit, patched = self._unfinished
        for write in commit.writes:
            self._apply(write, patched)
        self._head = Head(commit.version, commit.head)
        self._unfinished = None

    def is_outdated(self) -> bool:
        """Return whether another writer committed below since this overlay was created."""
        below = self.below
        if isinstance(below, OverlayStorage) and below.is_outdated():
            return True
        return below.head(self.context) != self.start

    def as_commit(self) -> Commit | None:
        """Return all changes as one commit for the storage below, or None if nothing changed."""
        with self._lock:
            self._finish()
            if self._head is None or self._head == self.start:
                return None
            writes: list[Write] = [Delete(family, key) for family, key in sorted(self._deleted)]
            for family in FAMILIES:
                for key, row in self._table.scan(family, 0, MAX_KEY, reverse=False):
                    writes.append(Put(family, key, row.value, row.group, row.order))
            expect, seen = (self.start.version, self.start.value) if self.start else (0, b"")
            return Commit(expect, self._head.version, self._head.value, writes, seen)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        if context == self.context:
            raise self._uncommitted_error("fork")
        self.below.fork(context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        names = self.below.contexts(after)
        if self._head is None or self.context <= after:
            return names
        return (name for name, _ in groupby(merge(names, [self.context])))

    def drop(self, context: str) -> None:
        if context == self.context:
            raise self._uncommitted_error("drop")
        self.below.drop(context)

    @contextmanager
    def snapshot(self, context: str) -> Iterator["OverlayStorage"]:
        """Return a block in which the context does not change. Raises `Conflict` if it has changed below."""
        with snapshot_of(self.below, context) as below:
            with self._lock:
                self._finish()
                if context == self.context and (head := below.head(context)) != self.start:
                    raise conflict(context, head, self.start.version if self.start else 0)
                frozen = copy(self)
                frozen.below = below
                frozen._table, frozen._deleted = self._table.copy(), set(self._deleted)
            yield frozen

    def close(self) -> None:
        """Do nothing: the storage below stays open."""

    def _uncommitted_error(self, operation: str) -> InvalidOperation:
        return InvalidOperation(f"Context {self.context!r} has uncommitted changes; {operation} it after the commit.")

    def _apply(self, write: Write, patched: Mapping[tuple[Family, int], Record | None]) -> None:
        family, key = write.family, write.key
        match write:
            case Delete():
                self._table.delete(family, key)
                self._deleted.add((family, key))
            case Put():
                self._table.put(family, key, write.value, write.group, write.order)
                self._deleted.discard((family, key))
            case Patch():
                old: Row[bytes] | Record | None = self._table.get(family, key)
                if old is None and (family, key) not in self._deleted:
                    old = patched[family, key]
                if old is not None:
                    self._table.put(family, key, write.value, old.group, old.order)

    def _merge_records(
        self, family: Family, lower: Iterator[Record], own_rows: RowsAfter, sort_key: SortKey, reverse: bool
    ) -> Iterator[Record]:
        """Yield the records of both layers in one order. Each record is read when the iteration reaches it."""
        last = None
        for record in lower:
            for own in stream_records(own_rows(last), self._lock):
                if sort_key(own) <= sort_key(record) if reverse else sort_key(own) >= sort_key(record):
                    break
                yield own
            with self._lock:
                row = self._table.get(family, record.key)
                is_deleted = (family, record.key) in self._deleted
            own = record if row is None else row_record(record.key, row)
            if not is_deleted and sort_key(own) == sort_key(record):
                yield own
            last = record
        yield from stream_records(own_rows(last), self._lock)


def _key(record: Record) -> tuple[int]:
    return (record.key,)


def _slot(record: Record) -> tuple[int | None, bytes, int]:
    return record.group, record.order, record.key
