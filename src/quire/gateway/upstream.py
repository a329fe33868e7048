"""A lean HTTP client for one upstream: connections that stay open, bytes in and bytes out.

Nothing is interpreted: no redirects, no cookies, no decoding, no retries. The exception is a connection that was used
before and that the upstream closes without an answer: the request is sent once more over a new connection.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

from quire.errors import InvalidValue, short_repr

Headers = Sequence[tuple[bytes, bytes]]
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that belong to one connection. All others are passed on."""
_READ = 1 << 16
_MAX_HEAD = 1 << 18
_IDLE_CONNECTIONS = 64
_IDLE_SECONDS = 20.0


class UpstreamError(Exception):
    """The upstream cannot be reached, or its response is not HTTP or ends too early."""


class Address(NamedTuple):
    """The URL of an upstream. `path` is put before the path of every request."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> bytes:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = {"http": 80, "https": 443}[self.scheme]
        return (host if self.port == default else f"{host}:{self.port}").encode()

    def target(self, path: bytes, query: bytes) -> bytes:
        """Return the request target for a path. If the URL ends and the path starts with `/v1`, keep one."""
        prefix = self.path.encode()
        if prefix.endswith(b"/v1") and (path == b"/v1" or path.startswith(b"/v1/")):
            path = path[len(b"/v1") :]
        return prefix + path + (b"?" + query if query else b"")


def parse_address(url: object, argument: str) -> Address:
    """Return the address of an upstream, `anthropic` or `openai`, in a URL.

    Raise `InvalidValue` if it is no HTTP URL, or has a password or a query.
    """
    try:
        found = urlsplit(url if isinstance(url, str) else "")
        port = found.port or (443 if found.scheme == "https" else 80)
        usable = found.scheme in ("http", "https") and found.hostname and not (found.query or found.fragment)
    except ValueError:
        usable = None
    if not usable or "@" in found.netloc or not str(url).isascii() or not str(url).isprintable() or " " in str(url):
        shown = "a URL with a password" if isinstance(url, str) and "@" in url else short_repr(url)
        raise InvalidValue(f"is {shown}; a URL such as https://api.{argument}.com is needed.", argument=argument)
    return Address(found.scheme, found.hostname or "", port, found.path.rstrip("/"))


class Connection:
    """One connection to the upstream, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        self.received = False
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the connection can take another request."""
        if self.writer.is_closing() or self.reader.at_eof():
            return False
        return self.writer.transport.get_write_buffer_size() == 0  # an early answer ends before the request

    async def next_event(self) -> h11.Event | type[h11.PAUSED]:
        """Return the next event of the response."""
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            data = await self.reader.read(_READ)
            self.received = self.received or bool(data)
            if not self.received:
                raise UpstreamError("The upstream closed the connection without an answer.")
            self.http.receive_data(data)

    def close(self) -> None:
        """Close the connection at once."""
        transport = self.writer.transport
        if transport is not None:
            transport.abort()


class UpstreamResponse:
    """A response: its status and headers without hop-by-hop ones. `chunks` yields its body; `close` ends it early."""

    def __init__(self, client: "Upstream", connection: Connection, head: h11.Response) -> None:
        self.status = head.status_code
        self.headers = without_hop_by_hop(list(head.headers))
        self._client = client
        self._connection = connection
        self._done = False

    def header(self, name: bytes) -> str:
        """Return the value of a header; "" if there is none."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise `UpstreamError` if it ends too early."""
        try:
            while True:
                event = await self._connection.next_event()
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._done = True
                    return
                elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                    raise UpstreamError("The upstream closed the connection.")
        except (h11.RemoteProtocolError, OSError) as error:
            raise UpstreamError(f"The response of the upstream ended too early: {error}.") from error
        finally:
            self.close()

    async def read(self) -> bytes:
        """Return the body as far as it arrives; `is_complete` says whether that is all of it."""
        found = bytearray()
        with suppress(UpstreamError):
            async for chunk in self.chunks():
                found += chunk
        return bytes(found)

    @property
    def is_complete(self) -> bool:
        """Whether the whole body has arrived."""
        return self._done

    def close(self) -> None:
        """Keep the connection for another request if the body was read completely; otherwise close it."""
        connection, self._connection = self._connection, _CLOSED
        if connection is not _CLOSED:
            self._client.take_back(connection, reusable=self._done)


_CLOSED = Connection.__new__(Connection)


class Upstream:
    """Sends requests to one address and keeps idle connections."""

    def __init__(self, address: Address, connect_timeout: float) -> None:
        self.address = address
        self._connect_timeout = connect_timeout
        self._idle: deque[Connection] = deque()
        self._tls = ssl.create_default_context() if address.scheme == "https" else None

    async def send(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | AsyncIterator[bytes]
    ) -> UpstreamResponse:
        """Send a request; return the response when its headers have arrived. Raise `UpstreamError`.

        `headers` need no Host; with a body of bytes they get its Content-Length. A body that is an iterator is sent as
        it arrives.
        """
        reused = self._take_idle() if isinstance(body, bytes) else None
        if reused is not None:
            try:
                return await self._exchange(reused, method, target, headers, body)
            except UpstreamError:
                if reused.received:
                    raise
        return await self._exchange(await self._connect(), method, target, headers, body)

    async def _exchange(
        self,
        connection: Connection,
        method: bytes,
        target: bytes,
        headers: Headers,
        body: bytes | AsyncIterator[bytes],
    ) -> UpstreamResponse:
        try:
            head = await self._send(connection, method, target, headers, body)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError | h11.ProtocolError):
                raise UpstreamError(f"The upstream did not answer: {error}.") from error
            raise
        return UpstreamResponse(self, connection, head)

    async def _send(
        self,
        connection: Connection,
        method: bytes,
        target: bytes,
        headers: Headers,
        body: bytes | AsyncIterator[bytes],
    ) -> h11.Response:
        http, writer = connection.http, connection.writer
        sent = [(b"host", self.address.authority), *headers]
        if isinstance(body, bytes):
            if body or any(name == b"content-length" for name, _ in headers):
                sent = [(name, value) for name, value in sent if name != b"content-length"]
                sent.append((b"content-length", b"%d" % len(body)))
            writer.write(http.send(h11.Request(method=method, target=target, headers=sent)) or b"")
            if body:
                writer.write(body)
                http.send(h11.Data(data=body))
            writer.write(http.send(h11.EndOfMessage()) or b"")
            return await _read_head(connection)
        if not any(name == b"content-length" for name, _ in headers):
            sent.append((b"transfer-encoding", b"chunked"))
        writer.write(http.send(h11.Request(method=method, target=target, headers=sent)) or b"")
        head = asyncio.ensure_future(_read_head(connection))
        head.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may not be awaited
        try:
            await _send_chunks(connection, body, head)
            return await head
        finally:
            head.cancel()

    async def _connect(self) -> Connection:
        address = self.address
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=self._tls, server_hostname=address.host if self._tls else None
                )
        except (OSError, TimeoutError) as error:
            where = f"{address.scheme}://{address.host}:{address.port}"
            reason = error or "timeout"
            raise UpstreamError(f"The upstream {where} cannot be reached: {reason}. Check its URL.") from error
        return Connection(reader, writer)

    def _take_idle(self) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                connection.received = False
                return connection
            connection.close()
        return None

    def take_back(self, connection: Connection, *, reusable: bool) -> None:
        """Keep a connection for the next request, or close it."""
        http = connection.http
        if reusable and http.our_state is h11.DONE and http.their_state is h11.DONE and connection.is_open:
            http.start_next_cycle()
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
            connection = self._idle.popleft() if len(self._idle) > _IDLE_CONNECTIONS else _CLOSED
        if connection is not _CLOSED:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


async def _read_head(connection: Connection) -> h11.Response:
    while True:
        event = await connection.next_event()
        if isinstance(event, h11.Response):
            return event
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise UpstreamError("The upstream closed the connection without an answer.")


async def _drain(writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):  # the upstream may have answered before it closed
        await writer.drain()


async def _send_chunks(connection: Connection, body: AsyncIterator[bytes], head: asyncio.Future[Any]) -> None:
    """Send a body as it arrives. If the upstream answers early, read the rest and do not send it."""
    http, writer = connection.http, connection.writer
    async for chunk in body:
        if not head.done():
            writer.write(http.send(h11.Data(data=chunk)) or b"")
            sent: asyncio.Future[Any] = asyncio.ensure_future(_drain(writer))
            await asyncio.wait({sent, head}, return_when=asyncio.FIRST_COMPLETED)
            sent.cancel()
    if not head.done():
        writer.write(http.send(h11.EndOfMessage()) or b"")


def without_hop_by_hop(headers: Headers, *more: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers without `more`, the ones that belong to a connection, and those that Connection names."""
    named = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    return [(name, value) for name, value in headers if name not in HOP_BY_HOP and name not in {*named, *more}]
