"""Connections to PostgreSQL: a few of our own, or those that the caller has. Errors of the driver leave as quire's."""

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Semaphore
from time import monotonic, sleep
from typing import Any, Final, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

import psycopg
from psycopg import Connection, InterfaceError, OperationalError, errors
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from quire.errors import (
    Busy,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    QuireError,
    ReadOnly,
    StorageClosed,
    StorageFailure,
    short_repr,
)
from quire.storage.postgres.address import ESCAPES, Address, name_database

Db = Connection[tuple[Any, ...]]
T = TypeVar("T")

_ROLLED_BACK: Final = (errors.SerializationFailure, errors.DeadlockDetected)
"""The server rolled the transaction back in favour of another one. Running it again succeeds."""
_LOST: Final = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,
    InterfaceError,
)
_DEFAULTS: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "quire",
    "client_encoding": "utf8",
}
"""Options of libpq, unless the URL sets them. A server that vanished is noticed after about 30 seconds."""
_MAX_IDLE_SECONDS: Final = 300.0
"""A proxy may have cut a connection that was idle for longer."""
_FIRST_PAUSE, _MAX_PAUSE = 0.01, 0.5
_STARTING: Final = ("starting up", "shutting down", "too many", "not yet accepting", "recovery mode")
"""Parts of libpq's messages about a server that will accept connections soon. libpq gives no code for a refused one."""
_AWAY: Final = (
    *("refused", "No such file", "reset by peer", "closed the connection", "timeout expired"),
    *("login has been failing", "cannot connect to server", "conn crashed", "query_wait_timeout"),  # of PgBouncer
)
"""Parts of messages about an unreachable server. One that was reachable before may come back."""
_inherited: list[Any] = []
"""Connections of the parent process. They stay referenced: freeing them in a child would end them for the parent."""


def is_lost(error: BaseException) -> bool:
    """Return True if the connection is gone, so that the outcome of the statement is unknown."""
    if isinstance(error, _LOST):
        return True
    return isinstance(error, OperationalError) and (error.sqlstate or "08").startswith("08")


class Connections(ABC):
    """Lends connections, each to one thread at a time."""

    is_single = False
    """True if there is only one connection, which the caller uses too."""

    def __init__(self, name: str, patience: float) -> None:
        self.name = name
        self.patience = patience
        self.is_closed = False

    @abstractmethod
    def take(self, deadline: float) -> Db:
        """Return a connection that must be given back. Raises `Busy`, and the driver's errors."""

    @abstractmethod
    def give_back(self, db: Db) -> None:
        """Take a connection back."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections that are quire's own."""

    @abstractmethod
    def distrust(self, lost: Db) -> None:
        """Drop a lost connection, and do not use those that are idle now: the server may be gone."""

    @contextmanager
    def lend(self) -> Iterator[Db]:
        """Lend a connection to a block."""
        with self.errors():
            db = self.take(monotonic() + self.patience)
            try:
                yield db
            finally:
                self.give_back(db)

    def retry(self, work: Callable[[Db], T]) -> T:
        """Call `work` again after a lost connection or a rollback by the server, until the patience ends."""
        deadline, pause = monotonic() + self.patience, _FIRST_PAUSE
        while True:
            with self.errors():
                db = self.take(deadline)
                try:
                    return work(db)
                except psycopg.Error as error:
                    if is_lost(error):
                        self.distrust(db)
                    if not (is_lost(error) or isinstance(error, _ROLLED_BACK)) or monotonic() + pause > deadline:
                        raise
                finally:
                    self.give_back(db)
            sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    @contextmanager
    def transaction(self, db: Db, isolation: str, *, full: bool = False) -> Iterator[None]:
        """Run a block in a transaction with limits of its own."""
        with db.transaction():
            patience = max(int(self.patience * 1_000), 1)
            settings = f"SET LOCAL lock_timeout = {patience}; SET LOCAL idle_in_transaction_session_timeout = '60s'"
            synchronous = "; SET LOCAL synchronous_commit = on" if full else ""
            db.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}; {settings}{synchronous}".encode())
            yield

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the driver's errors into those of quire."""
        try:
            yield
        except psycopg.Error as error:
            raise translate(error, self.name) from error


def translate(error: psycopg.Error, name: str) -> QuireError:
    """Return quire's error for an error of the driver. `name` is the address without its password."""
    message = error.diag.message_primary or str(error) or type(error).__name__
    reason = " ".join(message.split())[:300].rstrip(".")
    match error:
        case errors.LockNotAvailable():
            return Busy(f"Another writer held a lock in {name} too long: retry.")
        case errors.QueryCanceled():
            return Busy(f"{name} reached its time limit ({reason}): retry, or raise statement_timeout.")
        case errors.SerializationFailure() | errors.DeadlockDetected():
            return Busy(f"Other transactions in {name} were in the way ({reason}): retry.")
        case errors.TooManyConnections():
            return Busy(f"{name} accepts no more connections ({reason}): retry, or use a pooling proxy.")
        case errors.InsufficientPrivilege():
            return StorageFailure(f"{name} denied access ({reason}). docs/postgres.md lists what the role needs.")
        case errors.ReadOnlySqlTransaction():
            return ReadOnly(f"{name} is read-only, perhaps a standby ({reason}): connect to the primary.")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StorageFailure(f"{name} has lost some of quire's tables ({reason}): restore them from a backup.")
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupt(f"{name} is damaged: {reason}.")
        case _ if is_lost(error):
            return StorageFailure(f"The connection to {name} was lost or refused: {reason}.")
        case _:
            return StorageFailure(f"{name}: {reason}; nothing was changed.")


class OwnConnections(Connections):
    """At most `size` connections to one database, opened when they are needed."""

    def __init__(self, address: Address, patience: float, size: int) -> None:
        super().__init__(address.name, patience)
        self._settings = {**_DEFAULTS, **_settings_of(address.url)}
        self._size = size
        self._was_connected = False
        self._fill()

    def take(self, deadline: float) -> Db:
        if self._process != os.getpid():  # a child process must neither use nor end its parent's connections
            with _fork_lock:
                if self._process != os.getpid():
                    _inherited.append(self._idle)
                    self._fill()
        if not self._free.acquire(timeout=max(deadline - monotonic(), 0)):
            raise Busy(f"All {self._size} connections to {self.name} are in use: retry, or allow more.")
        try:
            if self.is_closed:
                raise StorageClosed(f"The storage {self.name} is closed: open it again.")
            with suppress(IndexError):
                db, since = self._idle.pop()
                if since > max(self._distrusted_at, monotonic() - _MAX_IDLE_SECONDS) and not db.closed:
                    return db
                db.close()
            return self._connect(deadline)
        except BaseException:
            self._free.release()  # after `close`, this wakes the next thread that waits
            raise

    def give_back(self, db: Db) -> None:
        is_ready = not db.closed and db.info.transaction_status == TransactionStatus.IDLE
        if is_ready and self._process == os.getpid() and not self.is_closed:
            self._idle.append((db, monotonic()))
        else:
            db.close()
        self._free.release()

    def distrust(self, lost: Db) -> None:
        self._distrusted_at = monotonic()
        lost.close()

    def close(self) -> None:
        self.is_closed = True
        if self._process == os.getpid():
            with suppress(IndexError):
                while True:
                    self._idle.pop()[0].close()
            self._free.release()

    def _fill(self) -> None:
        """Start with no connections."""
        self._distrusted_at = 0.0
        self._free = Semaphore(self._size)
        self._idle: deque[tuple[Db, float]] = deque()
        self._process = os.getpid()  # last: until then, no thread of a child uses a connection of its parent

    def _connect(self, deadline: float) -> Db:
        """Return a new connection. Wait for a server that is starting, full, or was reachable before."""
        pause = _FIRST_PAUSE
        while True:
            try:
                db = self._prepare(Connection.connect(**self._settings, autocommit=True))
            except UnicodeError:
                raise InvalidValue(f"A label in the host name of {self.name} is too long or empty.") from None
            except psycopg.Error as error:
                passing = (*_STARTING, *_AWAY) if self._was_connected else _STARTING
                if not any(sign in str(error) for sign in passing) or monotonic() + pause > deadline:
                    raise
                sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)
            else:
                self._was_connected = True
                return db

    def _prepare(self, db: Db) -> Db:
        """Limit the waits for locks, and prepare no statements if a proxy lends the session to other clients.

        Such a proxy reports a process id that differs from the id of the real server process.
        """
        try:
            if db.execute("SELECT pg_backend_pid()").fetchall() == [(db.info.backend_pid,)]:
                db.execute(f"SET lock_timeout = {max(int(self.patience * 1_000), 1)}".encode())
            else:
                db.prepare_threshold = None
        except BaseException:
            db.close()
            raise
        return db


_fork_lock = Lock()


def _settings_of(url: str) -> dict[str, Any]:
    try:
        return psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # the driver quotes the URL, which may hold a password
        form = "postgresql://USER@HOST:PORT/DATABASE and options of libpq, tenant and schema"
        raise InvalidValue(f"The PostgreSQL URL cannot be parsed; use {form}. {ESCAPES}") from None


@runtime_checkable
class ConnectionPool(Protocol):
    """The methods of `psycopg_pool.ConnectionPool` that quire calls."""

    def getconn(self, timeout: float | None = None) -> Any: ...
    def putconn(self, conn: Any) -> None: ...


_turns: "WeakKeyDictionary[object, Lock]" = WeakKeyDictionary()
"""One lock for each connection of a caller, because several storages can use the same connection."""


class LentConnections(Connections):
    """The connection of the caller, or those of the caller's pool, between the transactions of their owner."""

    def __init__(self, source: "Connection[Any] | ConnectionPool", name: str, patience: float) -> None:
        super().__init__(name, patience)
        self._source = source
        self.is_single = isinstance(source, Connection)
        self._turn = _turns.setdefault(source, Lock())
        self._process = os.getpid()
        self._options: dict[int, tuple[Any, ...]] = {}

    def take(self, deadline: float) -> Db:
        if self.is_closed:
            raise StorageClosed(f"The storage {self.name} is closed: open it again.")
        if self._process != os.getpid():
            raise InvalidOperation(f"The connection to {self.name} belongs to the parent process: connect again here.")
        db = self._get(max(deadline - monotonic(), 0))
        try:
            self._check(db)
            self._options[id(db)] = db.autocommit, db.row_factory, db.prepare_threshold
            db.autocommit, db.row_factory, db.prepare_threshold = True, tuple_row, None
        except BaseException:
            self._put(db)
            raise
        return db

    def give_back(self, db: Db) -> None:
        autocommit, row_factory, threshold = self._options.pop(id(db))
        with suppress(psycopg.Error):
            if not db.closed:
                if db.info.transaction_status != TransactionStatus.IDLE:
                    db.rollback()
                db.autocommit = autocommit
            db.row_factory, db.prepare_threshold = row_factory, threshold
        self._put(db)

    def distrust(self, lost: Db) -> None:
        """Do nothing: the owner closes a connection, and a pool replaces it."""

    def close(self) -> None:
        self.is_closed = True

    def _get(self, seconds: float) -> Db:
        if isinstance(self._source, Connection):
            if not self._turn.acquire(timeout=seconds):
                raise Busy(f"Another call uses the connection to {self.name}: retry, or give quire a pool.")
            return self._source
        try:
            db: Db = self._source.getconn(timeout=seconds)
        except OperationalError as error:
            if getattr(self._source, "closed", False):
                raise StorageClosed(f"The pool of {self.name} is closed: {error}.") from error
            raise Busy(f"The pool of {self.name} gave no connection: {error}.") from error
        return db

    def _put(self, db: Db) -> None:
        if isinstance(self._source, Connection):
            self._turn.release()
        else:
            self._source.putconn(db)

    def _check(self, db: Db) -> None:
        """Raise an error if quire cannot use this connection now."""
        if db.closed:
            raise StorageClosed(f"The connection to {self.name} is closed: open the storage with a new one.")
        if db.pgconn.pipeline_status != PipelineStatus.OFF:
            raise InvalidOperation(f"The connection to {self.name} is in pipeline mode: call quire outside of it.")
        if db.info.transaction_status != TransactionStatus.IDLE:
            raise InvalidOperation(
                f"The connection to {self.name} is inside a transaction of its owner: commit it or roll it back before"
                " you call quire. psycopg starts one at the first statement, unless the connection has autocommit=True."
            )
        if db.info.encoding != "utf-8":
            raise InvalidOperation(
                f"The connection to {self.name} has the encoding {db.info.encoding}; it must be UTF8."
            )


def lend(source: object, tenant: str | None, schema: str | None, patience: float) -> tuple[Address, Connections]:
    """Return the address and the connections that the caller has. Raises `InvalidValue`."""
    accepted = "give a URL, an open psycopg.Connection, or a psycopg_pool.ConnectionPool"
    if isinstance(source, Connection):
        if source.closed:
            raise InvalidValue(f"{short_repr(source)} is closed; {accepted}.")
        address = name_database(source.info.user, source.info.host, source.info.dbname, tenant, schema)
    elif isinstance(source, ConnectionPool):
        address = name_database("", "", "", tenant, schema)
    else:
        raise InvalidValue(f"{short_repr(source)} is no PostgreSQL connection that quire can use; {accepted}.")
    return address, LentConnections(source, address.name, patience)
