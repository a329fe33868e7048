"""The running server: starts uvicorn in a thread or in the foreground, and stops it gracefully."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from quire.errors import QuireError, check_names
from quire.library import Library
from quire.server.access import UVICORN_OPTIONS, Token, bind, check_host, load_token, url_of
from quire.server.app import Options, Service
from quire.server.connections import Connections, Limits, ThreadedServer, UvicornServer
from quire.storage.urls import StoreLocation
from quire.view.options import check_budget
from quire.windows.app import App
from quire.windows.apps import Scratch, Todo

DEFAULT_APPS: tuple[type[App], ...] = (Todo, Scratch)
"""Apps that need only their own saved state, so that their windows can be shown here."""


class RunningServer(ThreadedServer):
    """A running server. As a context manager it stops the server at the end."""

    def __init__(self, library: Library, service: Service, listening: socket.socket, token: Token) -> None:
        super().__init__("server", _Server(service), listening, service.options.grace)
        self.token, self.token_is_new = token
        self.service = service
        self._library = library

    @property
    def address(self) -> str:
        """The URL of the server, without the token."""
        return url_of(self.host, self.port)

    @property
    def url(self) -> str:
        """The URL of the inspector with the token as fragment, which a browser never sends."""
        return f"{self.address}#token={self.token}"

    def run(self) -> None:
        """Serve in this thread until a signal stops the server."""
        self._serve()

    def _serve(self) -> None:
        try:
            super()._serve()
        finally:
            self._library.close()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C stop the server even before uvicorn handles signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._request_exit)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


Ready = Callable[[RunningServer], None]


class _Server(UvicornServer):
    """A uvicorn server that ends live streams before it waits for connections."""

    def __init__(self, service: Service) -> None:
        options = service.options
        limits = Limits(header_seconds=options.header_timeout, waiting_per_address=options.waiting)
        super().__init__(
            uvicorn.Config(
                service.app,
                http=Connections(limits).protocol(),
                timeout_graceful_shutdown=options.grace,
                h11_max_incomplete_event_size=64 << 10,
                **UVICORN_OPTIONS,
            )
        )
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.changes.close()
        await super().shutdown(sockets)


def start(where: StoreLocation, *, ready: Ready | None = None, **options: Any) -> RunningServer:
    """Serve in a thread; see `quire.server.start`."""
    running = _prepare(where, **options).start()
    if ready is not None:
        ready(running)
    return running


def run(where: StoreLocation, *, ready: Ready | None = None, **options: Any) -> None:
    """Serve in the foreground; see `quire.server.serve`."""
    running = _prepare(where, **options)
    with suppress(KeyboardInterrupt), running.interruptible():
        (ready or announce)(running)
        running.run()


def announce(running: RunningServer) -> None:
    """Print the address of the server, with the token only if it is new."""
    sys.stdout.write(f"quire serves at {running.url if running.token_is_new else running.address}\n")
    sys.stdout.flush()


def _prepare(
    where: StoreLocation,
    *,
    host: str = "127.0.0.1",
    port: int = 8377,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    budget: int | None = None,
    hosts: Sequence[str] = (),
    apps: Sequence[type[App]] | None = None,
    create: bool = True,
    redact: Callable[[str], str] | None = None,
    **limits: Any,
) -> RunningServer:
    known = Options.__dataclass_fields__
    check_names(limits, ("port", "token", "token_file", *known), "start")
    options = Options(
        host=check_host(host),
        hosts=tuple(hosts),
        budget=None if budget is None else check_budget(budget),
        apps=DEFAULT_APPS if apps is None else tuple(apps),
        **limits,
    )
    key = load_token(token, token_file)
    listening = bind(options.host, port)
    try:
        library = Library(where, create=create, redact=redact)
        return RunningServer(library, Service(library, key.text, options), listening, key)
    except QuireError:
        listening.close()
        raise
