"""Running a service: binding, starting in a thread or in the foreground, and stopping without cutting anybody off."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quire.errors import InvalidValue, QuireError, StorageFailure, short_repr
from quire.library import Library
from quire.server.app import Service
from quire.server.options import Options
from quire.storage.base import Storage
from quire.system.rules import check_whole_number
from quire.view.options import DEFAULT_BUDGET
from quire.web.keys import key_for
from quire.web.listening import address_of, check_host, listening_at
from quire.windows.app import App
from quire.windows.apps import Scratch, Todo

Where = str | os.PathLike[str] | Storage
_START = 30.0
USUAL_APPS: tuple[type[App], ...] = (Todo, Scratch)
"""Apps that need nothing but their own saved state: their windows show here without being asked for."""


class Running:
    """A server that runs. It is a context manager that stops it."""

    def __init__(self, library: Library, service: Service, sockets: list[socket.socket], token: str) -> None:
        self.token = token
        self.token_is_new = False
        self.service = service
        self.host, self.port = sockets[0].getsockname()[:2]
        self._library = library
        self._sockets = sockets
        self._server = _Server(service)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def address(self) -> str:
        """Where it is, without the token."""
        return address_of(self.host, self.port)

    @property
    def url(self) -> str:
        """The inspector's address with the token, which stays in the browser: a fragment is sent to nobody."""
        return f"{self.address}#token={self.token}"

    def begin(self) -> Self:
        """Serve in a thread of its own; back when requests are answered."""
        self._thread = threading.Thread(target=self._run, name="quire-server", daemon=True)
        self._thread.start()
        self._server.began.wait(_START)
        if self._failure is not None:
            raise StorageFailure(f"The server did not start: {self._failure}.") from self._failure
        return self

    def run(self) -> None:
        """Serve here until it is stopped by a signal."""
        try:
            self._server.run(sockets=self._sockets)
        finally:
            self._library.close()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end the server also in the moment before it listens to signals itself."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _end(self, number: int, frame: object) -> None:
        self._server.should_exit = True

    def stop(self) -> None:
        """Answer what was asked, let listeners go, and end. Stopping twice is fine."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(self.service.options.grace + _START)

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # the thread that waits has to know
            self._failure = error
        finally:
            self._server.began.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Protocol(H11Protocol):
    """HTTP without uvicorn's own access log, whatever a program's logging says: addresses may hold secrets."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.access_log = False  # the gate logs, by route


class _Server(uvicorn.Server):
    """uvicorn, with live streams ended before it waits for connections."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                service.app,
                loop="asyncio",
                http=_Protocol,
                ws="none",
                lifespan="on",
                log_config=None,  # logging is the program's own to set up
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=service.options.grace,
                limit_concurrency=1_000,
                h11_max_incomplete_event_size=64 << 10,
            )
        )
        self._service = service
        self.began = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.began.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.hub.close()
        await super().shutdown(sockets)


def start(where: Where, *, ready: Callable[[Running], None] | None = None, **options: Any) -> Running:
    """Serve in a thread; see `quire.server.start`."""
    running = _prepared(where, **options)
    running.begin()
    (ready or (lambda _: None))(running)
    return running


def run(where: Where, *, ready: Callable[[Running], None] | None = None, **options: Any) -> None:
    """Serve in the foreground; see `quire.server.serve`."""
    running = _prepared(where, **options)
    with suppress(KeyboardInterrupt), running.interruptible():
        (ready or announce)(running)
        running.run()


def announce(running: Running) -> None:
    """Print where the server is; the token only if it was made just now."""
    told = running.url if running.token_is_new else running.address
    sys.stdout.write(f"quire serves at {told}\n")
    sys.stdout.flush()


def _prepared(
    where: Where,
    *,
    host: str = "127.0.0.1",
    port: int = 8377,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    budget: int | None = None,
    hosts: Sequence[str] = (),
    apps: Sequence[type[App]] | None = None,
    create: bool = True,
    **limits: Any,
) -> Running:
    unknown = limits.keys() - Options.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Options.__dataclass_fields__)
        raise InvalidValue(
            f"There is no option {short_repr(min(unknown))}; options are port, token, token_file, {known}."
        )
    options = Options(
        host=check_host(host),
        hosts=tuple(hosts),
        budget=DEFAULT_BUDGET if budget is None else check_whole_number(budget, "budget"),
        apps=USUAL_APPS if apps is None else tuple(apps),
        **limits,
    )
    key = key_for(token, token_file)
    sockets = [listening_at(options.host, port)]
    try:
        library = Library(where, create=create)
        running = Running(library, Service(library, key.token, options), sockets, key.token)
    except QuireError:
        for one in sockets:
            one.close()
        raise
    running.token_is_new = key.is_new
    return running
