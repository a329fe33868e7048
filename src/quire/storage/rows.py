"""Rows of an SQLite file as values. SQLite keeps anything in any column, so what comes out is looked at first."""

from typing import Any

from quire.errors import Corrupt, shown
from quire.storage.base import MAX_KEY, Family, Head, Record
from quire.storage.schema import GROUP_MASK

Row = tuple[Any, ...]
"""(row id, value, group, order)"""


def record_of(family: Family, row: Row) -> Record:
    """The record in a row. Raises `Corrupt` with the table and the record."""
    number, value, group, order = row
    if type(value) is bytes and type(order) is bytes:
        if group is None:
            return Record(number & MAX_KEY, value, None, order)
        if type(group) is int:
            return Record(number & MAX_KEY, value, group & GROUP_MASK, order)
    for column, found, kind in (("value", value, bytes), ("ord", order, bytes), ("grp", group, int)):
        if type(found) is not kind and not (column == "grp" and found is None):
            break
    raise Corrupt(f"{family} record {number & MAX_KEY} is damaged: its {column} in table {family} is {shown(found)}.")


def size_of(row: Row) -> int:
    """How much a row holds, whatever it is."""
    return len(row[1]) if type(row[1]) is bytes else 0


def head_of(context: object, version: object, value: object) -> Head:
    """The head in a row. Raises `Corrupt` with the context."""
    if type(version) is int and type(value) is bytes:
        return Head(version, value)
    column, found = ("head", value) if type(version) is int else ("version", version)
    raise Corrupt(f"The head of context {shown(context)} is damaged: its {column} in table context is {shown(found)}.")


def name_of(name: object) -> str:
    """The name in a row. Raises `Corrupt`."""
    if isinstance(name, str):
        return name
    raise Corrupt(f"A context in table context is damaged: its name is {shown(name)}.")


def shared_of(number: int, row: Row) -> tuple[int, int, int]:
    """The origin of a fork and the ends of what they share. Raises `Corrupt` with the number of the fork."""
    origin, body, message = row
    for column, found in (("origin", origin), ("body", body), ("message", message)):
        if type(found) is not int:
            raise Corrupt(f"The row of fork {number} in table shared is damaged: its {column} is {shown(found)}.")
    if origin >= number:  # an origin is older than its forks: no row leads back to itself
        raise Corrupt(f"The row of fork {number} in table shared is damaged: its origin is {origin}.")
    return origin, body, message
