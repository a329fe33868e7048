"""The small records of a context, read together with its head: one request instead of many over a network."""

from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import Final

from quire.storage.base import (
    ANCHOR,
    MAX_KEY,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    Family,
    Record,
    Storage,
)
from quire.storage.memory import Table, row_record

SMALL: Final[tuple[Family, ...]] = (SEGMENT, PAGE, TALLY, PIN, NOTE, ANCHOR)
"""The families of small records that opening and drawing a context read."""


class PrefetchReader:
    """Reads one context at one version: small records from memory, the others from its storage."""

    def __init__(self, storage: Storage, records: Iterable[tuple[Family, Record]]) -> None:
        self._storage = storage
        self._table: Table[bytes] = Table()
        for family, record in records:
            self._table.put(family, record.key, record.value, record.group, record.order)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if family not in SMALL:
            return self._storage.get(context, family, key)
        row = self._table.get(family, key)
        return None if row is None else row_record(key, row)

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
