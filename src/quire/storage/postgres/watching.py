"""A server that hangs: it takes what is sent and never answers, so that nothing ends a wait for it.

A statement may rightly take long. So what waits longer than patience is not ended by the clock: a new connection is
tried, and only if the server does not answer that either are the waiting ones cut off. They then hear that their
connection was lost, as with a server that went away. The thread that looks is there while connections are in use.
"""

import os
import socket
import weakref
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
        self._answered = 0.0
        self._is_watched = False
        self._was_used = False

    def begin(self, connection: Connection[Any]) -> None:
        """Say that a connection is in use from now on."""
        self._since[connection] = monotonic()
        self._was_used = True
        if not self._is_watched:  # read after the line above, as `look` writes before it reads: one of both sees
            self._start()

    def end(self, connection: Connection[Any]) -> None:
        """Say that it is not any more."""
        self._since.pop(connection, None)

    def _start(self) -> None:
        if self._becomes_watched():
            Thread(target=_look, args=(weakref.ref(self), self._pause), name="quire-watch", daemon=True).start()

    def _becomes_watched(self) -> bool:
        with self._lock:
            was, self._is_watched = self._is_watched, True
            return not was

    def look(self) -> bool:
        """Cut off what waits for a server that does not answer; False if there is nothing to look after."""
        late = monotonic() - self._patience
        if self._answered < late and self._waiting(late):
            if self._is_alive():
                self._answered = monotonic()
            else:
                for connection in self._waiting(late):
                    _cut(connection)  # one that was done just now is made anew when it is used
        was_used, self._was_used = self._was_used, False
        if was_used or self._since:
            return True
        self._is_watched = False
        return bool(self._since) and self._becomes_watched()

    def _waiting(self, late: float) -> list[Connection[Any]]:
        return [connection for connection, since in self._since.copy().items() if since < late]

    def _is_alive(self) -> bool:
        """Whether the server answers at all, if only to refuse."""
        try:
            psycopg.connect(**self._settings).close()
        except psycopg.Error as error:
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
