"""Ordered records of one context in memory: what the memory backend holds and what a log is replayed into.

Values are of any kind: bytes for the memory backend, places in a log for the others.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from quire.storage.base import FAMILIES, Family

V = TypeVar("V")
Slot = tuple[bytes, int]
"""A record's place in its group: (order, key)."""


class Row(NamedTuple, Generic[V]):
    """A record as the table keeps it."""

    value: V
    group: int | None
    order: bytes


class Table(Generic[V]):
    """The records of one context by family and key, with their groups in order."""

    def __init__(self) -> None:
        self._rows: dict[Family, dict[int, Row[V]]] = {family: {} for family in FAMILIES}
        self._keys: dict[Family, list[int]] = {family: [] for family in FAMILIES}
        self._groups: dict[tuple[Family, int], list[Slot]] = {}

    def copy(self) -> "Table[V]":
        """The same rows in a table of its own."""
        other: Table[V] = Table()
        other._rows = {family: dict(rows) for family, rows in self._rows.items()}
        other._keys = {family: list(keys) for family, keys in self._keys.items()}
        other._groups = {group: list(slots) for group, slots in self._groups.items()}
        return other

    def get(self, family: Family, key: int) -> Row[V] | None:
        """One row, or None."""
        return self._rows[family].get(key)

    def keys(self) -> Iterator[tuple[Family, int]]:
        """The families and keys of all rows."""
        return ((family, key) for family, rows in self._rows.items() for key in rows)

    def put(self, family: Family, key: int, value: V, group: int | None, order: bytes) -> None:
        """Add or replace a row."""
        rows = self._rows[family]
        old = rows.get(key)
        if old is None:
            _insert(self._keys[family], key)
        if old is None or (old.group, old.order) != (group, order):
            self._leave(family, key, old)
            if group is not None:
                _insert(self._groups.setdefault((family, group), []), (order, key))
        rows[key] = Row(value, group, order)

    def delete(self, family: Family, key: int) -> None:
        """Remove a row if it is there."""
        old = self._rows[family].pop(key, None)
        if old is not None:
            self._leave(family, key, old)
            keys = self._keys[family]
            del keys[bisect_left(keys, key)]

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[tuple[int, Row[V]]]:
        """The rows with start ≤ key ≤ stop, by key; rows that change while it runs are met as they then are."""
        keys, rows = self._keys[family], self._rows[family]
        position = bisect_right(keys, stop) - 1 if reverse else bisect_left(keys, start)
        while 0 <= position < len(keys) and start <= keys[position] <= stop:
            key = keys[position]
            yield key, rows[key]
            position = bisect_left(keys, key) - 1 if reverse else bisect_right(keys, key)

    def members(self, family: Family, group: int, after: Slot | None, *, reverse: bool) -> Iterator[tuple[int, Row[V]]]:
        """The rows of a group in order, those after the given place."""
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

    def _leave(self, family: Family, key: int, old: Row[V] | None) -> None:
        if old is not None and old.group is not None:
            slots = self._groups[family, old.group]
            del slots[bisect_left(slots, (old.order, key))]
            if not slots:
                del self._groups[family, old.group]


Item = TypeVar("Item", int, Slot)


def _insert(items: list[Item], item: Item) -> None:
    """Keep the list sorted; appending, the common case, is free."""
    if not items or items[-1] < item:
        items.append(item)
    else:
        insort(items, item)
