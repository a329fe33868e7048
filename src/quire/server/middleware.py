"""The middleware in front of every route: access checks, limits on bodies, security headers, metrics, access log.

`quire.server.access` has the rules. Everything but the inspector's page and `/health` needs the token.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.access import AccessCheck
from quire.server.responses import HttpError

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
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


class Metrics:
    """Counters for Prometheus. They are used on the event loop only, so no lock is needed."""

    def __init__(self) -> None:
        self.running = 0
        self.retried = 0
        self.refused: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests[method, route, status] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(_BOUNDS) + 1))
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds[route] += seconds

    def text(self, **gauges: int) -> str:
        """Return all metrics in Prometheus format, with the given gauges."""
        return "\n".join([*self._lines(), *_gauges(requests_running=self.running, **gauges), ""])

    def _lines(self) -> Iterator[str]:
        yield from _head("quire_http_requests_total", "counter", "Answered requests.")
        for (method, route, status), number in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"quire_http_requests_total{{{labels}}} {number}"
        yield from _head("quire_http_refused_total", "counter", "Refused requests.")
        for why, number in sorted(self.refused.items()):
            yield f'quire_http_refused_total{{why="{why}"}} {number}'
        yield from _head("quire_conflicts_retried_total", "counter", "Changes retried after a conflict.")
        yield f"quire_conflicts_retried_total {self.retried}"
        yield from _head("quire_http_request_seconds", "histogram", "Response times.")
        for route, buckets in sorted(self._buckets.items()):
            below = 0
            for bound, number in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                below += number
                yield f'quire_http_request_seconds_bucket{{route="{route}",le="{bound}"}} {below}'
            yield f'quire_http_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'quire_http_request_seconds_count{{route="{route}"}} {below}'


def _gauges(**values: int) -> Iterator[str]:
    for name, value in values.items():
        yield from _head(f"quire_{name}", "gauge", f"{name.replace('_', ' ').capitalize()} now.")
        yield f"quire_{name} {value}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


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

        self._metrics.running += 1
        try:
            refused = self._refusal(scope)
            if refused is not None:
                self._metrics.refused[refused.code] += 1
                await refused.response()(scope, receive, send_with_headers)
            else:
                _use_encoded_path(scope)
                await self._app(scope, self._limit_body(receive), send_with_headers)
        finally:
            self._metrics.running -= 1
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
