"""The service as an ASGI application: from the table of routes to answers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount
from starlette.routing import Route as Path_
from starlette.staticfiles import StaticFiles

import quire
from quire.errors import Conflict, InvalidValue, QuireError, short_repr
from quire.library import Library
from quire.server import told
from quire.server.asked import EventsQuery
from quire.server.desk import Asked, Desk
from quire.server.failures import Refused, refusal
from quire.server.gate import Gate
from quire.server.live import Hub
from quire.server.metrics import Metrics
from quire.server.openapi import LAST_HEARD, description, is_optional
from quire.server.options import Options
from quire.server.routes import ROUTES, Route
from quire.server.shelf import Shelf

PAGE = Path(__file__).parent / "inspector"
_log = logging.getLogger("quire.server")
_JSON = "application/json"


class Service:
    """One store over HTTP. `app` is the ASGI application; closing it leaves the library open."""

    def __init__(self, library: Library, token: str, options: Options) -> None:
        self.options = options
        self.metrics = Metrics()
        self.desk = Desk(library, Shelf(library, budget=options.budget, apps=options.apps, most=options.contexts))
        self.hub = Hub(library, poll=options.poll, heartbeat=options.heartbeat, most=options.listeners)
        self._limiter: CapacityLimiter | None = None
        self._description: bytes | None = None
        gate = Middleware(
            Gate,
            token=token,
            bound=options.host,
            hosts=options.hosts,
            metrics=self.metrics,
            max_body=options.max_body,
            patience=options.patience,
        )
        self.app = Starlette(
            routes=self._routes(),
            middleware=[gate],
            exception_handlers={HTTPException: _not_here, Exception: _failed},
            lifespan=self._lifespan,
        )

    def _routes(self) -> list[BaseRoute]:
        by_path: dict[str, list[Route]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, []).append(route)
        found: list[BaseRoute] = [
            Path_(path, self._endpoint(routes), methods=[route.method for route in routes])
            for path, routes in by_path.items()
        ]
        found.append(Path_("/", _page, methods=["GET"]))
        found.append(Mount("/static", StaticFiles(directory=PAGE, check_dir=False)))
        return found

    def _endpoint(self, routes: list[Route]) -> Callable[[Request], Awaitable[Response]]:
        by_method = {route.method: route for route in routes}

        async def endpoint(request: Request) -> Response:
            route = by_method["GET" if request.method == "HEAD" else request.method]  # type: ignore[index]
            request.scope["quire.route"] = route.path
            try:
                async with asyncio.timeout(self.options.timeout):
                    return await self._answered(route, request)
            except TimeoutError:
                return _refused(
                    Refused(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", "It took too long; it may still be done: look.")
                )
            except (QuireError, Refused) as error:
                return _refused(refusal(error))
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:
                _log.exception("%s %s failed", route.method, route.path)
                return _refused(refusal(error))

        return endpoint

    async def _answered(self, route: Route, request: Request) -> Response:
        asked = Asked(
            {name: _decoded(value) for name, value in request.path_params.items()},
            _query(route, request),
            await _body(route, request),
        )
        if isinstance(route.handler, str):
            answer: Response = await getattr(self, route.handler)(asked)
            return answer
        if self._limiter is None:
            self._limiter = CapacityLimiter(self.options.threads)
        body = await anyio.to_thread.run_sync(self._called, route, asked, abandon_on_cancel=True, limiter=self._limiter)
        if route.method != "GET":
            self.hub.nudge()
        return Response(body, status_code=route.status, media_type=_JSON)

    def _called(self, route: Route, asked: Asked) -> bytes:
        """Run a handler in a thread; what another writer came in between is done once more."""
        handler: Any = route.handler
        try:
            return msgspec.json.encode(handler(self.desk, asked))
        except Conflict:
            if not route.retried:
                raise
            self.metrics.retried += 1
            return msgspec.json.encode(handler(self.desk, asked))

    # What answers by itself

    async def health(self, asked: Asked) -> Response:
        """Whether the server is there."""
        answer = told.Health(status="ok", version=quire.__version__)
        return Response(msgspec.json.encode(answer), media_type=_JSON)

    async def describe(self, asked: Asked) -> Response:
        """The OpenAPI description."""
        if self._description is None:
            self._description = msgspec.json.encode(description(quire.__version__))
        return Response(self._description, media_type=_JSON)

    async def figures(self, asked: Asked) -> Response:
        """The metrics."""
        text = self.metrics.text(listeners=len(self.hub), contexts_open=len(self.desk.shelf))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def follow(self, asked: Asked) -> Response:
        """Live changes."""
        listener = await self.hub.listen(asked.path.get("c"), getattr(asked.query, "after", None))
        return StreamingResponse(self.hub.stream(listener), media_type="text/event-stream")

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.hub.close()
            await anyio.to_thread.run_sync(self.desk.shelf.close)


def _query(route: Route, request: Request) -> Any:
    """The parameters of a request, each given once. Raises `InvalidValue`."""
    try:
        pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidValue("The parameters are no UTF-8, percent-encoded.") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidValue("A parameter is given twice; give each once.")
    last = request.headers.get(LAST_HEARD)
    if last and route.query is EventsQuery:  # what a browser says when it comes again
        given.setdefault("after", last)
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{_worded(error)} Parameters: {_accepted(route.query)}.") from None


async def _body(route: Route, request: Request) -> Any:
    """The body of a request. Raises `InvalidValue`, or refuses what is no JSON."""
    if route.body is None:
        return None
    data = await request.body()
    if not data and is_optional(route.body):
        return route.body() if isinstance(route.body, type) else {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", f"Send a body as {_JSON}.")
    try:
        return msgspec.json.decode(data, type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(f"The body is not as it should be: {_worded(error)}") from None


def _worded(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    text = str(error)
    return text if text.endswith(".") else f"{text}."


def _accepted(query: Any) -> str:
    return ", ".join(query.__struct_fields__) or "none"


def _decoded(value: str) -> str:
    """A piece of a path as it was meant. Raises `InvalidValue`."""
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidValue(f"{short_repr(value)} in the path is no UTF-8, percent-encoded.") from None


def _refused(refused: Refused) -> Response:
    failed = told.Failed(error=told.Failure(code=refused.code, message=str(refused)))
    return Response(msgspec.json.encode(failed), status_code=refused.status, media_type=_JSON)


async def _not_here(request: Request, error: Exception) -> Response:
    """Answer where there is no route, or not for this method."""
    status = HTTPStatus(error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND)
    code = {HTTPStatus.NOT_FOUND: "no_such_route", HTTPStatus.METHOD_NOT_ALLOWED: "no_such_method"}
    found = _refused(Refused(status, code.get(status, "refused"), f"{status.phrase}; GET /openapi.json lists routes."))
    found.headers.update(getattr(error, "headers", None) or {})
    return found


async def _failed(request: Request, error: Exception) -> Response:
    """Answer what failed before a handler was reached."""
    return _refused(refusal(error))


async def _page(request: Request) -> Response:
    """The inspector."""
    if not (PAGE / "index.html").is_file():
        return _refused(Refused(HTTPStatus.NOT_FOUND, "no_page", "The inspector's page is not installed."))
    return FileResponse(PAGE / "index.html", media_type="text/html; charset=utf-8")
