"""The middleware in front of every route: access checks, limits on bodies, security headers, metrics, access log.

`quire.server.access` has the rules. Everything but the inspector's page and `/health` needs the token.
"""

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.metrics import Family, Registry
from quire.server.access import AccessCheck
from quire.server.responses import HttpError

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


_FAMILIES = {
    "quire_http_requests_total": Family("counter", "Answered requests."),
    "quire_http_refused_total": Family("counter", "Refused requests."),
    "quire_conflicts_retried_total": Family("counter", "Changes retried after a conflict."),
    "quire_http_request_seconds": Family("histogram", "Response times."),
    "quire_requests_running": Family("gauge", "Requests that are answered now."),
    "quire_listeners": Family("gauge", "Listeners to changes now."),
    "quire_contexts_open": Family("gauge", "Open contexts now."),
}


class Metrics(Registry):
    """The metrics of one server, in addition to those of the process."""

    def __init__(self) -> None:
        super().__init__(_FAMILIES)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.add("quire_http_requests_total", method=method, route=route, status=status)
        self.add("quire_http_request_seconds", seconds, route=route)


class AccessMiddleware:
    """Checks and measures requests, and adds headers to responses."""

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
        self._access = AccessCheck(bound, hosts, token)
        self._metrics = metrics
        self._max_body = max_body
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # websockets are not supported
            await send({"type": "websocket.close", "code": 1008})
            return
        start, status = perf_counter(), 0
        is_page = not _is_api(scope["path"])

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["cache-control"] = "no-cache" if is_page else "no-store"
            await send(message)

        self._metrics.add("quire_requests_running")
        try:
            refused = self._refusal(scope)
            if refused is not None:
                self._metrics.add("quire_http_refused_total", why=refused.code)
                await refused.response()(scope, receive, send_with_headers)
            else:
                _use_encoded_path(scope)
                await self._app(scope, self._limit_body(receive), send_with_headers)
        finally:
            self._metrics.add("quire_requests_running", -1)
            seconds = perf_counter() - start
            route = scope.get("quire.route") or ("/static" if is_page else "none")
            self._metrics.count(scope["method"], route, status, seconds)
            _log.info("%s %s %d %.1f ms", scope["method"], route, status, seconds * 1_000)

    def _refusal(self, scope: Scope) -> HttpError | None:
        headers = Headers(scope=scope)
        refused = self._access.refusal(headers.getlist, public=_is_public(scope))
        if refused is not None:
            return HttpError(*refused)
        if _content_length(headers) > self._max_body:
            return self._too_large()
        return None

    def _limit_body(self, receive: Receive) -> Receive:
        """Return a `receive` that limits the size of the body and the time it may take."""
        received, done = 0, False
        deadline = asyncio.get_running_loop().time() + self._patience

        async def receive_limited() -> Message:
            nonlocal received, done
            if done:  # the next message is the disconnect, which may come at any time
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "too_slow", "Timed out while receiving the body.") from None
            received += len(message.get("body", b""))
            done = not message.get("more_body", False)
            if received > self._max_body:
                raise self._too_large()
            return message

        return receive_limited

    def _too_large(self) -> HttpError:
        return HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", f"The body exceeds the limit of {self._max_body:,} bytes."
        )


def _is_api(path: str) -> bool:
    return path.startswith("/api/") or path in ("/health", "/metrics", "/openapi.json")


def _is_public(scope: Scope) -> bool:
    """Return whether no token is needed: for the inspector's page, which asks for it, and for `/health`."""
    path: str = scope["path"]
    return scope["method"] in ("GET", "HEAD") and (
        path in ("/", "/health", "/favicon.ico") or path.startswith("/static/")
    )


def _use_encoded_path(scope: Scope) -> None:
    """Match the path before percent-decoding: the name of a context may contain an encoded slash."""
    raw = scope.get("raw_path")
    if raw and scope["path"].startswith("/api/"):
        scope["path"] = raw.partition(b"?")[0].decode("ascii", "replace")


def _content_length(headers: Headers) -> int:
    value = headers.get("content-length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0
