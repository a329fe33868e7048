"""A server that hangs: it takes what is sent and never answers, so that nothing ends a wait for it.

A statement may rightly take long. So what waits longer than patience is not ended by the clock: a new connection is
tried, and only if the server does not answer that either are the waiting ones cut off. They then hear that their
connection was lost, as with a server that went away. The thread that looks is there while connections are in use.
"""

import os
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg import Connection

_LEAST = 0.1
_MOST = 1.0
TRY_SECONDS: Final = 5
"""How long the server has to answer a new connection, unless the URL has a `connect_timeout`."""


class Watch:
    """Looks after the connections in use. `begin` and `end` cost nothing to speak of: they stand in every call."""

    def __init__(self, settings: dict[str, Any], patience: float) -> None:
        self._settings = settings
        self._patience = patience
        self._pause = min(max(patience / 4, _LEAST), _MOST)
        self._lock = Lock()
        self._since: dict[Connection[Any], float] = {}
        self._is_watched = False
        self._was_used = False

    def begin(self, connection: Connection[Any]) -> None:
        """Say that a connection is in use from now on."""
        with self._lock:
            self._since[connection] = monotonic()
            self._was_used = True
            if not self._is_watched:
                self._is_watched = True
                Thread(target=_look, args=(weakref.ref(self), self._pause), name="quire-watch", daemon=True).start()

    def end(self, connection: Connection[Any]) -> None:
        """Say that it is not any more."""
        with self._lock:  # so that nobody who is done is cut off
            self._since.pop(connection, None)

    def look(self) -> bool:
        """Cut off what waits for a server that does not answer; False if there is nothing to look after."""
        late = monotonic() - self._patience
        with self._lock:
            is_late = any(since < late for since in self._since.values())
        if is_late:
            if self._is_alive():
                self._let_go_on(late)
            else:
                self._each_since(late, _cut)
        with self._lock:
            self._is_watched, self._was_used = bool(self._since) or self._was_used, False
            return self._is_watched

    def _let_go_on(self, late: float) -> None:
        """What waits has as long again before the next try."""
        now = monotonic()
        self._each_since(late, lambda connection: self._since.__setitem__(connection, now))

    def _each_since(self, late: float, act: Callable[[Connection[Any]], None]) -> None:
        with self._lock:
            for connection, since in list(self._since.items()):
                if since < late:
                    act(connection)

    def _is_alive(self) -> bool:
        """Whether the server answers at all, if only to refuse."""
        try:
            psycopg.connect(**self._settings).close()
        except psycopg.OperationalError as error:
            return not (isinstance(error, psycopg.errors.ConnectionTimeout) or "timeout expired" in str(error))
        return True


def _look(found: "weakref.ref[Watch]", pause: float) -> None:
    """Look now and then, as long as there is something to look after; a store that nobody holds any more is let go."""
    while True:
        sleep(pause)
        watch = found()
        if watch is None or not watch.look():
            return
        del watch


def _cut(connection: Connection[Any]) -> None:
    """End a connection under whoever waits for it: only the socket, for the rest is in use by another thread."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
