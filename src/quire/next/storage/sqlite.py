"""SQLite: a file of its own, the default storage, or beside the tables of a caller's open connection."""

import os
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from quire.next.storage.contract import CODES, Commit, Id, Storage
from quire.next.storage.memory import MemoryStorage, copy_to_memory
from quire.next.storage.sql import ENTRY, VERSION, Database, Row, Run, SqlStorage, Statements, check_version
from quire.storage.base import Durability, check_durability
from quire.storage.paths import check_path, make_private

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


class SQLiteDatabase(Database):
    """Statements on one connection, by one thread at a time."""

    def __init__(self, prefix: str, lock: RLock) -> None:
        self.lock = lock
        self._sql = Statements(prefix)

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement. Raises the errors of apsw, or those of quire."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction that writes."""

    @abstractmethod
    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open."""

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self.lock, self.errors():
            return self.run(self._sql[sql], values)

    def transact(self, work: Callable[[Run], T]) -> T:
        with self.lock, self.errors():
            try:
                self.begin()  # in the `try`: Ctrl-C may come when it has begun
                result = work(self._run)
                self.run("COMMIT")
                return result
            except BaseException:
                self.roll_back()
                raise

    def write(self, run: Run, context: Id, commit: Commit) -> None:
        for each in commit.entries:
            run(ENTRY, (context, each.seq, each.head, each.entry))
        for family, record in commit.put:
            run(_PUT, (context, CODES[family], record.key, record.parent, record.rank, record.value))
        for family, key in commit.delete:
            run(_DELETE, (context, CODES[family], key))
        for seq, entry in commit.replace:
            run(_REPLACE, (entry, context, seq))
        if commit.expire:
            run(_EXPIRE, (context, commit.expire))

    def commit(self, context: Id, commit: Commit) -> bool:
        return self.transact(lambda run: self._commit(run, context, commit))

    def _commit(self, run: Run, context: Id, commit: Commit) -> bool:
        previous = commit.first - 1
        if run(_PREVIOUS, (context, previous)) != [(previous,)]:
            return False
        self.write(run, context, commit)
        return True

    def prepare(self, schema: Sequence[str]) -> None:
        """Create the tables in one transaction, unless another process was first."""

        def work(run: Run) -> None:
            if not run("SELECT 1 FROM sqlite_schema WHERE name = '{q}context'"):
                for sql in schema:
                    run(sql)

        self.transact(work)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold one state of the database for a block."""
        with self.lock, self.errors():
            try:
                self.run("BEGIN")
                yield
            finally:
                self.roll_back()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the errors of SQLite into those of quire."""
        try:
            yield
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._translate(error) from error

    def roll_back(self) -> None:
        """End the open transaction, if any, without hiding the error that is being handled."""
        try:
            if self.is_in_transaction():
                self.run("ROLLBACK")
        except (apsw.Error, QuireError):
            pass

    def _run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.run(self._sql[sql], values)

    def _translate(self, error: apsw.Error | UnicodeDecodeError) -> QuireError:
        match error:
            case UnicodeDecodeError():
                return Corrupt(f"{self.name!r} is damaged: a text in it cannot be read ({short_repr(error.object)}).")
            case apsw.BusyError() | apsw.LockedError():
                return Busy(f"{self.name!r} is locked by another writer. Retry.")
            case apsw.CorruptError() | apsw.NotADBError():
                return Corrupt(f"{self.name!r} is damaged or no SQLite file: {error}.")
            case apsw.SQLError() if "no such table" in str(error):
                return Corrupt(f"{self.name!r} is damaged: {error}.")
            case apsw.ConnectionClosedError() | apsw.CursorClosedError():
                return StorageClosed(f"The storage {self.name!r} is closed. Open it again.")
            case apsw.ReadOnlyError():
                return ReadOnly(f"{self.name!r} is read-only: {error}.")
            case _:
                return StorageFailure(f"{self.name!r}: {error}.")


class FileDatabase(SQLiteDatabase):
    """One SQLite file that holds nothing else, in WAL mode."""

    def __init__(self, path: Path, durability: Durability, busy_seconds: float, *, read_only: bool) -> None:
        super().__init__("", RLock())
        self.path, self.name = path, str(path)
        self._busy_seconds = busy_seconds
        self.read_only = read_only
        with self.lock, self.errors():
            try:
                self._open(durability)
            except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
                is_unwritable = path.is_file() and not os.access(path.absolute().parent, os.W_OK)
                if read_only or not is_unwritable:
                    raise _cannot_open(path, error) from error
                self.read_only = True
                self._open(durability)

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def begin(self) -> None:
        self._execute("BEGIN IMMEDIATE")

    def is_in_transaction(self) -> bool:
        return self._db.in_transaction

    @contextmanager
    def snapshot(self, storage: SqlStorage, context: Id) -> Iterator[Storage]:
        frozen = FileDatabase(self.path, "normal", self._busy_seconds, read_only=True)
        try:
            with frozen.reading():
                frozen.run("SELECT 1 FROM context LIMIT 1")  # the first read fixes the moment
                yield SqlStorage(frozen)
        finally:
            frozen.close()

    def scrub(self, context: Id | None) -> Sequence[str]:
        """Rewrite the whole file: free space holds old bytes."""
        with self.lock:
            try:
                self.read("VACUUM")
                with self.errors():
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except Busy as error:
                raise Busy(f"{self.name!r} is in use by other processes, perhaps readers. Retry later.") from error
        return ()

    def close(self) -> None:
        with self.lock, self.errors():
            self._db.close()

    def _open(self, durability: Durability) -> None:
        if not self.read_only:
            make_private(self.path)
        self._db = _connect_to_read(self.path) if self.read_only else apsw.Connection(self.name)
        self._execute = self._db.cursor().execute
        try:
            self._db.set_busy_timeout(int(self._busy_seconds * 1_000))
            is_new = self._is_new()
            if not self.read_only:
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
        if is_new:
            marks = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}")
            self.prepare((*_SCHEMA, *marks))

    def _is_new(self) -> bool:
        """Return whether the file is empty. Raises if it is of another program or of another version of quire."""
        with self._db:  # one state: another process may be creating the tables
            version, program = self._db.pragma("user_version"), self._db.pragma("application_id")
            is_new = not (version or program or self._db.execute("SELECT 1 FROM sqlite_schema").get)
        if is_new and self.read_only:
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

    def __init__(self, connection: Connection, *, create: bool) -> None:
        super().__init__("quire_", _locks.setdefault(id(connection), RLock()))
        self._connection = connection
        self._is_closed = False
        self._is_own = False
        """Whether the open transaction is of quire, not of the owner."""
        self.name = short_repr(connection)  # for errors of the first statement, which reads the path
        files = [row[2] for row in self.read("PRAGMA database_list") if row[1] in ("main", b"main")]
        path = files[0] if files else ""
        self.name = (path.decode() if isinstance(path, bytes) else path) or ":memory:"
        with self.lock:
            self._prepare(create)

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._is_closed:
            raise StorageClosed(f"The storage {self.name!r} is closed. Open it again.")
        if isinstance(self._connection, apsw.Connection):
            cursor = self._connection.cursor()
            cursor.row_trace = lambda _, row: row
            return cursor.execute(sql, tuple(values)).fetchall()
        try:
            rows = self._connection.cursor()
            rows.row_factory = None
            return rows.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._of_apsw(error) from error

    def is_in_transaction(self) -> bool:
        try:
            return self._connection.in_transaction
        except sqlite3.Error as error:  # the connection is closed
            raise self._of_apsw(error) from error

    def begin(self) -> None:
        self._is_own = False
        if self.is_in_transaction():
            raise InvalidOperation(
                f"The connection to {self.name!r} is inside a transaction of its owner: commit it or roll it back"
                " before quire writes. A connection of sqlite3 starts one at the first change, unless it has"
                " isolation_level=None. With autocommit=False it always has one: connect with autocommit=True."
            )
        self._is_own = True
        self.run("BEGIN IMMEDIATE")

    def roll_back(self) -> None:
        if self._is_own:
            super().roll_back()

    @contextmanager
    def snapshot(self, storage: SqlStorage, context: Id) -> Iterator[MemoryStorage]:
        """Copy the context: the connection has only one state."""
        yield self.transact(lambda _: copy_to_memory(storage, context))

    def scrub(self, context: Id | None) -> Sequence[str]:
        if self.name == ":memory:":
            return ()
        advice = (
            f"Free pages of {self.name!r} keep deleted bytes until its owner runs VACUUM, and after it, in WAL mode,"
        )
        return (f"{advice} PRAGMA wal_checkpoint(TRUNCATE).",)

    def close(self) -> None:
        """Stop to use the connection. The caller closes it."""
        self._is_closed = True

    def _prepare(self, create: bool) -> None:
        made = self.read("SELECT 1 FROM sqlite_schema WHERE name = 'quire_schema'")
        if not made and not create:
            hint = Hint("Library", arguments="create=True", purpose="to create it")
            raise StorageFailure(f"There is no store in {self.name!r}.", hint)
        if not made:
            marks = (
                "CREATE TABLE {q}schema (version INTEGER NOT NULL)",
                f"INSERT INTO {{q}}schema VALUES ({VERSION})",
            )
            self.prepare((*_SCHEMA, *marks))
        check_version(self.name, self.read("SELECT version FROM quire_schema")[0][0])

    def _of_apsw(self, error: sqlite3.Error) -> Exception:
        """Return the error of apsw or quire for an error of the other driver."""
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None:
            found = apsw.exception_for(code)
            return type(found)(str(error))
        if "closed" in str(error):
            return StorageClosed(f"The connection to {self.name!r} is closed: open the storage with a new one.")
        if "thread" in str(error):
            return InvalidOperation(
                f"The connection to {self.name!r} belongs to another thread: connect with check_same_thread=False, and"
                " use it from one thread at a time."
            )
        return StorageFailure(f"{self.name!r}: {error}.")


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

    def __init__(
        self,
        connection: Connection,
        *,
        durability: Durability = "normal",
        create: bool = True,
    ) -> None:
        if not isinstance(connection, get_args(Connection)):
            needed = "a sqlite3.Connection or an apsw.Connection is needed."
            raise InvalidValue(f"is {short_repr(connection)}; {needed}", argument="connection")
        self.durability = check_durability(durability)
        super().__init__(LentDatabase(connection, create=create))


def _connect_to_read(path: Path) -> apsw.Connection:
    """Return a read-only connection. If the folder is read-only too, the file is opened as immutable."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    url = path.absolute().as_uri()
    try:
        db = apsw.Connection(f"{url}?mode=ro", flags=flags)
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


def _cannot_open(path: Path, error: apsw.Error) -> StorageFailure:
    """Return the error for a file that SQLite cannot open, with the reason that the system gives."""
    if path.is_dir():
        return StorageFailure(f"Cannot open {str(path)!r}: it is a folder; file:DIR opens one")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        reason = str(error)
    except FileNotFoundError:
        reason = f"{error}; does its folder exist?"
    except OSError as found:
        reason = str(found)
    return StorageFailure(f"Cannot open {str(path)!r}: {reason}")
