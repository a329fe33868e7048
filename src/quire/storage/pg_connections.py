"""Connections to PostgreSQL: a few of our own, or those that the caller has. Errors of the driver leave as quire's."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
from quire.storage.address import Address, name_database, refused

Db = Connection[tuple[Any, ...]]
T = TypeVar("T")

_ROLLED_BACK: Final = (errors.SerializationFailure, errors.DeadlockDetected)
"""The server rolled the transaction back in favour of another one. Running it again succeeds."""
_LOST: Final = (
    *(errors.AdminShutdown, errors.CrashShutdown, InterfaceError),
    *(errors.IdleInTransactionSessionTimeout, errors.IdleSessionTimeout),
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
_FIRST_PAUSE, _MAX_PAUSE = 0.01, 0.5
_STARTING: Final = ("starting up", "shutting down", "too many", "not yet accepting", "recovery mode")
"""Parts of libpq's messages about a server that will accept connections soon. libpq gives no code for a refused one."""
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
    address: Address
    was_connected = False
    """True if the server was reachable before. One that is away may then come back."""

    def __init__(self, name: str, patience: float) -> None:
        self.name, self.patience = name, patience
        self.is_closed = False
        self._process = os.getpid()

    @abstractmethod
    def lend(self, seconds: float) -> AbstractContextManager[Db]:
        """Lend a connection to a block. Raises `Busy` after a time, and the driver's errors."""

    def close(self) -> None:
        """Close the connections that are quire's own."""
        self.is_closed = True

    def retry(self, work: Callable[[Db], T]) -> T:
        """Call `work` again after a lost connection or a rollback by the server, until the patience ends."""
        deadline, pause = monotonic() + self.patience, _FIRST_PAUSE
        while True:
            try:
                with self.lend(max(deadline - monotonic(), 0)) as db:
                    return work(db)
            except psycopg.Error as error:
                passes = self.was_connected or any(sign in str(error) for sign in _STARTING)
                is_passing = isinstance(error, _ROLLED_BACK) or (passes and is_lost(error))
                if not is_passing or monotonic() + pause > deadline:
                    raise translate(error, self.name) from error
            sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    @contextmanager
    def transaction(self, db: Db, isolation: str, *, full: bool = False) -> Iterator[None]:
        """Run a block in a transaction with limits of its own."""
        with db.transaction():
            patience = max(int(self.patience * 1_000), 1)
            limits = f"SET LOCAL lock_timeout = {patience}; SET LOCAL idle_in_transaction_session_timeout = '60s'"
            synchronous = "; SET LOCAL synchronous_commit = on" if full else ""
            db.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}; {limits}{synchronous}".encode())
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
        self.address = address
        super().__init__(address.name, patience)
        try:
            self._settings: dict[str, Any] = {**_DEFAULTS, **psycopg.conninfo.conninfo_to_dict(address.url)}
        except psycopg.Error:  # the driver quotes the URL, which may hold a password
            raise refused(address.url, psycopg.pq.Conninfo.get_defaults()) from None
        self._size = size
        self._free, self._idle = Semaphore(size), list[Db]()

    @contextmanager
    def lend(self, seconds: float) -> Iterator[Db]:
        if self._process != os.getpid():  # a child must neither use nor end its parent's connections
            _inherited.append(self._idle)
            self._free, self._idle, self._process = Semaphore(self._size), [], os.getpid()
        free, db = self._free, None
        if not free.acquire(timeout=seconds):
            raise Busy(f"All {self._size} connections to {self.name} are in use: retry, or allow more.")
        try:
            if self.is_closed:
                raise StorageClosed(f"The storage {self.name} is closed: open it again.")
            with suppress(IndexError):
                db = self._idle.pop()
            db = db or self._connect()
            yield db
        except psycopg.Error as error:
            if is_lost(error):
                self._drop_idle()
            raise
        finally:
            if db is not None:
                is_ready = not db.closed and db.info.transaction_status == TransactionStatus.IDLE
                self._idle.append(db) if is_ready and not self.is_closed else db.close()
            free.release()

    def close(self) -> None:
        self.is_closed = True
        if self._process == os.getpid():
            self._drop_idle()

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _connect(self) -> Db:
        """Return a new connection with a limit for locks. Prepare no statements if a proxy shares the session.

        Such a proxy reports a process id that differs from the id of the real server process.
        """
        try:
            db = Connection.connect(**self._settings, autocommit=True)
        except UnicodeError:
            raise InvalidValue(f"A label in the host name of {self.name} is too long or empty.") from None
        try:
            if db.execute("SELECT pg_backend_pid()").fetchall() == [(db.info.backend_pid,)]:
                db.execute(f"SET lock_timeout = {max(int(self.patience * 1_000), 1)}".encode())
            else:
                db.prepare_threshold = None
        except BaseException:
            db.close()
            raise
        self.was_connected = True
        return db


@runtime_checkable
class ConnectionPool(Protocol):
    """The methods of `psycopg_pool.ConnectionPool` that quire calls."""

    def getconn(self, timeout: float | None = None) -> Any: ...
    def putconn(self, conn: Any) -> None: ...


_turns: "WeakKeyDictionary[object, Lock]" = WeakKeyDictionary()
"""One lock for each connection of a caller, because several storages can use the same connection."""


class LentConnections(Connections):
    """The connection of the caller, or those of the caller's pool, between the transactions of their owner."""

    was_connected = True

    def __init__(self, source: object, tenant: str | None, schema: str | None, patience: float) -> None:
        accepted = "give a URL, an open psycopg.Connection, or a psycopg_pool.ConnectionPool"
        if not isinstance(source, Connection | ConnectionPool):
            raise InvalidValue(f"{short_repr(source)} is no PostgreSQL connection that quire can use; {accepted}.")
        place = ("", "", "")
        if isinstance(source, Connection):
            if source.closed:
                raise InvalidValue(f"{short_repr(source)} is closed; {accepted}.")
            place = source.info.user, source.info.host, source.info.dbname
        self.address = name_database(*place, tenant, schema)
        super().__init__(self.address.name, patience)
        self._source = source
        self.is_single = isinstance(source, Connection)
        self._turn = _turns.setdefault(source, Lock())

    @contextmanager
    def lend(self, seconds: float) -> Iterator[Db]:
        if self.is_closed:
            raise StorageClosed(f"The storage {self.name} is closed: open it again.")
        if self._process != os.getpid():
            raise InvalidOperation(f"The connection to {self.name} belongs to the parent process: connect again here.")
        with self._one(seconds) as db:
            self._check(db)
            autocommit, row_factory, threshold = db.autocommit, db.row_factory, db.prepare_threshold
            try:
                db.autocommit, db.row_factory, db.prepare_threshold = True, tuple_row, None
                yield db
            finally:
                with suppress(psycopg.Error):
                    if not db.closed:
                        if db.info.transaction_status != TransactionStatus.IDLE:
                            db.rollback()
                        db.autocommit = autocommit
                db.row_factory, db.prepare_threshold = row_factory, threshold

    @contextmanager
    def _one(self, seconds: float) -> Iterator[Db]:
        """Take a connection for a block."""
        if isinstance(self._source, Connection):
            if not self._turn.acquire(timeout=seconds):
                raise Busy(f"Another call uses the connection to {self.name}: retry, or give quire a pool.")
            try:
                yield self._source
            finally:
                self._turn.release()
            return
        try:
            db: Db = self._source.getconn(timeout=seconds)
        except OperationalError as error:
            if getattr(self._source, "closed", False):
                raise StorageClosed(f"The pool of {self.name} is closed: {error}.") from error
            raise Busy(f"The pool of {self.name} gave no connection: {error}.") from error
        try:
            yield db
        finally:
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
