"""The ASGI application: dispatches requests to the routes and returns their answers.

The middleware in front of every route has access checks, limits on bodies, security headers, metrics and a log.
`quire.server.access` has the rules. Everything but the inspector's page and `/health` needs the token.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount
from starlette.routing import Route as StarletteRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import quire
from quire import metrics
from quire.errors import Conflict, QuireError
from quire.library import Library
from quire.metrics import Family, Registry
from quire.server.access import AccessCheck
from quire.server.change_stream import ChangeStream
from quire.server.context_pool import ContextPool
from quire.server.requests import decode_path, parse_body, parse_query
from quire.server.responses import JSON, Health, HttpError, to_http_error
from quire.server.routes import ROUTES, Route, describe_api
from quire.windows.app import App

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

FAMILIES = {
    "quire_http_requests_total": Family("counter", "Answered requests."),
    "quire_http_refused_total": Family("counter", "Refused requests."),
    "quire_conflicts_retried_total": Family("counter", "Changes retried after a conflict."),
    "quire_http_request_seconds": Family("histogram", "Response times."),
    "quire_requests_running": Family("gauge", "Requests that are answered now."),
    "quire_listeners": Family("gauge", "Listeners to changes now."),
    "quire_contexts_open": Family("gauge", "Open contexts now."),
}
"""The metrics of one server, in addition to those of the process."""


class AccessMiddleware:
    """Checks and measures requests, and adds headers to responses."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        bound: str,
        hosts: Iterable[str],
        metrics: Registry,
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
        path = scope["path"]
        is_page = not (path.startswith("/api/") or path in ("/health", "/metrics", "/openapi.json"))

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
            self._metrics.add("quire_http_requests_total", method=scope["method"], route=route, status=status)
            self._metrics.add("quire_http_request_seconds", seconds, route=route)
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


_INSPECTOR = Path(__file__).parent / "inspector"
_log = logging.getLogger("quire.server")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of one server. Times are in seconds, sizes in bytes.

    `hosts` are further accepted Host names. `budget` is the budget of contexts that the server creates.
    `header_timeout` limits the time to receive the headers of a request, `patience` the time to receive a body,
    `timeout` the time to answer. `waiting` is the most connections of one address without a complete request: if there
    are more, the oldest is closed. `poll` is the interval between checks for changes
    by other processes, `heartbeat` the interval between comments on an idle stream.
    """

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    budget: int | None = None
    apps: tuple[type[App], ...] = ()
    contexts: int = 32
    threads: int = 16
    waiting: int = 64
    listeners: int = 100
    max_body: int = 16 << 20
    header_timeout: float = 10.0
    patience: float = 30.0
    timeout: float = 60.0
    poll: float = 0.25
    heartbeat: float = 15.0
    grace: int = 10


class Service:
    """One store over HTTP. `app` is the ASGI application. Closing it leaves the library open."""

    def __init__(self, library: Library, token: str, options: Options) -> None:
        self.options = options
        self.metrics = Registry(FAMILIES)
        self.pool = ContextPool(library, budget=options.budget, apps=options.apps, limit=options.contexts)
        self.changes = ChangeStream(
            library, poll=options.poll, heartbeat=options.heartbeat, max_listeners=options.listeners
        )
        self._limiter = CapacityLimiter(options.threads)
        self._document: bytes | None = None
        access = Middleware(
            AccessMiddleware,
            token=token,
            bound=options.host,
            hosts=options.hosts,
            metrics=self.metrics,
            max_body=options.max_body,
            patience=options.patience,
        )
        self.app = Starlette(
            routes=self._routes(),
            middleware=[access],
            exception_handlers={HTTPException: _no_route, Exception: _unexpected_error},
            lifespan=self._lifespan,
        )

    def _routes(self) -> list[BaseRoute]:
        by_path: dict[str, list[Route]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, []).append(route)
        return [
            *(
                StarletteRoute(path, self._endpoint(routes), methods=[route.method for route in routes])
                for path, routes in by_path.items()
            ),
            StarletteRoute("/", _inspector_page, methods=["GET"]),
            Mount("/static", StaticFiles(directory=_INSPECTOR, check_dir=False)),
        ]

    def _endpoint(self, routes: list[Route]) -> Callable[[Request], Awaitable[Response]]:
        by_method: dict[str, Route] = {route.method: route for route in routes}

        async def endpoint(request: Request) -> Response:
            route = by_method["GET" if request.method == "HEAD" else request.method]
            request.scope["quire.route"] = route.path
            try:
                async with asyncio.timeout(self.options.timeout):
                    return await self._answer(route, request)
            except TimeoutError:
                text = "Timed out; the change may have been applied. Check the history."
                return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", text).response()
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:
                if not isinstance(error, QuireError | HttpError):
                    _log.exception("%s %s failed", route.method, route.path)
                return to_http_error(error).response()

        return endpoint

    async def _answer(self, route: Route, request: Request) -> Response:
        path = {name: decode_path(value) for name, value in request.path_params.items()}
        query, body = parse_query(route, request), await parse_body(route, request)
        if isinstance(route.handler, str):
            response: Response = await getattr(self, f"_get_{route.handler}")(path, query)
            return response
        given = query if route.body is None else body
        answer = await run_sync(self._call, route, path, given, abandon_on_cancel=True, limiter=self._limiter)
        if route.method != "GET":
            self.changes.nudge()
        return Response(answer, status_code=route.status, media_type=JSON)

    def _call(self, route: Route, path: dict[str, str], given: Any) -> bytes:
        """Run a handler in a thread; run it once more after a conflict with another writer."""
        try:
            return msgspec.json.encode(route.call(self.pool, path, given))
        except Conflict:
            if not route.retries:
                raise
            self.metrics.add("quire_conflicts_retried_total")
            return msgspec.json.encode(route.call(self.pool, path, given))

    # Handlers that routes name

    async def _get_health(self, path: dict[str, str], query: Any) -> Response:
        return Response(msgspec.json.encode(Health("ok", quire.__version__)), media_type=JSON)

    async def _get_openapi(self, path: dict[str, str], query: Any) -> Response:
        if self._document is None:
            self._document = msgspec.json.encode(describe_api(quire.__version__))
        return Response(self._document, media_type=JSON)

    async def _get_metrics(self, path: dict[str, str], query: Any) -> Response:
        self.metrics.set("quire_listeners", len(self.changes))
        self.metrics.set("quire_contexts_open", len(self.pool))
        return Response(self.metrics.text() + metrics.text(), media_type=metrics.CONTENT_TYPE)

    async def _get_events(self, path: dict[str, str], query: Any) -> Response:
        listener = await self.changes.listen(path.get("c"), getattr(query, "after", None))
        return StreamingResponse(self.changes.stream(listener), media_type="text/event-stream")

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.changes.close()
            await run_sync(self.pool.close)


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer a request that matches no route, or no method of a route."""
    status = HTTPStatus(error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND)
    code = {HTTPStatus.NOT_FOUND: "no_such_route", HTTPStatus.METHOD_NOT_ALLOWED: "no_such_method"}
    text = f"{status.phrase}; GET /openapi.json lists the routes."
    response = HttpError(status, code.get(status, "refused"), text).response()
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def _unexpected_error(request: Request, error: Exception) -> Response:
    """Answer a request that failed before it reached a handler."""
    return to_http_error(error).response()


async def _inspector_page(request: Request) -> Response:
    if not (_INSPECTOR / "index.html").is_file():
        return HttpError(HTTPStatus.NOT_FOUND, "no_page", "The inspector is not installed.").response()
    return FileResponse(_INSPECTOR / "index.html", media_type="text/html; charset=utf-8")
