"""Connections, kept for the next call: as many as are in use at once, up to a limit.

A connection is borrowed for one statement or one transaction. After one was lost, those that were idle at that time
are suspected and closed too: a server that went away took all of them.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from threading import Condition
from time import monotonic, sleep
from typing import Any

import psycopg
from psycopg import Connection

from quire.errors import Busy, InvalidValue, StorageClosed, shown
from quire.storage.postgres.address import ESCAPES, unknown_option
from quire.storage.postgres.faults import LATER, is_lost
from quire.storage.postgres.watching import TRY_SECONDS, Watch

_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "quire",
    "client_encoding": "utf8",
}
"""A peer that vanished without a word is noticed in about half a minute. What the URL says counts more."""
_SHORTEST = 2
"""The driver takes less for this."""
_IDLE_SECONDS = 300.0
_PAUSE = 0.02
_PREPARE_AFTER = 3
_AWAY = ("refused", "No such file", "reset by peer", "closed the connection", "timeout expired", "recovery mode")
_inherited: list[Any] = []
"""Connections of a parent process: ending them here would end them there."""


class Pool:
    """At most `most` connections to one database."""

    def __init__(self, url: str, name: str, most: int, patience: float) -> None:
        self._name = name
        self._most = most
        self._patience = f"{max(int(patience * 1_000), 1)}ms"
        given = _settings(url)
        self._waits = "connect_timeout" in given
        self._settings: dict[str, Any] = {**_DEFAULTS, **given}
        self._met = False
        self._seconds = patience
        self._changed = Condition()
        self._forget()

    def _forget(self) -> None:
        self._idle: list[tuple[Connection[Any], float]] = []
        self._used = 0
        self._closed = False
        self._process = os.getpid()
        tries = {} if self._waits else {"connect_timeout": str(TRY_SECONDS)}
        self._watch = Watch(self._settings | tries, self._seconds)

    @contextmanager
    def connection(self, deadline: float) -> Iterator[Connection[Any]]:
        """A connection for a block; it is closed instead of kept if the block leaves it broken or in a transaction.

        Raises `Busy` if none is free in time, and the driver's errors if the server takes none.
        """
        connection = self.take(deadline)
        try:
            yield connection
        except psycopg.Error as error:
            if is_lost(error):
                self.distrust(connection)
            raise
        finally:
            self.give_back(connection)

    def connect(self, deadline: float) -> Connection[Any]:
        """A new connection, waiting for a server that is starting or full."""
        pause = _PAUSE
        while True:
            try:
                settings = self._settings | self._limit(deadline)
                made = self._ready(psycopg.connect(**settings, autocommit=True, prepare_threshold=None))
                self._met = True
                return made
            except UnicodeError:
                raise InvalidValue(f"The host of {self._name} is none: a label of it is too long or empty.") from None
            except psycopg.Error as error:
                if not _may_pass(error, self._met) or monotonic() + pause > deadline:
                    raise
                sleep(pause)
                pause = min(2 * pause, 0.5)

    def _limit(self, deadline: float) -> dict[str, Any]:
        """How long one try may take: to the deadline, in the whole seconds of libpq, unless the URL says otherwise."""
        if self._waits:
            return {}
        left = max(math.ceil(deadline - monotonic()), _SHORTEST)
        return {"connect_timeout": min(left, int(_DEFAULTS["connect_timeout"]))}

    def _ready(self, connection: Connection[Any]) -> Connection[Any]:
        """The connection; if it leads straight to one server process, with statements prepared and a limit for locks.

        What is prepared or set is a session's: behind a proxy that lends a session for one transaction, it may be
        another's. Such a proxy cannot tell a client the number of the process it will talk to.
        """
        self._watch.begin(connection)
        try:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            if row is not None and row[0] == connection.info.backend_pid:
                connection.execute("SELECT set_config('lock_timeout', %s, false)", (self._patience,))
                connection.prepare_threshold = _PREPARE_AFTER
        except BaseException:
            connection.close()
            raise
        finally:
            self._watch.end(connection)
        return connection

    def close(self) -> None:
        with self._changed:
            if self._process != os.getpid():
                self._leave()
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for connection, _ in idle:
            connection.close()

    def take(self, deadline: float) -> Connection[Any]:
        """A connection, to be given back. Raises as `connection` does."""
        with self._changed:
            if self._process != os.getpid():
                self._leave()
            while not self._closed and self._used >= self._most:
                if not self._changed.wait(max(deadline - monotonic(), 0)) and self._used >= self._most:
                    raise Busy(f"All {self._most} connections to {self._name} are in use: retry, or allow more.")
            if self._closed:
                raise StorageClosed(f"The storage {self._name} is closed: open it again.")
            self._used += 1
            found = self._fresh()
        if found is None:
            try:
                found = self.connect(deadline)
            except BaseException:
                with self._changed:
                    self._used -= 1
                    self._changed.notify()
                raise
        self._watch.begin(found)
        return found

    def _fresh(self) -> Connection[Any] | None:
        """An idle connection that was used not long ago; what lay about for longer a proxy may have cut off."""
        while self._idle:
            connection, since = self._idle.pop()
            if monotonic() - since < _IDLE_SECONDS and not connection.closed:
                return connection
            connection.close()
        return None

    def give_back(self, connection: Connection[Any]) -> None:
        """Keep a connection for the next one, or close it if it is broken or in a transaction."""
        self._watch.end(connection)
        is_ready = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._changed:
            self._used -= 1
            if is_ready and not self._closed and self._process == os.getpid():
                self._idle.append((connection, monotonic()))
                connection = None  # type: ignore[assignment]
            self._changed.notify()
        if connection is not None:
            connection.close()

    def distrust(self, lost: Connection[Any]) -> None:
        """Close a connection that was lost, and those that were idle meanwhile."""
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in (lost, *(connection for connection, _ in idle)):
            connection.close()

    def _leave(self) -> None:
        """Begin anew in a child process. Its parent's connections are neither used nor ended."""
        _inherited.extend(connection for connection, _ in self._idle)
        closed = self._closed
        self._forget()
        self._closed = closed


def _settings(url: str) -> dict[str, Any]:
    try:
        return psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise _refused(url) from None  # the driver quotes the URL, which may hold a password


def _refused(url: str) -> InvalidValue:
    """The error for a URL that libpq does not understand: an option that it does not know is named."""
    options = psycopg.pq.Conninfo.get_defaults()
    known = sorted(option.keyword.decode() for option in options if option.dispchar != b"D")
    name = unknown_option(url, frozenset(option.keyword.decode() for option in options))
    if name is None:
        form = "postgresql://USER@HOST:PORT/DATABASE and options of libpq"
        return InvalidValue(f"The PostgreSQL URL is not understood; give {form}. {ESCAPES}")
    near = get_close_matches(name, ["tenant", "schema", *known], n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return InvalidValue(
        f"The PostgreSQL URL has an unknown option {shown(name)}.{meant} Options: tenant, schema, and those of libpq:"
        f" {', '.join(known)}."
    )


def _may_pass(error: psycopg.Error, met: bool) -> bool:
    """Whether the server may take a connection in a moment: it is starting or full, or it was there before."""
    if isinstance(error, LATER):
        return True
    signs = ("starting up", "shutting down", "too many", "not yet accepting", *(_AWAY if met else ()))
    return isinstance(error, psycopg.OperationalError) and any(sign in str(error) for sign in signs)
