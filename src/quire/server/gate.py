"""The gate before everything: who may come in, how much they may bring, and what every answer carries.

The Host must be one of ours and an Origin the very address that was asked (`quire.web.visitors` has the rules), and all
but the page itself needs the token.
"""

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from time import perf_counter

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server import told
from quire.server.failures import Refused
from quire.server.metrics import Metrics
from quire.web.visitors import Names, Token

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_HEADERS = {
    "content-security-policy": _PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_log = logging.getLogger("quire.server")


class Gate:
    """Lets requests in, measures them, and dresses the answers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        bound: str,
        hosts: Iterable[str],
        metrics: Metrics,
        max_body: int,
        patience: float,
    ) -> None:
        self._app = app
        self._token = Token(token)
        self._names = Names(bound, hosts)
        self._metrics = metrics
        self._max_body = max_body
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = perf_counter(), 0
        is_page = not _is_api(scope["path"])

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["cache-control"] = "no-cache" if is_page else "no-store"
            await send(message)

        self._metrics.running += 1
        try:
            refused = self._refusal(scope)
            if refused is not None:
                self._metrics.refuse(refused.code)
                await answer(refused, scope, receive, dressed)
            else:
                _keep_encoded(scope)
                await self._app(scope, self._bounded(receive), dressed)
        finally:
            self._metrics.running -= 1
            seconds = perf_counter() - start
            route = scope.get("quire.route") or ("/static" if is_page else "none")
            self._metrics.count(scope["method"], route, status, seconds)
            _log.info("%s %s %d %.1f ms", scope["method"], route, status, seconds * 1_000)

    def _refusal(self, scope: Scope) -> Refused | None:
        headers = Headers(scope=scope)
        refused = self._names.refusal(headers.getlist("host"), headers.getlist("origin"))
        if refused is not None:
            return Refused(HTTPStatus.FORBIDDEN, *refused)
        if not _is_open(scope):
            refused = self._token.refusal(headers.getlist("authorization"))
            if refused is not None:
                return Refused(HTTPStatus.UNAUTHORIZED, *refused)
        if _length(headers) > self._max_body:
            return self._too_large()
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """A body that is neither too large nor too slow."""
        taken, done = 0, False

        async def bounded() -> Message:
            nonlocal taken, done
            if done:  # what comes now is that the client goes, whenever that is
                return await receive()
            try:
                async with asyncio.timeout(self._patience):
                    message = await receive()
            except TimeoutError:
                raise Refused(HTTPStatus.REQUEST_TIMEOUT, "too_slow", "The body took too long to come.") from None
            taken += len(message.get("body", b""))
            done = not message.get("more_body", False)
            if taken > self._max_body:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> Refused:
        return Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", f"A body has at most {self._max_body:,} bytes here."
        )


async def answer(refused: Refused, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a refusal."""
    failed = told.Failed(error=told.Failure(code=refused.code, message=str(refused)))
    body = msgspec.json.encode(failed)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        headers.append((b"connection", b"close"))  # what is left of the body is not read
    await send({"type": "http.response.start", "status": refused.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _is_api(path: str) -> bool:
    return path.startswith("/api/") or path in ("/health", "/metrics", "/openapi.json")


def _is_open(scope: Scope) -> bool:
    """Whether no token is needed: the page that asks for it, and the question whether anybody is there."""
    path: str = scope["path"]
    return scope["method"] in ("GET", "HEAD") and (
        path in ("/", "/health", "/favicon.ico") or path.startswith("/static/")
    )


def _keep_encoded(scope: Scope) -> None:
    """Let paths be matched as they were sent: a context's name may hold a slash, which stays encoded."""
    raw = scope.get("raw_path")
    if raw and scope["path"].startswith("/api/"):
        scope["path"] = raw.partition(b"?")[0].decode("ascii", "replace")


def _length(headers: Headers) -> int:
    value = headers.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0
