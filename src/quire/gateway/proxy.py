"""The ASGI application: checks a request, passes it to its upstream, and relays the response as it arrives.

The client's bytes are the truth. In `observe` they are forwarded first and recorded afterwards, in another thread. In
`fold` a request above the budget gets a shorter list of messages. Whatever fails in quire, the original bytes are sent.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

import msgspec

import quire
from quire.gateway.routing import NO_TOKEN, Route, TokenPaths, UpstreamName, find_route
from quire.gateway.upstream import Address, Headers, Upstream, UpstreamError, UpstreamResponse, without_hop_by_hop
from quire.server.access import AccessCheck, Refusal

Mode = Literal["observe", "fold"]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
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
    tokens: tuple[str, ...] = ()
    max_body: int = 64 << 20
    connect_timeout: float = 30.0


class Gateway:
    """An ASGI application that is a proxy of model providers, and records what it passes on."""

    def __init__(self, upstreams: Mapping[UpstreamName, Address], options: Options) -> None:
        self.options = options
        self.upstreams = {
            name: Upstream(address, connect_timeout=options.connect_timeout) for name, address in upstreams.items()
        }
        self._tokens = TokenPaths(options.tokens)
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
        except UpstreamError as error:
            refusal = Refusal(HTTPStatus.BAD_GATEWAY, "upstream_unreachable", str(error))
            await _refuse(refusal, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def close(self) -> None:
        """Close idle connections."""
        for upstream in self.upstreams.values():
            upstream.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        route = self._find_route(scope, headers)
        if isinstance(route, Refusal):
            await _refuse(route, send)
            return
        if route.path.startswith(b"/quire/"):
            await self._answer_own(route, send)
            return
        body = await self._read_body(receive) if _has_body(headers) else b""
        upstream = self.upstreams[route.upstream]
        target = upstream.address.target(route.path, scope["query_string"])
        sent = without_hop_by_hop(headers, b"host")
        reached = upstream.send(scope["method"].encode(), target, sent, body)
        await _until_gone(self._relay(reached, send), receive if isinstance(body, bytes) else None)

    def _find_route(self, scope: Scope, headers: Headers) -> Route | Refusal:
        """Return the route of a request, or the reason to refuse it."""

        def header(name: str) -> Sequence[str]:
            return [value.decode("latin-1") for key, value in headers if key == name.encode()]

        refused = self._access.refusal(header)
        if refused is not None:
            return refused
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        split = self._tokens.split(path)
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

    async def _read_body(self, receive: Receive) -> bytes | AsyncIterator[bytes]:
        """Return the body. A body that is too large to be read is returned as an iterator."""
        chunks: list[bytes] = []
        size, more = 0, True
        while more and size <= self.options.max_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
        return _continue_body(b"".join(chunks), receive) if more else b"".join(chunks)

    async def _relay(self, reached: Awaitable[UpstreamResponse], send: Send) -> None:
        """Pass the response on as it arrives. A response that is cut off is passed on as cut off."""
        response = await reached
        try:
            await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
            async for chunk in response.chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except UpstreamError as error:  # the server closes the connection, because the response is not complete
            _log.warning("%s", error)
            return
        finally:
            response.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer_own(self, route: Route, send: Send) -> None:
        """Answer a request to the gateway itself."""
        if route.path == b"/quire/health":
            await _send_json(send, HTTPStatus.OK, {"quire": quire.__version__, "mode": self.options.mode})
        else:
            await _refuse(Refusal(HTTPStatus.NOT_FOUND, "no_such_route", "There is GET /quire/health."), send)


async def _until_gone(work: Any, receive: Receive | None) -> None:
    """Do the work. If the client goes away, cancel it, so that the upstream stops too."""
    if receive is None:  # the body is read while the work is done
        await work
        return
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _continue_body(start: bytes, receive: Receive) -> AsyncIterator[bytes]:
    yield start
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        yield message.get("body", b"")
        more = message.get("more_body", False)


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
