"""A storage in an SQLite database that the caller has open, beside the caller's own tables.

The connection can be a `sqlite3.Connection` or an `apsw.Connection`. Every statement goes through it, because a process
must not open a file with two SQLite libraries: `sqlite3` and quire's `apsw` have one each, and each would lose the
locks of the other. A `sqlite3.Connection` cannot have quire's search functions, so the search index is in memory.

quire's tables have the prefix `quire_`. A commit is a transaction of its own: inside a transaction of the caller it is
refused, because a rollback would remove data that quire reported as stored.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import apsw

from quire.errors import InvalidOperation, InvalidValue, NewerFormat, StorageClosed, StorageFailure
from quire.errors import short_repr as show
from quire.storage.base import (
    MAX_KEY,
    Commit,
    Delete,
    Durability,
    Family,
    Head,
    Put,
    Record,
    check_context_name,
    check_durability,
    check_families,
    conflict,
    fork_by_copy,
    sum_orders,
)
from quire.storage.sqlite.schema import APPLICATION_ID, Row, StorageLock, head_of, name_of, record_of

Connection = sqlite3.Connection | apsw.Connection

_VERSION: Final = 1
_TABLES: Final = (
    "CREATE TABLE quire_schema (version INTEGER NOT NULL)",
    f"INSERT INTO quire_schema VALUES ({_VERSION})",
    """CREATE TABLE quire_context (name BLOB PRIMARY KEY, id INTEGER NOT NULL, version INTEGER NOT NULL,
        head BLOB NOT NULL)""",
    """CREATE TABLE quire_record (context INTEGER NOT NULL, family TEXT NOT NULL, key INTEGER NOT NULL, grp INTEGER,
        ord BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (context, family, key))""",
    "CREATE INDEX quire_record_group ON quire_record (context, family, grp, ord, key) WHERE grp IS NOT NULL",
)
_HEAD: Final = "SELECT version, head FROM quire_context WHERE name = ?"
_ID: Final = "SELECT id FROM quire_context WHERE name = ?"
_SELECT: Final = f"SELECT key, value, grp, ord FROM quire_record WHERE context = ({_ID}) AND family = ?"
_PUT: Final = "INSERT OR REPLACE INTO quire_record (context, family, key, value, grp, ord) VALUES (?, ?, ?, ?, ?, ?)"
_PATCH: Final = "UPDATE quire_record SET value = ? WHERE context = ? AND family = ? AND key = ?"
_DELETE: Final = "DELETE FROM quire_record WHERE context = ? AND family = ? AND key = ?"
_CHUNK: Final = 256
_MEMORY: Final = ":memory:"
_locks: "WeakValueDictionary[int, StorageLock]" = WeakValueDictionary()
"""The lock of each connection by its id: storages can share a connection. They keep it alive, so its id stays valid."""


class SQLiteConnectionStorage:
    """Records in the database of a connection that the caller has: `sqlite3.Connection` or `apsw.Connection`.

    The caller closes the connection. While a call of quire runs, no other thread may use it. The settings of the
    connection (journal mode, `synchronous`, busy timeout) stay as they are. Other processes can write to the same file
    in the same way.
    """

    def __init__(self, connection: Connection, *, durability: Durability = "normal", create: bool = True) -> None:
        if not isinstance(connection, sqlite3.Connection | apsw.Connection):
            raise InvalidValue(
                f"is {show(connection)}; a sqlite3.Connection or an apsw.Connection is needed.", argument="connection"
            )
        self.durability = check_durability(durability)
        self._connection = connection
        self._closed = False
        self._name = show(connection)  # for errors of the first statement, which reads the path
        self._lock = StorageLock(Path(self._name))
        with self._lock:
            files = [row[2] for row in self._run("PRAGMA database_list") if row[1] in ("main", b"main")]
            path = files[0] if files else ""
            self._name = (path.decode() if isinstance(path, bytes) else path) or _MEMORY
        self._lock = _locks.setdefault(id(connection), StorageLock(Path(self._name)))
        with self._lock:
            self._prepare(create)

    def __repr__(self) -> str:
        return f"SQLiteConnectionStorage({self._name!r})"

    def head(self, context: str) -> Head | None:
        with self._lock:
            rows = self._run(_HEAD, (_encode(context),))
        return head_of(context, *rows[0]) if rows else None

    def get(self, context: str, family: Family, key: int) -> Record | None:
        if not 0 <= key <= MAX_KEY:
            return None
        with self._lock:
            rows = self._run(f"{_SELECT} AND key = ?", (_encode(context), family, key))
        return record_of(family, rows[0]) if rows else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        sql = f"{_SELECT} AND key BETWEEN ? AND ? ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT {_CHUNK}"
        start, stop = max(start, 0), min(stop, MAX_KEY)
        while start <= stop:
            with self._lock:
                rows = self._run(sql, (_encode(context), family, start, stop))
            yield from (record_of(family, row) for row in rows)
            if len(rows) < _CHUNK:
                return
            start, stop = (start, rows[-1][0] - 1) if reverse else (rows[-1][0] + 1, stop)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        order, beyond = ("DESC", "<") if reverse else ("ASC", ">")
        while True:
            place = f" AND (ord, key) {beyond} (?, ?)" if after else ""
            sql = f"{_SELECT} AND grp = ?{place} ORDER BY ord {order}, key {order} LIMIT {_CHUNK}"
            with self._lock:
                rows = self._run(sql, (_encode(context), family, group, *(after or ())))
            yield from (record_of(family, row) for row in rows)
            if len(rows) < _CHUNK:
                return
            after = rows[-1][3], rows[-1][0]

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        sql = f"SELECT ord FROM quire_record WHERE context = ({_ID}) AND family = ? AND grp = ?"
        with self._lock:
            return sum_orders(row[0] for row in self._run(sql, (_encode(context), family, group)))

    def commit(self, context: str, commit: Commit) -> None:
        name = _encode(context)
        check_families(commit.writes)
        with self._lock, self._transaction():
            rows = self._run(_HEAD, (name,))
            found = head_of(context, *rows[0]) if rows else None
            if not commit.follows(found):
                raise conflict(context, found, commit.expect)
            if found is None:
                new = "INSERT INTO quire_context SELECT ?, coalesce(max(id), 0) + 1, ?, ? FROM quire_context"
                self._run(new, (name, commit.version, commit.head))
            else:
                move = "UPDATE quire_context SET version = ?, head = ? WHERE name = ?"
                self._run(move, (commit.version, commit.head, name))
            number = self._run(_ID, (name,))[0][0]
            for write in commit.writes:
                place = (number, write.family, write.key)
                if isinstance(write, Put):
                    self._run(_PUT, (*place, write.value, write.group, write.order))
                elif isinstance(write, Delete):
                    self._run(_DELETE, place)
                else:
                    self._run(_PATCH, (write.value, *place))

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        fork_by_copy(self, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        place = after.encode("utf-8", "surrogatepass")
        while True:
            with self._lock:
                sql = f"SELECT name FROM quire_context WHERE name > ? ORDER BY name LIMIT {_CHUNK}"
                rows = self._run(sql, (place,))
                names = [name_of(name.decode() if isinstance(name, bytes) else name) for (name,) in rows]
            yield from names
            if len(rows) < _CHUNK:
                return
            place = rows[-1][0]

    def drop(self, context: str) -> None:
        name = (_encode(context),)
        with self._lock, self._transaction():
            self._run(f"DELETE FROM quire_record WHERE context = ({_ID})", name)
            self._run("DELETE FROM quire_context WHERE name = ?", name)

    def scrub(self, contexts: Sequence[str] | None) -> str | None:
        """Return what the owner of the database has to do: quire does not rewrite a file with other tables."""
        if self._name == _MEMORY:
            return None
        return (
            f"Free pages of {self._name!r} keep deleted bytes until its owner runs VACUUM, and after it, in WAL mode,"
            " PRAGMA wal_checkpoint(TRUNCATE)."
        )

    def close(self) -> None:
        """Stop using the connection after the running call. It stays open."""
        with self._lock:
            self._closed = True

    def _prepare(self, create: bool) -> None:
        """Create the tables if they are missing, and check that this quire can use them."""
        if self._run("PRAGMA application_id") == [(APPLICATION_ID,)]:
            raise InvalidValue(
                f"{self._name!r} is a store of quire. Close the connection, and open the store by its path."
            )
        if self.durability == "full" and self._run("PRAGMA synchronous")[0][0] < 2:
            raise InvalidValue(
                "is 'full', but the connection has a synchronous below FULL. Run PRAGMA synchronous=FULL on it.",
                argument="durability",
            )
        made = "SELECT count(*) FROM sqlite_master WHERE name = 'quire_schema'"
        if self._run(made) == [(0,)]:
            if not create:
                raise StorageFailure(f"There is no store in the database {self._name!r}.")
            with self._transaction():
                if self._run(made) == [(0,)]:  # another process may have created them
                    for sql in _TABLES:
                        self._run(sql)
        version = self._run("SELECT version FROM quire_schema")[0][0]
        if version > _VERSION:
            raise NewerFormat(
                f"{self._name!r} has schema {version}; this quire reads up to {_VERSION}. Install a newer quire."
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a block in a transaction of its own. Raises `InvalidOperation` if the caller has one open."""
        if self._is_in_transaction():
            raise InvalidOperation(
                f"The connection to {self._name!r} is inside a transaction of its owner: commit it or roll it back"
                " before quire writes. A connection of sqlite3 starts one at the first change, unless it has"
                " isolation_level=None. With autocommit=False it always has one: connect with autocommit=True."
            )
        is_refused = False
        try:
            try:
                self._run("BEGIN IMMEDIATE")  # if Ctrl-C comes while it waits, it raises after the transaction began
            except Exception:
                is_refused = True
                raise
            yield
            self._run("COMMIT")
        except BaseException:
            if not is_refused and self._is_in_transaction():
                self._run("ROLLBACK")
            raise

    def _is_in_transaction(self) -> bool:
        try:
            return self._connection.in_transaction
        except sqlite3.Error as error:  # the connection is closed
            raise self._translate(error) from error

    def _run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement, as plain tuples. The errors are those of apsw."""
        if self._closed:
            raise StorageClosed(f"The storage {self._name!r} is closed. Open it again.")
        if isinstance(self._connection, apsw.Connection):
            cursor = self._connection.cursor()
            cursor.row_trace = lambda _, row: row
            return cursor.execute(sql, tuple(values)).fetchall()
        try:
            rows = self._connection.cursor()
            rows.row_factory = None
            return rows.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None:
            found = apsw.exception_for(code)
            return type(found)(str(error))
        if "closed" in str(error):
            return StorageClosed(f"The connection to {self._name!r} is closed: open the storage with a new one.")
        if "thread" in str(error):
            return InvalidOperation(
                f"The connection to {self._name!r} belongs to another thread: connect with check_same_thread=False, and"
                " use it from one thread at a time."
            )
        return StorageFailure(f"{self._name!r}: {error}.")


def _encode(context: str) -> bytes:
    """Return a name as it is stored: its bytes order like its code points, in a database of any encoding."""
    return check_context_name(context).encode()
