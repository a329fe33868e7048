"""A storage that keeps its commits to itself: several operations that reach the storage below as one, or never.

Reads see the overlay's records over those below. `pour()` hands everything over in one commit; an overlay that is
dropped leaves no trace, even when its process dies.
"""

from collections.abc import Iterator, Mapping
from heapq import merge
from threading import RLock

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
    conflict,
)
from quire.storage.table import Table


class OverlayStorage:
    """One context of another storage, with commits of its own on top."""

    def __init__(self, below: Storage, context: str) -> None:
        self.below = below
        self.context = context
        self._start = below.head(context)
        self._head = self._start
        self._table: Table[bytes] = Table()
        self._deleted: set[tuple[Family, int]] = set()
        self._lock = RLock()

    def head(self, context: str) -> Head | None:
        return self._head if context == self.context else self.below.head(context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if context == self.context:
            with self._lock:
                row = self._table.get(family, key)
                if row is not None:
                    return Record(key, row.value, row.group, row.order)
                if (family, key) in self._deleted:
                    return None
        return self.below.get(context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        theirs = self.below.scan(context, family, start, stop, reverse=reverse)
        if context != self.context:
            return theirs
        with self._lock:
            rows = list(self._table.scan(family, start, stop, reverse=reverse))
        mine = (Record(key, row.value, row.group, row.order) for key, row in rows)
        return merge(mine, self._not_mine(family, theirs), key=_key, reverse=reverse)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        theirs = self.below.members(context, family, group, after=after, reverse=reverse)
        if context != self.context:
            return theirs
        with self._lock:
            rows = list(self._table.members(family, group, after, reverse=reverse))
        mine = (Record(key, row.value, row.group, row.order) for key, row in rows)
        return merge(mine, self._not_mine(family, theirs), key=_slot, reverse=reverse)

    def commit(self, context: str, commit: Commit) -> None:
        if context != self.context:
            self.below.commit(context, commit)
            return
        with self._lock:
            if not commit.follows(self._head):
                raise conflict(context, self._head, commit.expect)
            for write in commit.writes:
                self._apply(write)
            self._head = Head(commit.version, commit.head)

    def pour(self) -> None:
        """Commit everything below at once. Raises `Conflict` if someone else wrote there since; then nothing is."""
        if self._head is None or self._head == self._start:
            return
        writes: list[Write] = [Delete(family, key) for family, key in sorted(self._deleted)]
        for family in FAMILIES:
            for key, row in self._table.scan(family, 0, MAX_KEY, reverse=False):
                writes.append(Put(family, key, row.value, row.group, row.order))
        expect, seen = (self._start.version, self._start.value) if self._start else (0, b"")
        self.below.commit(self.context, Commit(expect, self._head.version, self._head.value, writes, seen))

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        if context == self.context:
            raise InvalidOperation(f"Context {context!r} has work that is not committed yet: finish it, then fork.")
        self.below.fork(context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        return self.below.contexts(after)

    def drop(self, context: str) -> None:
        if context == self.context:
            raise InvalidOperation(f"Context {context!r} has work that is not committed yet: finish it, then drop it.")
        self.below.drop(context)

    def close(self) -> None:
        """Nothing of its own to release; what lies below stays open."""

    def _apply(self, write: Write) -> None:
        family, key = write.family, write.key
        match write:
            case Delete():
                self._table.delete(family, key)
                self._deleted.add((family, key))
            case Put():
                self._table.put(family, key, write.value, write.group, write.order)
                self._deleted.discard((family, key))
            case Patch():
                old = self.get(self.context, family, key)
                if old is not None:
                    self._table.put(family, key, write.value, old.group, old.order)

    def _not_mine(self, family: Family, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            if self._table.get(family, record.key) is None and (family, record.key) not in self._deleted:
                yield record


def _key(record: Record) -> int:
    return record.key


def _slot(record: Record) -> tuple[bytes, int]:
    return record.order, record.key
