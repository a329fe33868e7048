"""A small context that was read along with its head: one look instead of many, for what stands behind a network."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from quire.storage.base import (
    ANCHOR,
    MAX_KEY,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    Family,
    Head,
    Record,
    Storage,
)
from quire.storage.table import Row, Table

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
