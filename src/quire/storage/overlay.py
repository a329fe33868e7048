"""A small context that was read along with its head: one look instead of many, for what stands behind a network.

A storage that keeps its commits to itself: several operations that reach the storage below as one, or never.

Reads see the overlay's records over those below. `pour()` hands everything over in one commit; an overlay that is
dropped leaves no trace, even when its process dies.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from threading import RLock
from typing import Any, Final, NamedTuple, Protocol

from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.storage.base import (
    ANCHOR,
    FAMILIES,
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
    Write,
    conflict,
)
from quire.storage.memory import Row, Table

SMALL: Final[tuple[Family, ...]] = (SEGMENT, PAGE, TALLY, PIN, NOTE, ANCHOR)
"""The families of small records that opening and drawing a context look at."""


class Reads(Protocol):
    """The part of a storage that reads records."""

    def get(self, context: str, family: Family, key: int) -> Record | None: ...
    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]: ...
    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]: ...


class Opened(NamedTuple):
    """Where a context stands, and what to read it from until it moves."""

    head: Head | None
    reads: Reads


class Nearby:
    """Reads one context as it was at one moment: small records from memory, the others from its storage."""

    def __init__(self, storage: Storage, records: Iterable[tuple[Family, Record]]) -> None:
        self._storage = storage
        self._table: Table[bytes] = Table()
        for family, record in records:
            self._table.put(family, record.key, record.value, record.group, record.order)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if family not in SMALL:
            return self._storage.get(context, family, key)
        row = self._table.get(family, key)
        return None if row is None else _record((key, row))

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        if family not in SMALL:
            return self._storage.scan(context, family, start, stop, reverse=reverse)
        return map(_record, self._table.scan(family, start, stop, reverse=reverse))

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        if family not in SMALL:
            return self._storage.members(context, family, group, after=after, reverse=reverse)
        return map(_record, self._table.members(family, group, after, reverse=reverse))


def _record(item: tuple[int, Row[bytes]]) -> Record:
    key, row = item
    return Record(key, row.value, row.group, row.order)


Rows = Iterator[tuple[int, Row[bytes]]]
Mine = Callable[[Record | None], Rows]
"""The overlay's own rows after that record, or all of them."""
Place = Callable[[Record], Any]


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

    @property
    def start(self) -> Head | None:
        """Where the context below stood when this overlay began."""
        return self._start

    def head(self, context: str) -> Head | None:
        return self._head if context == self.context else self.below.head(context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if context == self.context:
            with self._lock:
                row = self._table.get(family, key)
                if row is not None:
                    return _record_overlay(key, row)
                if (family, key) in self._deleted:
                    return None
        return self.below.get(context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        theirs = self.below.scan(context, family, start, stop, reverse=reverse)
        if context != self.context:
            return theirs

        def mine(last: Record | None) -> Rows:
            first = last.key + 1 if last and not reverse else start
            return self._table.scan(family, first, last.key - 1 if last and reverse else stop, reverse=reverse)

        return self._merged(family, theirs, mine, _key, reverse)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        theirs = self.below.members(context, family, group, after=after, reverse=reverse)
        if context != self.context:
            return theirs

        def mine(last: Record | None) -> Rows:
            return self._table.members(family, group, _slot(last)[1:] if last else after, reverse=reverse)

        return self._merged(family, theirs, mine, _slot, reverse)

    def commit(self, context: str, commit: Commit) -> None:
        if context != self.context:
            self.below.commit(context, commit)
            return
        with self._lock:
            if not commit.follows(self._head):
                raise conflict(context, self._head, commit.expect)
            patched: dict[tuple[Family, int], Record | None] = {}
            for write in commit.writes:  # whatever can fail comes before the first change
                if write.family not in FAMILIES:
                    raise InvalidValue(f"Family {short_repr(write.family)} is not one of {', '.join(FAMILIES)}.")
                if isinstance(write, Patch):
                    patched[write.family, write.key] = self.get(context, write.family, write.key)
            for write in commit.writes:
                self._apply(write, patched)
            self._head = Head(commit.version, commit.head)

    def is_outdated(self) -> bool:
        """Whether someone else wrote below since this overlay began."""
        below = self.below
        if isinstance(below, OverlayStorage) and below.is_outdated():
            return True
        return below.head(self.context) != self._start

    def poured(self) -> Commit | None:
        """Everything as one commit for the storage below, or None if nothing was done."""
        with self._lock:
            if self._head is None or self._head == self._start:
                return None
            writes: list[Write] = [Delete(family, key) for family, key in sorted(self._deleted)]
            for family in FAMILIES:
                for key, row in self._table.scan(family, 0, MAX_KEY, reverse=False):
                    writes.append(Put(family, key, row.value, row.group, row.order))
            expect, seen = (self._start.version, self._start.value) if self._start else (0, b"")
            return Commit(expect, self._head.version, self._head.value, writes, seen)

    def pour(self) -> None:
        """Commit everything below at once. Raises `Conflict` if someone else wrote there since; then nothing is."""
        with self._lock:
            commit = self.poured()
            if commit is not None:
                self.below.commit(self.context, commit)
                self._start, self._table, self._deleted = self._head, Table(), set()

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        if context == self.context:
            raise InvalidOperation(f"Context {context!r} has work that is not committed yet: finish it, then fork.")
        self.below.fork(context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        names = self.below.contexts(after)
        if self._head is None or self.context <= after:
            return names
        return (name for name, _ in groupby(merge(names, [self.context])))

    def drop(self, context: str) -> None:
        if context == self.context:
            raise InvalidOperation(f"Context {context!r} has work that is not committed yet: finish it, then drop it.")
        self.below.drop(context)

    def close(self) -> None:
        """Nothing of its own to release; what lies below stays open."""

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

    def _merged(
        self, family: Family, theirs: Iterator[Record], mine: Mine, place: Place, reverse: bool
    ) -> Iterator[Record]:
        """The records below and mine in one order, as they are when their turn comes."""
        last = None
        for record in theirs:
            for own in self._records(mine(last)):
                if place(own) <= place(record) if reverse else place(own) >= place(record):
                    break
                yield own
            with self._lock:
                row = self._table.get(family, record.key)
                is_gone = (family, record.key) in self._deleted
            own = record if row is None else _record_overlay(record.key, row)
            if not is_gone and place(own) == place(record):
                yield own
            last = record
        yield from self._records(mine(last))

    def _records(self, rows: Rows) -> Iterator[Record]:
        while True:
            with self._lock:
                found = next(rows, None)
            if found is None:
                return
            yield _record_overlay(*found)


def _record_overlay(key: int, row: Row[bytes]) -> Record:
    return Record(key, row.value, row.group, row.order)


def _key(record: Record) -> tuple[int]:
    return (record.key,)


def _slot(record: Record) -> tuple[int | None, bytes, int]:
    return record.group, record.order, record.key
