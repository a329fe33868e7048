"""The schema of the SQLite backend, its statements, its lock, and the decoding of its rows.

A context has a number. A record's row id is that number and its key in one integer, so every table is clustered by
context and needs no second index. SQLite stores any type in any column, so rows are checked when they are read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Final

import apsw

from quire.errors import Busy, Corrupt, QuireError, ReadOnly, StorageClosed, StorageFailure, short_repr
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
_LAYOUT_FAMILIES: tuple[Family, ...] = ("layout", "sheet")

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
"""The search index. It is derived from the pages, so a damaged one is created again. The body is the first field, which
is the cheapest one. FTS5 merges segments late: with thousands of new pages, early merging takes a fifth more time."""

MIGRATIONS: tuple[str, ...] = (
    # 1: the first schema. Add later steps at the end and never edit one: their number is the schema version.
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
    # 2: the layout of segments in a view
    "".join(map(_table, _LAYOUT_FAMILIES)),
    # 3: commits that are not in the other tables yet; the row id is the number of the context and the version. The
    # trigger stops an older quire that has the file open: it does not know this table, so it would overwrite commits.
    f"""CREATE TABLE commit_log (
        id INTEGER PRIMARY KEY,
        head BLOB NOT NULL,
        writes BLOB NOT NULL,
        checksum INTEGER NOT NULL);
    CREATE TRIGGER commit_log_first BEFORE UPDATE ON context
    WHEN EXISTS (SELECT 1 FROM commit_log
        WHERE id BETWEEN (old.id << {KEY_BITS}) AND ((old.id << {KEY_BITS}) | {MAX_KEY}))
    BEGIN
        SELECT raise(ABORT, 'a newer quire has commits in commit_log: open the file again');
    END;""",
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
"""`GET` and `WITHIN` of an immutable family also take the shifted number of the reader: its origin may own the row."""
CLEAR: dict[Family, str] = {family: f"DELETE FROM {family} WHERE id BETWEEN ? AND ?" for family in FAMILIES}
_NEW_ID = f"((:target << {KEY_BITS}) | (id & {MAX_KEY}))"  # these operators have the same precedence
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
"""The families that a fork copies; it shares the immutable ones."""
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

_LAST_LOGGED: Final = f"""(SELECT max(id) FROM commit_log
    WHERE id BETWEEN (context.id << {KEY_BITS}) AND ((context.id << {KEY_BITS}) | {MAX_KEY}))"""
HEAD: Final = f"SELECT id, version, head, {_LAST_LOGGED} FROM context WHERE name = ?"
"""Selects a context, its head in the tables, and the last row of its commit log."""
HEAD_AND_BEYOND: Final = f"""SELECT id, version, head, {_LAST_LOGGED}, EXISTS (SELECT 1 FROM journal WHERE
        journal.id > ((context.id << {KEY_BITS}) | version) AND journal.id <= ((context.id << {KEY_BITS}) | {MAX_KEY}))
    FROM context WHERE name = ?"""
"""Selects the same, and whether the journal has entries beyond the version in the table `context`."""
NEWEST_HEAD: Final = f"""
    SELECT context.id, coalesce(logged.id & {MAX_KEY}, version), coalesce(logged.head, context.head)
    FROM context LEFT JOIN commit_log AS logged ON logged.id = {_LAST_LOGGED} WHERE name = ?"""
"""Selects a context and its newest head, in one statement: the log may be applied between two."""
MOVE_UNSEEN: Final = "UPDATE context SET version = ?, head = ? WHERE id = ? AND version = ?"
MOVE: Final = f"{MOVE_UNSEEN} AND head = ?"


class StorageLock:
    """Holds the lock of a storage for a block, and turns SQLite's errors into quire's.

    A commit takes the inner lock `held` directly, which is faster, and calls `check` for its errors.
    """

    def __init__(self, path: Path) -> None:
        self.held = RLock()
        self._path = str(path)

    def __enter__(self) -> None:
        self.held.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held.release()
        if error is not None:
            self.check(error)

    def check(self, error: BaseException) -> None:
        """Raise the error of quire for an error of SQLite."""
        if isinstance(error, apsw.Error | UnicodeDecodeError):
            raise self._translate(error) from error

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the errors of a block into quire's without holding the lock."""
        try:
            yield
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._translate(error) from error

    def _translate(self, error: apsw.Error | UnicodeDecodeError) -> QuireError:
        match error:
            case UnicodeDecodeError():
                return Corrupt(f"{self._path!r} is damaged: a text in it cannot be read ({short_repr(error.object)}).")
            case apsw.BusyError() | apsw.LockedError():
                return Busy(f"{self._path!r} is locked by another writer. Retry.")
            case apsw.CorruptError() | apsw.NotADBError():
                return Corrupt(f"{self._path!r} is damaged or no SQLite file: {error}.")
            case apsw.SQLError() if "no such table" in str(error):
                return Corrupt(f"{self._path!r} is damaged: {error}.")
            case apsw.ConnectionClosedError() | apsw.CursorClosedError():
                return StorageClosed(f"The storage {self._path!r} is closed. Open it again.")
            case apsw.ReadOnlyError():
                return ReadOnly(f"{self._path!r} is read-only: {error}.")
            case _:
                return StorageFailure(f"{self._path!r}: {error}.")


Row = tuple[Any, ...]
"""(row id, value, group, order)"""


def record_of(family: Family, row: Row) -> Record:
    """Return the record in a row. Raises `Corrupt` with the table and the record."""
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


def head_of(context: object, version: object, value: object) -> Head:
    """Return the head in a row. Raises `Corrupt` with the context."""
    if type(version) is int and type(value) is bytes:
        return Head(version, value)
    column, found = ("head", value) if type(version) is int else ("version", version)
    raise Corrupt(
        f"The head of context {short_repr(context)} is damaged: its {column} in table context is {short_repr(found)}."
    )


def name_of(name: object) -> str:
    """Return the name in a row. Raises `Corrupt`."""
    if isinstance(name, str):
        return name
    raise Corrupt(f"A context in table context is damaged: its name is {short_repr(name)}.")


def shared_of(number: int, row: Row) -> tuple[int, int, int]:
    """Return the origin of a fork and the ends of the shared records. Raises `Corrupt` with the number of the fork."""
    origin, body, message = row
    for column, found in (("origin", origin), ("body", body), ("message", message)):
        if type(found) is not int:
            raise Corrupt(f"The row of fork {number} in table shared is damaged: its {column} is {short_repr(found)}.")
    if origin >= number:  # an origin is older than its forks; this also prevents a cycle
        raise Corrupt(f"The row of fork {number} in table shared is damaged: its origin is {origin}.")
    return origin, body, message


def context_numbers(db: apsw.Connection, table: str) -> Iterator[int]:
    """Yield the numbers of the contexts that have rows in a table, each with one seek."""
    number = -1
    while (
        row := db.execute(f"SELECT min(id) FROM {table} WHERE id >= ?", ((number + 1) << KEY_BITS,)).get
    ) is not None:
        number = int(row) >> KEY_BITS
        yield number


@contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """Run a block in a transaction that may write, and roll it back if the block raises."""
    try:
        db.execute("BEGIN IMMEDIATE")  # in the `try`: Ctrl-C may come when it has begun
        yield
        db.execute("COMMIT")
    except BaseException:
        roll_back(db)
        raise


@contextmanager
def reading(db: apsw.Connection) -> Iterator[None]:
    """Run a block on one state of the file. Its writes, such as temporary tables, are rolled back."""
    try:
        db.execute("BEGIN")
        yield
    finally:
        roll_back(db)


def roll_back(db: apsw.Connection) -> None:
    """End the open transaction, if any, without hiding the error that is being handled."""
    try:
        if db.in_transaction:
            db.execute("ROLLBACK")
    except apsw.Error:
        pass
