"""Connections to the server. Reads are repeated after a failure; writes take effect exactly once.

Three classes, from the bottom up:

- `WatchedConnection` notices a server that hangs.
- `Pool` keeps up to a fixed number of connections for the next call.
- `Session` runs statements. It translates the driver's errors, repeats reads after a lost connection, and resolves
  writes with an unknown outcome.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from threading import Lock, Semaphore
from time import monotonic, sleep
from typing import Any, Final, TypeVar, cast
from weakref import WeakMethod

import psycopg
from psycopg import Connection, InterfaceError, OperationalError, errors
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import tuple_row
from psycopg.waiting import Ready

from quire.errors import (
    Busy,
    Corrupt,
    Hint,
    InvalidOperation,
    InvalidValue,
    OutcomeUnknown,
    QuireError,
    ReadOnly,
    StorageClosed,
    StorageFailure,
)
from quire.storage.address import Address, refused
from quire.storage.postgres.statements import PreparedStatements, Sql

T = TypeVar("T")
Row = tuple[Any, ...]

_ROLLED_BACK = (errors.SerializationFailure, errors.DeadlockDetected)
"""The server rolled the transaction back in favour of another one. Running it again succeeds."""
_LOST = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.IdleInTransactionSessionTimeout,
    errors.IdleSessionTimeout,
    InterfaceError,
)


def is_lost(error: psycopg.Error) -> bool:
    """Return True if the connection is gone, so that the outcome of the statement is unknown."""
    if isinstance(error, _LOST):
        return True
    return isinstance(error, OperationalError) and (error.sqlstate or "08").startswith("08")


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
            return StorageFailure(
                f"{name} has lost some of quire's tables ({reason}): restore them from a backup. Opening the store"
                " recreates only the tables of the search index."
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupt(f"{name} is damaged: {reason}.")
        case _ if is_lost(error):
            return StorageFailure(f"The connection to {name} was lost or refused: {reason}.")
        case _:
            return StorageFailure(f"{name}: {reason}; nothing was changed.")


class WatchedConnection(Connection[Any]):
    """A connection that notices a server that accepts statements and never answers.

    A statement may take long for good reasons, so the clock alone does not end it. After `patience` seconds without
    an answer, `is_server_alive` is called. If it returns False, the wait ends as if the connection was lost.
    """

    patience: float = math.inf
    is_server_alive: Callable[[], bool]

    def __init__(self, pgconn: PGconn, row_factory: Any = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self._statements = PreparedStatements()

    def run(self, sql: Sql) -> PGresult:
        """Return the result of a statement with encoded values, in binary form."""
        return self._statements.run(self, sql)

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return super().wait(self._watch(gen), *args, **options)

    def _watch(self, gen: Any) -> Generator[Any, Any, Any]:
        """Run psycopg's generator. The driver sends `Ready.NONE` several times a second while nothing arrives."""
        deadline = monotonic() + self.patience
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as finished:
                return finished.value
            ready = yield wanted
            if ready == Ready.NONE and monotonic() > deadline:
                if not self.is_server_alive():
                    self.close()
                    raise OperationalError("the server does not answer")
                deadline = monotonic() + self.patience


Db = WatchedConnection

_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "quire",
    "client_encoding": "utf8",
}
"""Options of libpq, unless the URL sets them. A server that vanished is noticed after about 30 seconds."""
_MIN_CONNECT_SECONDS: Final = 2
"""libpq rounds smaller timeouts up to 2 s."""
_PROBE_SECONDS: Final = 5
"""The time a server has to accept a new connection after it left a statement unanswered."""
_MAX_IDLE_SECONDS: Final = 300.0
"""A proxy may have cut a connection that was idle for longer."""
_FIRST_PAUSE, _MAX_PAUSE = 0.01, 0.5
_PREPARE_AFTER: Final = 3
_STARTING: Final = ("starting up", "shutting down", "too many", "not yet accepting", "recovery mode")
"""Parts of libpq's messages about a server that will accept connections soon. libpq gives no code for a refused one."""
_LATER: Final = (errors.TooManyConnections, errors.CannotConnectNow, errors.InsufficientResources)
"""Error classes with the same meaning. A proxy sends such an error if its server refuses the first statement."""
_AWAY: Final = (
    *("refused", "No such file", "reset by peer", "closed the connection", "timeout expired"),
    *("login has been failing", "cannot connect to server", "conn crashed", "query_wait_timeout"),  # of PgBouncer
)
"""Parts of libpq's messages about an unreachable server. A server that was reachable before may come back."""
_inherited: list[Any] = []
"""Connections of the parent process. They stay referenced: freeing them in a child would end them for the parent."""
_fork_lock = Lock()


class Pool:
    """At most `size` connections to one database, each used by one thread at a time.

    `docs/postgres.md` explains why this is not `psycopg_pool`.
    """

    def __init__(self, url: str, name: str, size: int, patience: float) -> None:
        self._name = name
        self._size = size
        self._patience = patience
        given = _parse_settings(url)
        self._has_connect_timeout = "connect_timeout" in given
        self._settings: dict[str, Any] = {**_DEFAULTS, **given}
        self._was_connected = False
        self._answered_at = -math.inf
        self._closed = False
        self._fill()

    def _fill(self) -> None:
        """Start with no connections."""
        self._distrusted_at = -math.inf
        self._free = Semaphore(self._size)
        self._idle: deque[tuple[Db, float]] = deque()
        self._process = os.getpid()  # last: until then, no thread of a child uses a connection of its parent

    @contextmanager
    def connection(self, deadline: float) -> Iterator[Db]:
        """Lend a connection to a block. Raises `Busy` if none is free in time, and the driver's errors."""
        db = self.take(deadline)
        try:
            yield db
        except psycopg.Error as error:
            if is_lost(error):
                self.distrust(db)
            raise
        finally:
            self.give_back(db)

    def take(self, deadline: float) -> Db:
        """Return a connection that must be given back. Raises like `connection`."""
        if self._process != os.getpid():  # a child process must neither use nor end its parent's connections
            with _fork_lock:
                if self._process != os.getpid():
                    _inherited.append(self._idle)
                    self._fill()
        if not self._free.acquire(timeout=max(deadline - monotonic(), 0)):
            raise Busy(f"All {self._size} connections to {self._name} are in use: retry, or allow more.")
        try:
            if self._closed:
                raise StorageClosed(f"The storage {self._name} is closed: open it again.")
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
        """Keep a connection for the next caller. Close it if it is broken or still in a transaction."""
        is_ready = not db.closed and db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if is_ready and self._process == os.getpid():
            self._idle.append((db, monotonic()))
        else:
            db.close()
        if self._closed:
            self.close()
        self._free.release()

    def distrust(self, lost: Db) -> None:
        """Close a lost connection. The ones that are idle now are not used again: the server may be gone."""
        self._distrusted_at = monotonic()
        lost.close()

    def close(self) -> None:
        self._closed = True
        if self._process == os.getpid():
            with suppress(IndexError):
                while True:
                    self._idle.pop()[0].close()
            self._free.release()

    def _connect(self, deadline: float) -> Db:
        """Return a new connection. Wait for a server that is starting, full, or was reachable before."""
        pause = _FIRST_PAUSE
        while True:
            try:
                settings = self._settings | self._connect_limit(deadline)
                db = self._prepare(WatchedConnection.connect(**settings, autocommit=True, prepare_threshold=None))
            except UnicodeError:
                raise InvalidValue(f"A label in the host name of {self._name} is too long or empty.") from None
            except psycopg.Error as error:
                passing = (*_STARTING, *_AWAY) if self._was_connected else _STARTING
                is_passing = isinstance(error, _LATER) or any(sign in str(error) for sign in passing)
                if not is_passing or monotonic() + pause > deadline:
                    raise
                sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)
            else:
                self._was_connected = True
                return db

    def _connect_limit(self, deadline: float) -> dict[str, Any]:
        """Return the timeout of one attempt: until the deadline, in libpq's whole seconds, unless the URL has one."""
        if self._has_connect_timeout:
            return {}
        left = max(math.ceil(deadline - monotonic()), _MIN_CONNECT_SECONDS)
        return {"connect_timeout": min(left, int(_DEFAULTS["connect_timeout"]))}

    def _prepare(self, db: WatchedConnection) -> Db:
        """Set up a new connection. Prepare statements and limit lock waits only if no proxy is in between.

        Both belong to a session, and a transaction-pooling proxy lends the session to other clients. Such a proxy
        reports a process id that differs from the id of the real server process. This difference shows the proxy.
        """
        check = WeakMethod(self._is_server_alive)  # weak: a pool that is dropped unclosed frees its connections at once
        db.patience = self._patience
        db.is_server_alive = lambda: (is_alive := check()) is None or is_alive()
        try:
            row = db.execute("SELECT pg_backend_pid()").fetchone()
            if row is not None and row[0] == db.info.backend_pid:
                db.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds(self._patience),))
                db.prepare_threshold = _PREPARE_AFTER
        except BaseException:
            db.close()
            raise
        return db

    def _is_server_alive(self) -> bool:
        """Return True if the server answers a new connection, even if it refuses it."""
        if monotonic() - self._answered_at < self._patience:
            return True
        limit = {} if self._has_connect_timeout else {"connect_timeout": _PROBE_SECONDS}
        try:
            psycopg.connect(**(self._settings | limit)).close()
        except errors.ConnectionTimeout:
            return False
        except psycopg.Error:
            pass
        self._answered_at = monotonic()
        return True


def milliseconds(seconds: float) -> str:
    """Return a duration as a setting of PostgreSQL."""
    return f"{max(int(seconds * 1_000), 1)}ms"


def _parse_settings(url: str) -> dict[str, Any]:
    try:
        return psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise refused(
            url, psycopg.pq.Conninfo.get_defaults()
        ) from None  # the driver quotes the URL, which may hold a password


_LIMITS: Final = """SELECT set_config('lock_timeout', %s, true),
    set_config('idle_in_transaction_session_timeout', '60s', true)"""
"""For one transaction: how long to wait for a lock, and how long the server waits for a client that is gone."""

_FULL_LIMITS: Final = f"{_LIMITS}, set_config('synchronous_commit', 'on', true)"
_ROWS_AT_ONCE: Final = 64 if psycopg.capabilities.has_stream_chunked() else 1


class Session:
    """Runs the statements of one storage. Safe to use from several threads."""

    def __init__(self, address: Address, pool: Pool, *, patience: float, full: bool) -> None:
        self.name = address.name
        self.patience = patience
        self._limits = _FULL_LIMITS if full else _LIMITS
        self._schema = f'"{address.schema}"'
        self._pool = pool

    def sql(self, text: str) -> str:
        """Return a statement with the name of the schema filled in."""
        return text.replace("{q}", self._schema)

    def read(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a statement that changes nothing."""
        with self._translate_errors():
            return self._retry(lambda db: db.execute(self.sql(text), values, binary=True).fetchall())

    def stream(self, text: str, values: Sequence[Any], consume: Callable[[Iterator[Row]], T]) -> T:
        """Return `consume(rows)` while rows arrive. It is called again if the connection is lost meanwhile."""

        def run(db: Db) -> T:
            with db.cursor(binary=True) as cursor:
                rows = cast(Generator[Row, None, None], cursor.stream(self.sql(text), values, size=_ROWS_AT_ONCE))
                with closing(rows):
                    return consume(rows)

        with self._translate_errors():
            return self._retry(run)

    def transact(self, work: Callable[[Db], T]) -> T:
        """Run several statements in one transaction. `work` may be called again and must do the same each time."""

        def run(db: Db) -> T:
            with self.transaction(db):
                return work(db)

        with self._translate_errors():
            return self._retry(run)

    @contextmanager
    def transaction(self, db: Db) -> Iterator[None]:
        """Open a transaction with its time limits."""
        with db.transaction():
            db.execute(self._limits, (milliseconds(self.patience),))
            yield

    def write_once(self, write: Callable[[Db], T | None], find_outcome: Callable[[Db], T | None]) -> T | None:
        """Return the result of `write`, which takes effect exactly once; None if it found another version.

        A connection can be lost after the commit and before its confirmation, and the server may still run what a dead
        connection sent. `write` is then sent again with the same commit id. If it finds another version, `find_outcome`
        looks for the commit of the earlier attempt. Raises `OutcomeUnknown` if the server cannot be asked.
        """
        is_unsure = False

        def attempt(db: Db) -> T | None:
            nonlocal is_unsure
            try:
                result = write(db)
            except psycopg.Error as error:
                is_unsure = is_unsure or is_lost(error)
                raise
            return find_outcome(db) if result is None and is_unsure else result

        try:
            with self._translate_errors():
                return self._retry(attempt)
        except QuireError as error:
            if not is_unsure or isinstance(error, InvalidOperation | OutcomeUnknown):
                raise
            raise OutcomeUnknown(
                f"{error} The change may have been made.", Hint("refresh", purpose="to find out")
            ) from error

    @contextmanager
    def snapshot(self) -> Iterator["SnapshotSession"]:
        """Yield a session that sees the database at one moment, whatever is committed meanwhile."""
        with self._translate_errors(), self._pool.connection(monotonic() + self.patience) as db, db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield SnapshotSession(self, db)

    def close(self) -> None:
        self._pool.close()

    def _retry(self, work: Callable[[Db], T]) -> T:
        """Call `work` again after a lost connection or a rollback by the server, until `patience` has passed."""
        deadline, pause = monotonic() + self.patience, _FIRST_PAUSE
        while True:
            db = self._pool.take(deadline)
            try:
                return work(db)
            except psycopg.Error as error:
                if is_lost(error):
                    self._pool.distrust(db)
                elif not isinstance(error, _ROLLED_BACK):
                    raise
                if monotonic() + pause > deadline:
                    raise
            finally:
                self._pool.give_back(db)
            sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translate(error, self.name) from error


class SnapshotSession(Session):
    """Reads in one transaction that sees one state of the database. It cannot write."""

    def __init__(self, session: Session, db: Db) -> None:
        self.name = session.name
        self.patience = session.patience
        self._schema = session._schema
        self._db = db

    def read(self, text: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._translate_errors():
            return self._db.execute(self.sql(text), values, binary=True).fetchall()

    def stream(self, text: str, values: Sequence[Any], consume: Callable[[Iterator[Row]], T]) -> T:
        return consume(iter(self.read(text, values)))

    def _retry(self, work: Callable[[Db], T]) -> T:
        raise InvalidOperation("A snapshot is read-only: write to the storage it was taken from.")

    def close(self) -> None:
        """Do nothing: the connection belongs to the pool."""
