"""Connections that belong to the caller: one psycopg connection, or those of a psycopg pool.

quire runs its statements in the session of the caller's connection, through an object of its own. So the settings of
the caller's object (`autocommit`, `row_factory`, adapters) neither matter nor change. quire never closes a connection
of the caller, and never uses one that is inside a transaction: a rollback would take back commits that quire reported.
"""

import math
import os
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any, Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import psycopg
from psycopg import Connection
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from quire.errors import Busy, InvalidOperation, InvalidValue, StorageClosed, short_repr
from quire.storage.address import Address, name_database
from quire.storage.postgres.connection import Db, Pool, WatchedConnection
from quire.storage.postgres.statements import Sql

_ACCEPTED: Final = "a URL, an open psycopg.Connection, or a psycopg_pool.ConnectionPool"
_turns: "WeakKeyDictionary[object, Lock]" = WeakKeyDictionary()
"""One lock for each connection, because several storages can use the same connection."""


@runtime_checkable
class ConnectionPool(Protocol):
    """The methods of `psycopg_pool.ConnectionPool` that quire calls."""

    def getconn(self, timeout: float | None = None) -> Any: ...
    def putconn(self, conn: Any) -> None: ...


class LentConnection(WatchedConnection):
    """Runs statements in the session of a caller's connection. It shares the lock of that connection."""

    def __init__(self, connection: "Connection[Any]") -> None:
        pgconn = connection.pgconn
        handlers = pgconn.notice_handler, pgconn.notify_handler
        super().__init__(pgconn)
        pgconn.notice_handler, pgconn.notify_handler = handlers  # the caller's notices and notifications stay its own
        self.lender = connection
        self.lock = connection.lock
        self.patience = math.inf
        self.prepare_threshold = None  # names of prepared statements belong to the caller
        self.autocommit = True

    def run(self, sql: Sql) -> PGresult:
        with self.lock:
            return super().run(sql)

    def __del__(self, *_: Any) -> None:
        """Do nothing: the caller closes its connection."""


class LentPool(Pool):
    """Lends the connection of the caller, to one thread at a time, or the connections of the caller's pool."""

    def __init__(self, source: "Connection[Any] | ConnectionPool", name: str) -> None:
        self._source = source
        self._name = name
        self._turn = _turns.setdefault(source, Lock()) if isinstance(source, Connection) else Lock()
        self._closed = False
        self._process = os.getpid()

    def take(self, deadline: float) -> Db:
        if self._closed:
            raise StorageClosed(f"The storage {self._name} is closed: open it again.")
        if self._process != os.getpid():
            raise InvalidOperation(f"The connection to {self._name} belongs to the parent process: connect again here.")
        connection = self._get(max(deadline - monotonic(), 0))
        try:
            self._check(connection)
            return LentConnection(connection)
        except BaseException:
            self._put(connection)
            raise

    def give_back(self, db: Db) -> None:
        assert isinstance(db, LentConnection)
        if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                db.rollback()
        self._put(db.lender)

    def distrust(self, lost: Db) -> None:
        """Do nothing: the caller's pool replaces a lost connection."""

    def close(self) -> None:
        self._closed = True

    def _get(self, seconds: float) -> "Connection[Any]":
        if isinstance(self._source, Connection):
            if not self._turn.acquire(timeout=seconds):
                raise Busy(f"Another call uses the connection to {self._name}: retry, or give quire a pool.")
            return self._source
        try:
            connection: Connection[Any] = self._source.getconn(timeout=seconds)
        except psycopg.OperationalError as error:
            if getattr(self._source, "closed", False):
                raise StorageClosed(f"The pool of {self._name} is closed: {error}.") from error
            raise Busy(f"The pool of {self._name} gave no connection: {error}.") from error
        return connection

    def _put(self, connection: "Connection[Any]") -> None:
        if isinstance(self._source, Connection):
            self._turn.release()
        else:
            self._source.putconn(connection)

    def _check(self, connection: "Connection[Any]") -> None:
        """Raise an error if quire cannot use this connection now."""
        if connection.closed:
            raise StorageClosed(f"The connection to {self._name} is closed: open the storage with a new one.")
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise InvalidOperation(f"The connection to {self._name} is in pipeline mode: call quire outside of it.")
        if connection.info.transaction_status != TransactionStatus.IDLE:
            raise InvalidOperation(
                f"The connection to {self._name} is inside a transaction of its owner: commit it or roll it back before"
                " you call quire. psycopg starts one at the first statement, unless the connection has autocommit=True."
            )
        if connection.info.encoding != "utf-8":
            raise InvalidOperation(
                f"The connection to {self._name} has the encoding {connection.info.encoding}; it must be UTF8."
            )


def lend(source: object, tenant: str | None, schema: str | None) -> tuple[Address, Pool]:
    """Return the address and the pool of connections that the caller has. Raises `InvalidValue`."""
    if isinstance(source, Connection):
        info = source.info
        if source.closed:
            raise InvalidValue(f"{short_repr(source)} is closed; give {_ACCEPTED}.")
        address = name_database(info.user, info.host, info.dbname, tenant, schema)
    elif isinstance(source, ConnectionPool):
        address = name_database("", "", "", tenant, schema)
    else:
        raise InvalidValue(f"{short_repr(source)} is no PostgreSQL connection that quire can use; give {_ACCEPTED}.")
    return address, LentPool(source, address.name)
