"""A uvicorn server in a thread, for the HTTP server and the gateway: start it, wait until it answers, and stop it."""

import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn

from quire.errors import StorageFailure

_START_TIMEOUT = 30.0


class UvicornServer(uvicorn.Server):
    """A uvicorn server that sets `ready` when it answers requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class ThreadedServer:
    """A server on a socket that listens. As a context manager it stops the server at the end.

    `name` is its name in errors, and `grace` the seconds that running requests get at the end.
    """

    def __init__(self, name: str, server: UvicornServer, listening: socket.socket, grace: float) -> None:
        self.host, self.port = listening.getsockname()[:2]
        self._name = name
        self._server = server
        self._socket = listening
        self._grace = grace
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> Self:
        """Serve in a new thread; return when the server answers requests."""
        self._thread = threading.Thread(target=self._serve_in_thread, name=f"quire-{self._name}", daemon=True)
        self._thread.start()
        self._server.ready.wait(_START_TIMEOUT)
        if self._failure is not None:
            raise StorageFailure(f"The {self._name} did not start: {self._failure}.") from self._failure
        return self

    def stop(self) -> None:
        """Finish running requests, and stop. Stopping twice is allowed."""
        self._request_exit()
        if self._thread is not None:
            self._thread.join(self._grace + _START_TIMEOUT)

    def _serve(self) -> None:
        """Serve in this thread until the server stops."""
        self._server.run(sockets=[self._socket])

    def _request_exit(self, *_: object) -> None:
        self._server.should_exit = True

    def _serve_in_thread(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # raised by start() in the caller's thread
            self._failure = error
        finally:
            self._server.ready.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
