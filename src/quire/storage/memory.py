"""The backend that keeps everything in this process: the reference for all others."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock

from quire.errors import InvalidValue, shown
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
    check_context_name,
    conflict,
    fork_by_copy,
)
from quire.storage.table import Row, Table


class MemoryStorage:
    """Records in dictionaries. Several contexts and threads can share one; nothing outlives the process."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._tables: dict[str, Table[bytes]] = {}
        self._lock = RLock()

    def head(self, context: str) -> Head | None:
        check_context_name(context)
        with self._lock:
            return self._heads.get(context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        with self._lock:
            table = self._tables.get(context)
            row = table.get(family, key) if table else None
        return _record(key, row) if row else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        table = self._tables.get(context)
        if table:
            yield from self._locked(table.scan(family, start, stop, reverse=reverse))

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        table = self._tables.get(context)
        if table:
            yield from self._locked(table.members(family, group, after, reverse=reverse))

    def commit(self, context: str, commit: Commit) -> None:
        check_context_name(context)
        with self._lock:
            head = self._heads.get(context)
            if not commit.follows(head):
                raise conflict(context, head, commit.expect)
            for write in commit.writes:
                if write.family not in FAMILIES:
                    raise InvalidValue(f"Family {shown(write.family)} is not one of {', '.join(FAMILIES)}.")
            table = self._tables.setdefault(context, Table())
            for write in commit.writes:
                _apply(table, write)
            self._heads[context] = Head(commit.version, commit.head)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        with self._lock:
            fork_by_copy(self, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        with self._lock:
            names = sorted(name for name in self._heads if name > after)
        yield from names

    def drop(self, context: str) -> None:
        check_context_name(context)
        with self._lock:
            self._heads.pop(context, None)
            self._tables.pop(context, None)

    @contextmanager
    def snapshot(self, context: str) -> Iterator["MemoryStorage"]:
        """The context as it is now, whatever is committed meanwhile."""
        check_context_name(context)
        still = MemoryStorage()
        with self._lock:
            head = self._heads.get(context)
            if head is not None:
                still._heads[context] = head
                still._tables[context] = self._tables[context].copy()
        yield still

    def close(self) -> None:
        """Nothing to release: the records stay for the next handle on this object."""

    def _locked(self, rows: Iterator[tuple[int, Row[bytes]]]) -> Iterator[Record]:
        while True:
            with self._lock:
                found = next(rows, None)
            if found is None:
                return
            yield _record(*found)


def _apply(table: Table[bytes], write: Put | Patch | Delete) -> None:
    match write:
        case Put():
            table.put(write.family, write.key, write.value, write.group, write.order)
        case Patch():
            old = table.get(write.family, write.key)
            if old is not None:
                table.put(write.family, write.key, write.value, old.group, old.order)
        case Delete():
            table.delete(write.family, write.key)


def _record(key: int, row: Row[bytes]) -> Record:
    return Record(key, row.value, row.group, row.order)
