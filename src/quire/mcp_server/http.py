"""The server over streamable HTTP, with the access checks of `quire.server.access`."""

import asyncio
import logging
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.mcp_server.protocol import ContextServer
from quire.server.access import UVICORN_OPTIONS, HostCheck, Refusal, TokenCheck

PATH = "/mcp"
_MAX_BODY = 16 << 20
_MAX_SESSIONS = 1_000
_GRACE = 5
_log = logging.getLogger("quire.mcp")


class Access(NamedTuple):
    """The access checks of a server. Without `token` no token is needed."""

    host: HostCheck
    token: TokenCheck | None

    def refusal(self, headers: Headers) -> tuple[HTTPStatus, Refusal] | None:
        """Return the status and reason to refuse a request with these headers, or None."""
        refused = self.host.refusal(headers.getlist("host"), headers.getlist("origin"))
        if refused is not None:
            return HTTPStatus.FORBIDDEN, refused
        refused = self.token.refusal(headers.getlist("authorization")) if self.token else None
        return None if refused is None else (HTTPStatus.UNAUTHORIZED, refused)


class McpMiddleware:
    """Checks access, and ends open streams when the server stops."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all open streams."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":  # websockets are not supported
            await send({"type": "websocket.close", "code": 1008})
        elif (refused := self._access.refusal(Headers(scope=scope))) is not None:
            _log.info("%s %s: %s", scope["method"], refused[0].value, refused[1].code)
            await _refusal_response(*refused)(scope, receive, send)
        else:
            await self._app(scope, self._until_closed(receive), send)

    def _until_closed(self, receive: Receive) -> Receive:
        """Return a `receive` that reports a disconnect when the server stops, which ends the stream to the client."""
        is_complete = False

        async def until_closed() -> Message:
            nonlocal is_complete
            if not is_complete:
                message = await receive()
                is_complete = not message.get("more_body", False)
                return message
            closing = asyncio.ensure_future(self._closing.wait())
            receiving = asyncio.ensure_future(receive())
            try:
                await asyncio.wait((closing, receiving), return_when=asyncio.FIRST_COMPLETED)
                return receiving.result() if receiving.done() else {"type": "http.disconnect"}
            finally:
                closing.cancel()
                receiving.cancel()

        return until_closed


def _refusal_response(status: HTTPStatus, refused: Refusal) -> Response:
    error = {"code": INVALID_REQUEST, "message": refused.message, "data": {"code": refused.code}}
    headers = {"www-authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)


class _Server(uvicorn.Server):
    """A uvicorn server that ends streams before it waits for connections."""

    def __init__(self, server: ContextServer, access: Access) -> None:
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=_MAX_BODY,
            max_sessions=_MAX_SESSIONS,
            # McpMiddleware checks the Host
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._middleware = McpMiddleware(app, access)
        self._subscriptions = server.subscriptions
        super().__init__(
            uvicorn.Config(
                self._middleware,
                http="h11",
                access_log=False,
                timeout_graceful_shutdown=_GRACE,
                **UVICORN_OPTIONS,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._subscriptions.close()
        await asyncio.sleep(0)  # lets the streams send their last message
        self._middleware.close()
        await super().shutdown(sockets)


def run_http(server: ContextServer, listening: socket.socket, access: Access) -> None:
    """Serve over a bound socket until SIGINT or SIGTERM."""
    with suppress(KeyboardInterrupt):
        _Server(server, access).run(sockets=[listening])
