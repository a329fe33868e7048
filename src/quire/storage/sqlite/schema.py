"""The SQLite backend's tables and statements, made from the list of families.

A context has a number, and a record's row id is that number and its key in one integer, so every table is clustered
by context and needs no second index.

The lock of an SQLite storage, and its errors in our words.

Rows of an SQLite file as values. SQLite keeps anything in any column, so what comes out is looked at first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Final

import apsw

from quire.errors import Busy, Corrupt, QuireError, StorageClosed, StorageFailure, short_repr
from quire.storage.base import FAMILIES, GROUPED, IMMUTABLE, JOURNAL, KEY_BITS, MAX_KEY, Family, Head, Record

APPLICATION_ID: Final = 0x71756972  # "quir"
GROUP_BITS: Final = KEY_BITS + 1
MAX_CONTEXT: Final = (1 << (63 - GROUP_BITS)) - 1
GROUP_MASK: Final = (1 << GROUP_BITS) - 1


def _table(family: Family) -> str:
    if family not in GROUPED:
        return f"CREATE TABLE {family} (id INTEGER PRIMARY KEY, value BLOB NOT NULL);"
    return f"""CREATE TABLE {family} (id INTEGER PRIMARY KEY, grp INTEGER, ord BLOB NOT NULL, value BLOB NOT NULL);
        CREATE INDEX {family}_group ON {family} (grp, ord) WHERE grp IS NOT NULL;"""


_FIRST_FAMILIES: tuple[Family, ...] = (
    "segment",
    "page",
    "body",
    "journal",
    "tally",
    "pin",
    "message",
    "call",
    "note",
    "anchor",
    "vector",
)

SEARCH: Final = """CREATE VIRTUAL TABLE search USING fts5 (
        body, name, description, parts, content = '', contentless_delete = 1, tokenize = 'ascii');
    INSERT INTO search (search, rank) VALUES ('automerge', 16), ('crisismerge', 32);
    CREATE TABLE search_state (
        id INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        identity BLOB NOT NULL,
        reached INTEGER NOT NULL,
        serial INTEGER NOT NULL);
    CREATE TABLE search_size (id INTEGER PRIMARY KEY, sizes BLOB NOT NULL);"""
"""The search index: derived, so it is made anew when it is damaged. The body is the first field, the cheapest one.
Its parts are merged late: pages come in by the thousand, and merging often costs a fifth of that."""

MIGRATIONS: tuple[str, ...] = (
    # 1: the first schema. Later steps are appended and never edited; the number of steps is the schema version.
    """CREATE TABLE context (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        head BLOB NOT NULL);
    CREATE TABLE shared (
        id INTEGER PRIMARY KEY,
        origin INTEGER NOT NULL,
        body INTEGER NOT NULL,
        message INTEGER NOT NULL);
    CREATE INDEX shared_body ON shared (origin, body);
    CREATE INDEX shared_message ON shared (origin, message);
    CREATE TABLE gone_body (id INTEGER PRIMARY KEY);
    CREATE TABLE gone_message (id INTEGER PRIMARY KEY);"""
    + "".join(map(_table, _FIRST_FAMILIES))
    + SEARCH,
)

PUT: dict[Family, str] = {
    family: f"INSERT INTO {family} (id, grp, ord, value) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET grp = excluded.grp, ord = excluded.ord, value = excluded.value"
    if family in GROUPED
    else f"INSERT INTO {family} (id, value) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value"
    for family in FAMILIES
}
PATCH: dict[Family, str] = {family: f"UPDATE {family} SET value = ? WHERE id = ?" for family in FAMILIES}
DELETE: dict[Family, str] = {family: f"DELETE FROM {family} WHERE id = ?" for family in FAMILIES}
COLUMNS: dict[Family, str] = {
    family: "id, value, grp, ord" if family in GROUPED else "id, value, NULL, x''" for family in FAMILIES
}
_NOT_GONE: dict[Family, str] = {
    family: f" AND NOT EXISTS (SELECT 1 FROM gone_{family} AS gone WHERE gone.id = (? | ({family}.id & {MAX_KEY})))"
    if family in IMMUTABLE
    else ""
    for family in FAMILIES
}
GET: dict[Family, str] = {
    family: f"SELECT {COLUMNS[family].removeprefix('id, ')} FROM {family} WHERE id = ?{_NOT_GONE[family]}"
    for family in FAMILIES
}
WITHIN: dict[Family, str] = {
    family: f"SELECT {COLUMNS[family]} FROM {family} WHERE id BETWEEN ? AND ?{_NOT_GONE[family]}" for family in FAMILIES
}
"""`GET` and `WITHIN` of an immutable family also take the reader's number, shifted: the row may be another's."""
CLEAR: dict[Family, str] = {family: f"DELETE FROM {family} WHERE id BETWEEN ? AND ?" for family in FAMILIES}
_NEW_ID = f"((:target << {KEY_BITS}) | (id & {MAX_KEY}))"  # all these operators bind alike: from left to right
_NEW_GROUP = f"((:target << {GROUP_BITS}) | (grp & {GROUP_MASK}))"
_SOURCE = f"id BETWEEN (:source << {KEY_BITS}) AND ((:source << {KEY_BITS}) | :last) ORDER BY id"
COPY: dict[Family, str] = {
    family: (
        f"INSERT INTO {family} (id, grp, ord, value) SELECT {_NEW_ID}, {_NEW_GROUP}, ord, value"
        if family in GROUPED
        else f"INSERT INTO {family} (id, value) SELECT {_NEW_ID}, value"
    )
    + f" FROM {family} WHERE {_SOURCE}"
    for family in FAMILIES
    if family not in IMMUTABLE and family != JOURNAL
}
"""What a fork copies; the immutable families it shares."""
COPY_GONE: dict[Family, str] = {
    family: f"INSERT INTO gone_{family} (id) SELECT {_NEW_ID} FROM gone_{family} WHERE {_SOURCE}"
    for family in IMMUTABLE
}
ERASE: dict[Family, str] = {family: f"INSERT OR IGNORE INTO gone_{family} (id) VALUES (?)" for family in IMMUTABLE}
CLEAR_GONE: dict[Family, str] = {family: f"DELETE FROM gone_{family} WHERE id BETWEEN ? AND ?" for family in IMMUTABLE}
SWEEP: dict[Family, str] = {
    family: f"DELETE FROM {family} WHERE id IN (SELECT id FROM gone_{family} WHERE id BETWEEN ? AND ?)"
    for family in IMMUTABLE
}

HEAD_AND_BEYOND: Final = f"""SELECT id, version, head, EXISTS (SELECT 1 FROM journal WHERE
        journal.id > ((context.id << {KEY_BITS}) | version) AND journal.id <= ((context.id << {KEY_BITS}) | {MAX_KEY}))
    FROM context WHERE name = ?"""
"""The head of a context, and whether its journal goes on beyond it."""
MOVE_UNSEEN: Final = "UPDATE context SET version = ?, head = ? WHERE id = ? AND version = ?"
MOVE: Final = f"{MOVE_UNSEEN} AND head = ?"


class Guard:
    """Holds the storage's lock for a block and turns SQLite's errors into ours."""

    def __init__(self, path: Path) -> None:
        self._lock = RLock()
        self._path = str(path)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, apsw.Error | UnicodeDecodeError):
            raise self._ours(error) from error

    @contextmanager
    def errors(self) -> Iterator[None]:
        """A block whose errors of SQLite's become ours, without the lock."""
        try:
            yield
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._ours(error) from error

    def _ours(self, error: apsw.Error | UnicodeDecodeError) -> QuireError:
        match error:
            case UnicodeDecodeError():
                return Corrupt(f"{self._path!r} is damaged: a text in it cannot be read ({short_repr(error.object)}).")
            case apsw.BusyError() | apsw.LockedError():
                return Busy(f"{self._path!r} is locked by another writer: retry.")
            case apsw.CorruptError() | apsw.NotADBError():
                return Corrupt(f"{self._path!r} is damaged or no SQLite file: {error}.")
            case apsw.SQLError() if "no such table" in str(error):
                return Corrupt(f"{self._path!r} is damaged: {error}.")
            case apsw.ConnectionClosedError() | apsw.CursorClosedError():
                return StorageClosed(f"The storage {self._path!r} is closed: open it again.")
            case _:
                return StorageFailure(f"{self._path!r}: {error}.")


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
    raise Corrupt(
        f"{family} record {number & MAX_KEY} is damaged: its {column} in table {family} is {short_repr(found)}."
    )


def size_of(row: Row) -> int:
    """How much a row holds, whatever it is."""
    return len(row[1]) if type(row[1]) is bytes else 0


def head_of(context: object, version: object, value: object) -> Head:
    """The head in a row. Raises `Corrupt` with the context."""
    if type(version) is int and type(value) is bytes:
        return Head(version, value)
    column, found = ("head", value) if type(version) is int else ("version", version)
    raise Corrupt(
        f"The head of context {short_repr(context)} is damaged: its {column} in table context is {short_repr(found)}."
    )


def name_of(name: object) -> str:
    """The name in a row. Raises `Corrupt`."""
    if isinstance(name, str):
        return name
    raise Corrupt(f"A context in table context is damaged: its name is {short_repr(name)}.")


def shared_of(number: int, row: Row) -> tuple[int, int, int]:
    """The origin of a fork and the ends of what they share. Raises `Corrupt` with the number of the fork."""
    origin, body, message = row
    for column, found in (("origin", origin), ("body", body), ("message", message)):
        if type(found) is not int:
            raise Corrupt(f"The row of fork {number} in table shared is damaged: its {column} is {short_repr(found)}.")
    if origin >= number:  # an origin is older than its forks: no row leads back to itself
        raise Corrupt(f"The row of fork {number} in table shared is damaged: its origin is {origin}.")
    return origin, body, message
