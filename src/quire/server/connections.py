"""The connections of a server over HTTP: their time-outs and their limits, so that no client can occupy the server.

A connection *waits* while the server waits for its client: for the headers or the body of a request, or for the next
request. If an address has too many waiting connections, those that have waited longest are closed. A request that was
received counts until it is answered. Event streams count apart from requests.

`ThreadedServer` runs such a server in a thread: start it, wait until it answers, and stop it.
"""

import asyncio
import socket
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address
from types import TracebackType
from typing import Any, Literal, Self, cast

import uvicorn
from starlette.types import Message
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

from quire.errors import StorageFailure

_START_TIMEOUT = 30.0
_TICK = 0.1


class UvicornServer(uvicorn.Server):
    """A uvicorn server that sets `ready` when it answers requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._leaving: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def main_loop(self) -> None:
        """Run until the server must stop; unlike uvicorn's own loop, `leave` ends the wait at once."""
        leaving, ticks = asyncio.Event(), 0
        self._leaving = (asyncio.get_running_loop(), leaving)
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), _TICK)

    def leave(self) -> None:
        """Let the server stop. Any thread may call this."""
        self.should_exit = True
        if self._leaving is not None:
            loop, leaving = self._leaving
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(leaving.set)

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
        if not self._server.ready.wait(_START_TIMEOUT):
            self._request_exit()
            raise StorageFailure(f"The {self._name} did not start within {_START_TIMEOUT:g} seconds.")
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
        self._server.leave()

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


Kind = Literal["waiting", "request", "stream", "closed"]
_IPV6_NETWORK = 4  # the groups of an address that one client cannot choose freely: a /64
_EVENTS = b"text/event-stream"
_BURST_SECONDS = 1.0
"""The limit of an address closes no connection that has waited less: many may arrive at once with requests."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one server. Times are in seconds."""

    header_seconds: float = 10.0
    """From the first byte of a request, or from the start of a connection, to the end of the headers."""
    write_seconds: float = 60.0
    """If a client does not read its answer for this time, its connection is closed."""
    waiting: int = 500
    waiting_per_address: int = 64
    requests: int = 1_000
    requests_per_address: int = 250
    streams: int = 1_000


class Connections:
    """The connections of one server, by what they do. It is used on the event loop only, so no lock is needed."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.streams = 0
        self._requests: Counter[str] = Counter()
        self._waiting: defaultdict[str, dict[Connection, float]] = defaultdict(dict)  # oldest first, with its time
        self._waiting_count = 0

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the factory that uvicorn calls to create a connection."""
        return cast("type[asyncio.Protocol]", partial(Connection, self))

    def move(self, connection: "Connection", kind: Kind) -> None:
        """Note what a connection does now."""
        if connection.kind == kind:
            return
        self._count(connection, -1)
        connection.kind = kind
        self._count(connection, +1)
        if kind == "waiting":
            self._close_oldest(connection)

    def is_full(self, connection: "Connection") -> bool:
        """Return whether there are too many requests or streams to answer this one."""
        match connection.kind:
            case "request":
                here = self._requests[connection.address]
                return here > self.limits.requests_per_address or self._requests.total() > self.limits.requests
            case "stream":
                return self.streams > self.limits.streams
            case _:
                return False

    def _count(self, connection: "Connection", by: int) -> None:
        address = connection.address
        match connection.kind:
            case "stream":
                self.streams += by
            case "request":
                self._requests[address] += by
                if not self._requests[address]:
                    del self._requests[address]
            case "waiting":
                self._waiting_count += by
                if by > 0:
                    self._waiting[address][connection] = connection.loop.time()
                else:
                    del self._waiting[address][connection]
                    if not self._waiting[address]:
                        del self._waiting[address]

    def _close_oldest(self, newest: "Connection") -> None:
        """Close connections if too many wait: the oldest of this address, or of the address with most."""
        same = self._waiting[newest.address]
        start = same[newest] - _BURST_SECONDS
        while len(same) > self.limits.waiting_per_address and next(iter(same.values())) < start:
            next(iter(same)).drop()
        if self._waiting_count > self.limits.waiting:
            most = max(self._waiting.values(), key=len)
            next(iter(most)).drop()


class Connection(H11Protocol):
    """One connection. It writes no access log, whatever logging is configured: URLs may contain secrets."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.access_log = False  # the middleware logs requests by route
        self.limit_concurrency = None
        self.address = ""
        self.kind: Kind = "closed"
        self._all = connections
        self._inner, self.app = self.app, self._answer
        self._sends_events = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.address = _network_of(self.client[0]) if self.client else ""
        self._await_headers()
        self._all.move(self, "waiting")

    def data_received(self, data: bytes) -> None:
        if self._is_between_requests():
            self._await_headers()
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.move(self, "closed")
        self._cancel_header_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._all.limits.write_seconds, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def drop(self) -> None:
        """Close the connection at once."""
        self._all.move(self, "closed")
        self.transport.abort()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _update(self) -> None:
        """Note what the connection does after something was received or sent."""
        if self.transport.is_closing():
            return
        if self._is_between_requests():
            if self.conn.trailing_data[0]:  # the start of the next request
                self._await_headers()
            self._all.move(self, "waiting")
            return
        self._cancel_header_timer()
        is_stream = self._sends_events or _wants_events(self.scope)
        self._all.move(self, "waiting" if self.cycle.more_body else "stream" if is_stream else "request")

    def _await_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self._all.limits.header_seconds, self.drop)

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request to the application, or answer 503."""

        async def send_and_look(message: Message) -> None:
            if message["type"] == "http.response.start" and _sends_events(message):
                self._sends_events = True
                self._update()
            await send(message)

        self._sends_events = False
        if self._all.is_full(self):
            await service_unavailable(scope, receive, send)
        else:
            await self._inner(scope, receive, cast("Any", send_and_look))


def _wants_events(scope: Any) -> bool:
    return scope["method"] == "GET" and any(name == b"accept" and _EVENTS in value for name, value in scope["headers"])


def _sends_events(message: Message) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(_EVENTS) for name, value in message["headers"])


def _network_of(host: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address: one client can use all addresses of a network."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else ":".join(address.exploded.split(":")[:_IPV6_NETWORK])
