"""SQLite: a file of its own, the default storage, or beside the tables of a caller's open connection."""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from time import monotonic, sleep
from typing import Any, Final, TypeVar, get_args
from weakref import WeakValueDictionary

import apsw

from quire.errors import (
    Busy,
    Corrupt,
    Hint,
    InvalidOperation,
    InvalidValue,
    QuireError,
    ReadOnly,
    StorageClosed,
    StorageFailure,
    short_repr,
)
from quire.storage.base import Durability, check_durability
from quire.storage.contract import CODES, Commit, Flaw, Id, Storage
from quire.storage.memory import copy_to_memory
from quire.storage.paths import check_path, make_private
from quire.storage.sql import ENTRY, VERSION, Database, Row, Run, SqlStorage, Statements, check_version
from quire.storage.wal import has_lost_commits

T = TypeVar("T")
Connection = sqlite3.Connection | apsw.Connection
APPLICATION_ID: Final = 0x71756972  # "quir"
_SCHEMA: Final = (
    "CREATE TABLE {q}context (id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, name BLOB)",
    "CREATE UNIQUE INDEX {q}context_name ON {q}context (tenant, name)",
    """CREATE TABLE {q}entry (context INTEGER NOT NULL, seq INTEGER NOT NULL, head BLOB NOT NULL, entry BLOB NOT NULL,
        PRIMARY KEY (context, seq)) WITHOUT ROWID""",
    """CREATE TABLE {q}record (context INTEGER NOT NULL, family INTEGER NOT NULL, key INTEGER NOT NULL, parent INTEGER,
        rank INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (context, family, key))""",
    "CREATE INDEX {q}record_parent ON {q}record (context, parent, rank, key) WHERE parent IS NOT NULL",
)
_PREVIOUS: Final = "SELECT seq FROM {q}entry WHERE context = ? AND seq >= ? ORDER BY seq LIMIT 2"
_PUT: Final = "INSERT OR REPLACE INTO {q}record (context, family, key, parent, rank, value) VALUES (?, ?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM {q}record WHERE context = ? AND family = ? AND key = ?"
_REPLACE: Final = "UPDATE {q}entry SET entry = ? WHERE context = ? AND seq = ?"
_EXPIRE: Final = "DELETE FROM {q}entry WHERE context = ? AND seq < ?"
_PAGE_SIZE: Final = 4096  # a commit writes a third less than with 8,192, and the file is 7 % larger
_WAL_PAGES: Final = 1_000
_LOST: Final = (
    "Commits are lost: power failed, or the disk is damaged, in the write-ahead log before them. The next commit"
    " overwrites what is left of them."
)


class _Errors:
    """A block that turns the errors of both drivers into those of quire. One object serves all blocks of a database."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, apsw.Error | sqlite3.Error | UnicodeDecodeError):
            raise _translate(error, self._name) from error


def _translate(error: Exception, name: str) -> QuireError:
    """Return the error of quire for one of a driver."""
    if isinstance(error, sqlite3.Error) and (code := getattr(error, "sqlite_errorcode", None)):
        error = type(apsw.exception_for(code))(str(error))
    match error:
        case UnicodeDecodeError():
            return Corrupt(f"{name!r} is damaged: a text in it cannot be read ({short_repr(error.object)}).")
        case apsw.BusyError() | apsw.LockedError():
            return Busy(f"{name!r} is locked by another writer. Retry.")
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(f"{name!r} is damaged or no SQLite file: {error}.")
        case apsw.SQLError() if "no such table" in str(error):
            return Corrupt(f"{name!r} is damaged: {error}.")
        case apsw.ConnectionClosedError() | apsw.CursorClosedError():
            return StorageClosed(f"The storage {name!r} is closed. Open it again.")
        case apsw.ReadOnlyError():
            return ReadOnly(f"{name!r} is read-only: {error}.")
        case sqlite3.Error() if "closed" in str(error):
            return StorageClosed(f"The connection to {name!r} is closed: open the storage with a new one.")
        case sqlite3.Error() if "thread" in str(error):
            needed = "connect with check_same_thread=False, and use it from one thread at a time."
            return InvalidOperation(f"The connection to {name!r} belongs to another thread: {needed}")
        case _:
            return StorageFailure(f"{name!r}: {error}.")


class SQLiteDatabase(Database):
    """Statements on one connection, by one thread at a time."""

    _db: Connection
    _execute: Callable[..., Any]
    _execute_many: Callable[..., Any]

    def __init__(self, name: str, prefix: str, lock: RLock) -> None:
        self.name, self.lock = name, lock
        self.errors = _Errors(name)
        self._sql = Statements(prefix)

    def run(self, sql: str, values: Sequence[Any] = (), *, many: bool = False) -> list[Row]:
        """Return the rows of a statement; with `many`, run it for each of several values."""
        execute = self._execute_many if many else self._execute
        rows: list[Row] = execute(self._sql[sql], values).fetchall()
        return rows

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.lock, self.errors:
            return self.run(sql, values)

    def transact(self, work: Callable[[Run], T], begin: str = "BEGIN IMMEDIATE") -> T:
        with self.lock, self.errors:
            if self._is_in_transaction():
                raise InvalidOperation(
                    f"The connection to {self.name!r} is inside a transaction of its owner: commit it or roll it back"
                    " before quire writes. A connection of sqlite3 starts one at the first change, unless it has"
                    " isolation_level=None. With autocommit=False it always has one: connect with autocommit=True."
                )
            try:
                self.run(begin)  # in the `try`: Ctrl-C may come when it has begun
                result = work(self.run)
                self.run("COMMIT")
                return result
            except BaseException:
                with suppress(apsw.Error, sqlite3.Error):  # the first error counts
                    if self._is_in_transaction():
                        self.run("ROLLBACK")
                raise

    def write(self, run: Run, context: Id, commit: Commit) -> None:
        for each in commit.earlier:
            run(ENTRY, (context, each.seq, each.head, each.entry))
        run(ENTRY, (context, commit.seq, commit.head, commit.entry))
        rows = [(context, CODES[family], each.key, each.parent, each.rank, each.value) for family, each in commit.put]
        run(_PUT, rows, many=True)
        if commit.delete:
            run(_DELETE, [(context, CODES[family], key) for family, key in commit.delete], many=True)
        for seq, entry in commit.replace:
            run(_REPLACE, (entry, context, seq))
        if commit.expire:
            run(_EXPIRE, (context, commit.expire))

    def commit(self, context: Id, commit: Commit) -> bool:
        previous = commit.first - 1

        def work(run: Run) -> bool:
            is_next = run(_PREVIOUS, (context, previous)) == [(previous,)]
            if is_next:
                self.write(run, context, commit)
            return is_next

        return self.transact(work)

    def examine(self) -> list[Flaw]:
        lines = [line for (text,) in self.read("PRAGMA integrity_check(20)") for line in str(text).splitlines()]
        return [
            Flaw("file_damaged", f"{line}.")
            for line in lines
            if line not in ("", "ok") and not line.startswith("*** in database")
        ]

    def _create(self, *marks: str) -> None:
        """Create the tables in one transaction, unless another process was first."""

        def work(run: Run) -> None:
            if not run("SELECT 1 FROM sqlite_schema WHERE name = '{q}context'"):
                for sql in (*_SCHEMA, *marks):
                    run(sql)

        self.transact(work)

    def _is_in_transaction(self) -> bool:
        return self._db.in_transaction


class FileDatabase(SQLiteDatabase):
    """One SQLite file that holds nothing else, in WAL mode."""

    _db: apsw.Connection

    def __init__(self, path: Path, durability: Durability, busy_seconds: float, *, read_only: bool) -> None:
        super().__init__(str(path), "", RLock())
        self.path = path
        self._busy_seconds, self._lost = busy_seconds, False
        with self.errors:
            try:
                self._open(durability, read_only=read_only)
            except (OSError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
                is_unwritable = path.is_file() and not os.access(path.absolute().parent, os.W_OK)
                if read_only or not is_unwritable:
                    raise _cannot_open(path, error) from error
                self._open(durability, read_only=True)

    @contextmanager
    def snapshot(self, storage: SqlStorage, context: Id) -> Iterator[Storage]:
        frozen = FileDatabase(self.path, "normal", self._busy_seconds, read_only=True)
        try:
            for sql in ("BEGIN", "SELECT 1 FROM context LIMIT 1"):  # the first read fixes the moment
                frozen.read(sql)
            yield SqlStorage(frozen)
        finally:
            frozen.close()

    def examine(self) -> list[Flaw]:
        lost = [Flaw("commits_lost", _LOST)] if self._lost else []
        return lost + super().examine()

    def scrub(self, context: Id | None) -> Sequence[str]:
        """Rewrite the whole file: free space holds old bytes."""
        with self.lock, self.errors:
            try:
                self.run("VACUUM")
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError) as error:
                raise Busy(f"{self.name!r} is in use by other processes, perhaps readers. Retry later.") from error
        return ()

    def close(self) -> None:
        with self.lock, self.errors:
            self._db.close()

    def _open(self, durability: Durability, *, read_only: bool) -> None:
        if not read_only:
            make_private(self.path)
        milliseconds = int(self._busy_seconds * 1_000)
        self._db = _connect_to_read(self.path, milliseconds) if read_only else apsw.Connection(self.name)
        cursor = self._db.cursor()
        self._execute, self._execute_many = cursor.execute, cursor.executemany
        try:
            self._db.set_busy_timeout(milliseconds)
            is_new = self._is_new(read_only=read_only)
            if not read_only:
                self._set_up(durability, is_new=is_new)
        except BaseException:
            self._db.close()
            raise

    def _set_up(self, durability: Durability, *, is_new: bool) -> None:
        if is_new:
            self.run(f"PRAGMA page_size = {_PAGE_SIZE}")
        deadline = monotonic() + self._busy_seconds
        while True:  # the busy timeout does not apply to this statement
            try:
                self.run("PRAGMA journal_mode = WAL")
                break
            except apsw.BusyError:
                if monotonic() > deadline:
                    raise
                sleep(0.005)
        self._db.wal_autocheckpoint(_WAL_PAGES)
        self.run(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        self._lost = all(self._sees_lost_commits() for _ in range(3))
        if self._lost:
            logging.getLogger("quire").warning("%s: %s", self.name, _LOST)
        if is_new:
            self._create(f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}")

    def _sees_lost_commits(self) -> bool:
        """Return whether commits are lost. If so, wait for other writers: a commit just being made looks the same."""
        is_seen = has_lost_commits(self._db)
        if is_seen:
            self.transact(lambda _: None)
        return is_seen

    def _is_new(self, *, read_only: bool) -> bool:
        """Return whether the file is empty. Raises if it is of another program or of another version of quire."""
        with self._db:  # one state: another process may be creating the tables
            version, program = self._db.pragma("user_version"), self._db.pragma("application_id")
            is_new = not (version or program or self._db.execute("SELECT 1 FROM sqlite_schema").get)
        if is_new and read_only:
            raise StorageFailure(f"{self.name!r} is empty. Open it for writing to create its tables.")
        if not is_new and program != APPLICATION_ID:
            raise InvalidValue(
                f"{self.name!r} is an SQLite file of another program. Choose another path, or give quire.open an open"
                " connection to this file: quire then adds its tables."
            )
        if not is_new:
            check_version(self.name, version)
        return is_new


class LentDatabase(SQLiteDatabase):
    """The database of a connection that the caller has, of `sqlite3` or `apsw`. Every statement goes through it.

    A process must not open a file with two SQLite libraries: each would lose the locks of the other. A commit is a
    transaction of its own: a rollback of the caller would remove data that quire reported as stored.
    """

    def __init__(self, connection: Connection, *, full: bool, create: bool) -> None:
        super().__init__(short_repr(connection), "quire_", _locks.setdefault(id(connection), RLock()))
        self._db = connection
        self._is_closed = False
        files = [row[2] for row in self.read("PRAGMA database_list") if row[1] in ("main", b"main")]
        path = files[0] if files else ""
        self.name = (path.decode() if isinstance(path, bytes) else path) or ":memory:"
        self.errors = _Errors(self.name)
        if self.read("PRAGMA application_id") == [(APPLICATION_ID,)]:
            found = f"{self.name!r} is a store of quire. Close the connection, and open the store by its path."
            raise InvalidValue(found)
        if full and self.read("PRAGMA synchronous")[0][0] < 2:
            found = "is 'full', but the connection has a synchronous below FULL. Run PRAGMA synchronous=FULL on it."
            raise InvalidValue(found, argument="durability")
        with self.lock:
            if not self.read("SELECT 1 FROM sqlite_schema WHERE name = 'quire_schema'"):
                if not create:
                    hint = Hint("Library", arguments="create=True", purpose="to create it")
                    raise StorageFailure(f"There is no store in {self.name!r}.", hint)
                version = f"INSERT INTO {{q}}schema VALUES ({VERSION})"
                self._create("CREATE TABLE {q}schema (version INTEGER NOT NULL)", version)
            check_version(self.name, self.read("SELECT version FROM quire_schema")[0][0])

    @contextmanager
    def snapshot(self, storage: SqlStorage, context: Id) -> Iterator[Storage]:
        """Copy the context: the connection has only one state."""
        yield self.transact(lambda _: copy_to_memory(storage, context), "BEGIN")

    def scrub(self, context: Id | None) -> Sequence[str]:
        if self.name == ":memory:":
            return ()
        advice = f"Free pages of {self.name!r} keep deleted bytes until its owner runs VACUUM, and after it, in WAL"
        return (f"{advice} mode, PRAGMA wal_checkpoint(TRUNCATE).",)

    def close(self) -> None:
        """Stop to use the connection. The caller closes it."""
        self._is_closed = True

    def _execute(self, sql: str, values: Sequence[Any]) -> Any:
        """Execute a statement so that the settings of the caller do not matter."""
        return self._cursor().execute(sql, tuple(values))

    def _execute_many(self, sql: str, values: Sequence[Any]) -> Any:
        return self._cursor().executemany(sql, values)

    def _cursor(self) -> Any:
        if self._is_closed:
            raise StorageClosed(f"The storage {self.name!r} is closed. Open it again.")
        cursor = self._db.cursor()
        if isinstance(cursor, sqlite3.Cursor):
            cursor.row_factory = None
        else:
            cursor.row_trace = lambda _, row: row
        return cursor


_locks: "WeakValueDictionary[int, RLock]" = WeakValueDictionary()
"""The lock of each connection by its id. Storages that share a connection keep it alive, so its id stays valid."""


class SQLiteStorage(SqlStorage):
    """Records in one SQLite file. Several processes and threads can share it.

    With `durability="normal"` a commit survives `kill -9`; with `"full"` it survives power loss too. `Busy` is raised
    if another writer holds the lock longer than `busy_seconds`. With `read_only`, or on a read-only file system, the
    file is never written; if its folder cannot be written either, later commits of other processes may be invisible.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "normal",
        busy_seconds: float = 5.0,
        read_only: bool = False,
    ) -> None:
        self.path = check_path(path)
        self.durability = check_durability(durability)
        super().__init__(FileDatabase(self.path, self.durability, busy_seconds, read_only=read_only))


class SQLiteConnectionStorage(SqlStorage):
    """Records in the database of a connection that the caller has: `sqlite3.Connection` or `apsw.Connection`.

    The caller closes the connection. While a call of quire runs, no other thread may use it. The settings of the
    connection stay as they are. Other processes can write to the same file in the same way.
    """

    def __init__(self, connection: Connection, *, durability: Durability = "normal", create: bool = True) -> None:
        if not isinstance(connection, get_args(Connection)):
            needed = "a sqlite3.Connection or an apsw.Connection is needed."
            raise InvalidValue(f"is {short_repr(connection)}; {needed}", argument="connection")
        self.durability = check_durability(durability)
        super().__init__(LentDatabase(connection, full=durability == "full", create=create))


def _connect_to_read(path: Path, milliseconds: int) -> apsw.Connection:
    """Return a read-only connection. If the folder is read-only too, the file is opened as immutable."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    url = path.absolute().as_uri()
    try:
        db = apsw.Connection(f"{url}?mode=ro", flags=flags)
        db.set_busy_timeout(milliseconds)
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        return db
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:  # an immutable file is read without it
            raise StorageFailure(
                f"{str(path)!r} has newer commits in {log.name!r}, which cannot be read in a read-only folder."
                " Copy both files to a writable folder."
            ) from None
        return apsw.Connection(f"{url}?immutable=1", flags=flags)


def _cannot_open(path: Path, error: Exception) -> StorageFailure:
    """Return the error for a file that SQLite cannot open, with the reason that the system gives."""
    reason = "it is a folder; file:DIR opens one" if path.is_dir() else str(error)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        reason = f"{error}; does its folder exist?"
    except OSError as found:
        reason = str(found)
    return StorageFailure(f"Cannot open {str(path)!r}: {reason}")
