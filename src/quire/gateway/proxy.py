"""The ASGI application: checks a request, passes it to its upstream, and relays the response as it arrives.

In `observe` the gateway forwards the client's bytes first and records them afterwards, in another thread. In `fold` a
request above the budget gets a shorter list of messages. If anything fails in quire, the original bytes are sent.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from secrets import token_hex
from typing import Any, Literal, NamedTuple

import msgspec

import quire
from quire.gateway.figures import FigureKeeper
from quire.gateway.replies import UndecodableBody, decode_body
from quire.gateway.rewriting import Rewriter
from quire.gateway.routing import NO_TOKEN, Route, UpstreamName, find_route, split_token
from quire.gateway.sessions import Call, Reply, SessionInfo, Sessions
from quire.gateway.upstream import Address, Headers, Upstream, UpstreamError, UpstreamResponse, without_hop_by_hop
from quire.server.access import AccessCheck, Refusal
from quire.server.gateway_ledger import SESSIONS, Mode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Reason = Literal["too_long", "signature"]
_MAX_REPLY = 32 << 20
_THREADS = 4
_REWRITE_SECONDS = 20.0
_MARK = b"x-quire-gateway-"
"""The start of an option in the Connection header. The option shows the next gateway that this one comes before it."""
_LOOP = Refusal(
    HTTPStatus.LOOP_DETECTED,
    "gateway_loop",
    "The upstream of this gateway leads back to it: name the provider instead.",
)
_log = logging.getLogger("quire.gateway")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of a gateway. Sizes are in bytes, times in seconds.

    `budget` is the most tokens of a request that `fold` sends. `hosts` are further accepted Host names. A body of more
    than `max_body` bytes is passed on without being read. `connect_timeout` limits the time to reach an upstream.
    """

    mode: Mode = "observe"
    budget: int = 120_000
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    token: str | None = None
    max_body: int = 64 << 20
    connect_timeout: float = 30.0


class Gateway:
    """An ASGI application that is a proxy of model providers, and records what it passes on."""

    def __init__(self, upstreams: Mapping[UpstreamName, Address], sessions: Sessions, options: Options) -> None:
        self.options = options
        self.sessions = sessions
        self._figures = FigureKeeper(sessions)
        self.upstreams = {name: Upstream(address, options.connect_timeout) for name, address in upstreams.items()}
        self._rewriter = Rewriter(sessions)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="quire-gateway-fold")
        self._mark = _MARK + token_hex(8).encode()
        self._is_second = False
        self._access = AccessCheck(options.host, options.hosts, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._answer(scope, receive, send)
        except _ClientGone:
            return  # no one waits for an answer
        except UpstreamError as error:
            await _refuse(Refusal(HTTPStatus.BAD_GATEWAY, "upstream_unreachable", str(error)), send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._figures.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def close(self) -> None:
        """Close idle connections, record what waits, and close the store."""
        for upstream in self.upstreams.values():
            upstream.close()
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self.sessions.drain)
        await asyncio.to_thread(self._figures.stop)
        await asyncio.to_thread(self.sessions.close)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        route = self._find_route(scope, headers)
        if isinstance(route, Refusal):
            await _refuse(route, send)
            return
        if route.path.startswith(b"/quire/"):
            await self._answer_own(route, send)
            return
        passed = _find_gateways(headers)
        if self._mark in passed:
            await _refuse(_LOOP, send)
            return
        is_read = asyncio.Event()
        body = await self._read_body(receive, is_read) if _has_body(headers) else b""
        upstream = self.upstreams[route.upstream]
        request = Outgoing(
            upstream,
            scope["method"].encode(),
            upstream.address.target(route.path, scope["query_string"]),
            [*without_hop_by_hop(headers, b"host"), (b"connection", b", ".join([*passed, self._mark]))],
            body,
        )
        call = None if passed else _to_call(route, headers, body)
        if passed:
            self._warn_second_gateway()
        work = self._exchange(request, call, _add_header(send, b"second") if passed else send)
        if isinstance(body, bytes):
            is_read.set()
        await _until_gone(work, receive, is_read)

    def _warn_second_gateway(self) -> None:
        """Log once that another gateway sends its requests to this one."""
        if not self._is_second:
            _log.warning("Another gateway of quire sends its requests here: they are passed on and not recorded.")
        self._is_second = True

    async def _exchange(self, request: "Outgoing", call: Call | None, send: Send) -> None:
        """Send a request and relay the response. In the mode `fold`, it may be rewritten, and sent again if refused."""
        if call is None or not self.sessions.may_fold:
            await self._relay(await self._send(request, call), call, send)
            return
        body = await self._rewrite(self._rewriter.prepare, call)
        first = await self._try(request, call, body)
        answer = await self._try_again(request, call, first, is_original=body is None)
        await self._relay(answer.response, call, send, answer.error)

    async def _try(self, request: "Outgoing", call: Call, body: bytes | None) -> "_Answer":
        """Send a request, and read the error if the upstream refuses it."""
        response = await self._send(request, call, body)
        is_refused = response.status in _STATUSES and not _is_stream(response)
        return _Answer(response, await response.read() if is_refused else None)

    async def _try_again(self, request: "Outgoing", call: Call, first: "_Answer", *, is_original: bool) -> "_Answer":
        """Send a refused request once more in another form. If that is refused too, send the original.

        Return the answer to pass on: for an original that was refused, the first one.
        """
        reason = first.find_reason()
        again = {"too_long": self._rewriter.shrink, "signature": self._rewriter.strip}.get(reason or "")
        if again is None:
            return first
        other = await self._rewrite(again, call)
        if other is not None:
            _log.info("The upstream refused a request (%s); it is sent once more.", reason)
            second = await self._try(request, call, other)
            if second.response.status < HTTPStatus.BAD_REQUEST:
                self._rewriter.keep_budget(call)
            if second.error is None:
                return second
        if is_original:
            return first
        _log.info("The upstream refused a view (%s); the original is sent.", reason)
        call.is_bypassed = True
        return await self._try(request, call, None)

    async def _send(self, request: "Outgoing", call: Call | None, body: bytes | None = None) -> UpstreamResponse:
        """Send a request. If the upstream cannot be reached, count an error."""
        try:
            return await request.send(body)
        except UpstreamError:
            if call is not None:
                if call.spans is None:
                    self.sessions.submit(self.sessions.record, call)
                self.sessions.submit(self.sessions.finish, call, Reply(HTTPStatus.BAD_GATEWAY, "", "", b"", False))
            raise

    async def _rewrite(self, work: Callable[[Call], bytes | None], call: Call) -> bytes | None:
        """Return another body for a call; None for the original, also if that takes too long."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, call)
        try:
            return await asyncio.wait_for(asyncio.shield(future), _REWRITE_SECONDS)
        except TimeoutError:
            _log.warning("A request was passed on unchanged: rewriting it took too long.")
            call.is_bypassed = True
            return None

    def _find_route(self, scope: Scope, headers: Headers) -> Route | Refusal:
        """Return the route of a request, or the reason to refuse it."""

        def header(name: str) -> Sequence[str]:
            return [value.decode("latin-1") for key, value in headers if key == name.encode()]

        refused = self._access.refusal(header)
        if refused is not None:
            return refused
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        split = split_token(path, self.options.token)
        if split is None:
            return NO_TOKEN
        namespace, rest = split
        if not rest.startswith(b"/"):
            return Refusal(HTTPStatus.BAD_REQUEST, "no_path", "The path of a request starts with a slash.")
        if rest.startswith(b"/quire/"):
            return Route("anthropic", rest, namespace)
        if any(value.lower() == "websocket" for value in header("upgrade")):
            return Refusal(HTTPStatus.UPGRADE_REQUIRED, "no_websocket", "Send a POST; there is no WebSocket here.")
        return find_route(scope["method"], namespace, rest, dict(headers), list(self.upstreams))

    async def _read_body(self, receive: Receive, is_read: asyncio.Event) -> bytes | AsyncIterator[bytes]:
        """Return the body. A body that is too large is returned as an iterator, which sets `is_read` at its end."""
        chunks: list[bytes] = []
        size, more = 0, True
        while more and size <= self.options.max_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
        body = b"".join(chunks)
        is_large = size > self.options.max_body
        return _continue_body(body, receive, is_read, more=more) if is_large else body

    async def _relay(
        self, response: UpstreamResponse, call: Call | None, send: Send, body: bytes | None = None
    ) -> None:
        """Pass the response on as it arrives, and record it. If it is cut off, the client gets it cut off too.

        `body` is the body of a response that was read already.
        """
        chunks: list[bytes] = []
        complete = False
        extra = [(b"x-quire", b"bypass")] if call is not None and call.is_bypassed else []
        try:
            headers = [*response.headers, *extra]
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            if call is not None and call.spans is None:
                self.sessions.submit(self.sessions.record, call)
            size = 0
            async for chunk in response.chunks() if body is None else _iterate(body):
                size += len(chunk)
                if call is not None and size <= _MAX_REPLY:
                    chunks.append(chunk)  # before it is sent: a client that leaves cancels `send`
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            complete = response.is_complete
            if not complete:
                raise UpstreamError("The response of the upstream ended too early.")
        except UpstreamError as error:  # the server closes the connection, because the response is not complete
            _log.warning("%s", error)
            return
        finally:
            response.close()
            if call is not None:
                self.sessions.submit(self.sessions.finish, call, _to_reply(response, chunks, complete))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer_own(self, route: Route, send: Send) -> None:
        """Answer a request to the gateway itself."""
        if route.path == b"/quire/health":
            await _send_json(send, HTTPStatus.OK, {"quire": quire.__version__, "mode": self.options.mode})
        elif route.path == b"/quire/sessions":
            await _send_json(send, HTTPStatus.OK, self.list_sessions(route.namespace))
        else:
            text = "There are GET /quire/health and GET /quire/sessions."
            await _refuse(Refusal(HTTPStatus.NOT_FOUND, "no_such_route", text), send)

    def list_sessions(self, namespace: str | None = None) -> list[SessionInfo]:
        """Return the figures of the lines since the gateway started; with a namespace only those of its token."""
        start = SESSIONS if namespace is None else f"{SESSIONS}{namespace}/"
        return [info for name, info in list(self.sessions.infos.items()) if name.startswith(start)]


class Outgoing(NamedTuple):
    """A request to an upstream. `send` may send another body instead, which is plain JSON."""

    upstream: Upstream
    method: bytes
    target: bytes
    headers: Headers
    body: bytes | AsyncIterator[bytes]

    async def send(self, body: bytes | None = None) -> UpstreamResponse:
        """Send the request; return the response when its headers have arrived."""
        if body is None:
            return await self.upstream.send(self.method, self.target, self.headers, self.body)
        headers = [(name, value) for name, value in self.headers if name != b"content-encoding"]
        return await self.upstream.send(self.method, self.target, headers, body)


def _find_gateways(headers: Headers) -> list[bytes]:
    """Return the marks of the gateways that a request came through.

    They are options of the Connection header, which belongs to one connection: what the provider reads is unchanged.
    """
    values = b",".join(value for name, value in headers if name == b"connection")
    options = (part.strip().lower() for part in values.split(b","))
    return [option for option in options if option.startswith(_MARK)]


def _add_header(send: Send, value: bytes) -> Send:
    """Return a `send` that adds the header `x-quire` to the response."""

    async def add(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"x-quire", value)]}
        await send(message)

    return add


class _Answer(NamedTuple):
    """A response. `error` is its body if the upstream refused the request."""

    response: UpstreamResponse
    error: bytes | None

    def find_reason(self) -> Reason | None:
        """Return why the upstream refused the request, if the request may be sent in another form."""
        if self.error is None:
            return None
        with suppress(UndecodableBody):
            error = decode_body(self.error, self.response.header(b"content-encoding"), _MAX_ERROR)
            return find_reason(self.response.status, error)
        return None


async def _iterate(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _is_stream(response: UpstreamResponse) -> bool:
    return response.header(b"content-type").lower().startswith("text/event-stream")


async def _until_gone(work: Any, receive: Receive, is_read: asyncio.Event) -> None:
    """Await `work`, which reads the body itself until `is_read`. If the client disconnects, cancel it."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(receive, is_read))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _wait_until_gone(receive: Receive, is_read: asyncio.Event) -> None:
    await is_read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


class _ClientGone(Exception):
    """The client went away before its request was complete."""


async def _continue_body(start: bytes, receive: Receive, is_read: asyncio.Event, *, more: bool) -> AsyncIterator[bytes]:
    yield start
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        yield message.get("body", b"")
        more = message.get("more_body", False)
    is_read.set()


def _to_call(route: Route, headers: Headers, body: bytes | AsyncIterator[bytes]) -> Call | None:
    """Return what is recorded about a request; None if it is only passed on."""
    if route.protocol is None or not isinstance(body, bytes):
        return None
    return Call(route.protocol, route.upstream, route.namespace, dict(headers), body, route.counts)


def _to_reply(response: UpstreamResponse, chunks: list[bytes], complete: bool) -> Reply:
    kinds = (response.header(b"content-type"), response.header(b"content-encoding"))
    return Reply(response.status, *kinds, b"".join(chunks), complete)


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


async def _refuse(refusal: Refusal, send: Send) -> None:
    """Answer with an error in a shape that clients of all providers read."""
    error = {"type": "error", "error": {"type": "gateway_error", "code": refusal.code, "message": refusal.message}}
    extra = [(b"upgrade", b"HTTP/1.1")] if refusal.status is HTTPStatus.UPGRADE_REQUIRED else []
    extra += [(name.encode(), value.encode()) for name, value in refusal.headers.items() if name == "connection"]
    await _send_json(send, refusal.status, error, [*extra, (b"x-quire", refusal.code.encode())])


async def _send_json(send: Send, status: int, value: object, headers: Headers = ()) -> None:
    data = msgspec.json.encode(value)
    length = (b"content-length", b"%d" % len(data))
    start = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": int(status), "headers": start})
    await send({"type": "http.response.body", "body": data})


_TOO_LONG = (
    b"prompt is too long",
    b"context_length_exceeded",
    b"maximum context length",
    b"exceeds the context window",
    b"input is too long",
    b"exceed_context_size",  # llama.cpp
    b"exceeds the available context size",
)
_SIGNATURES = (
    b"bound to a different conversation",
    b"invalid `signature`",
    b"invalid signature",
    b"invalid_encrypted_content",
    b"encrypted content could not be verified",
)
_STATUSES = (400, 413)
_MAX_ERROR = 1 << 20


def find_reason(status: int, body: bytes) -> Reason | None:
    """Return why the mode `fold` sends a request once more in another form; None if its error is passed on."""
    if status not in _STATUSES:
        return None
    text = body.lower()
    if any(phrase in text for phrase in _SIGNATURES):
        return "signature"
    if any(phrase in text for phrase in _TOO_LONG):
        return "too_long"
    return None
