"""The server over streamable HTTP, with the access checks of `quire.server.access`."""

import asyncio
import logging
import socket
from contextlib import suppress

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.mcp_server.protocol import ContextServer
from quire.server.access import UVICORN_OPTIONS, AccessCheck, Refusal
from quire.server.connections import Connections, Limits

PATH = "/mcp"
_MAX_BODY = 16 << 20
_MAX_SESSIONS = 1_000
_BODY_SECONDS = 30.0
_GRACE = 5
_log = logging.getLogger("quire.mcp")


class McpMiddleware:
    """Checks access, and ends open streams when the server stops."""

    def __init__(self, app: ASGIApp, access: AccessCheck) -> None:
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
        elif (refused := self._access.refusal(Headers(scope=scope).getlist)) is not None:
            _log.info("%s %s: %s", scope["method"], refused.status.value, refused.code)
            await _refusal_response(refused)(scope, receive, send)
        else:
            await self._app(scope, self._until_closed(receive), send)

    def _until_closed(self, receive: Receive) -> Receive:
        """Return a `receive` that reports a disconnect when the server stops, which ends the stream to the client.

        It also reports one if the body takes too long.
        """
        is_complete = False
        deadline = asyncio.get_running_loop().time() + _BODY_SECONDS

        async def until_closed() -> Message:
            nonlocal is_complete
            if not is_complete:
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await receive()
                except TimeoutError:
                    return {"type": "http.disconnect"}
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


def _refusal_response(refused: Refusal) -> Response:
    error = {"code": INVALID_REQUEST, "message": refused.message, "data": {"code": refused.code}}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, refused.status, refused.headers)


class _Server(uvicorn.Server):
    """A uvicorn server that ends streams before it waits for connections."""

    def __init__(self, server: ContextServer, access: AccessCheck) -> None:
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
                http=Connections(Limits(streams=_MAX_SESSIONS)).protocol(),
                timeout_graceful_shutdown=_GRACE,
                **UVICORN_OPTIONS,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._subscriptions.close()
        await asyncio.sleep(0)  # lets the streams send their last message
        self._middleware.close()
        await super().shutdown(sockets)


def run_http(server: ContextServer, listening: socket.socket, access: AccessCheck) -> None:
    """Serve over a bound socket until SIGINT or SIGTERM."""
    with suppress(KeyboardInterrupt):
        _Server(server, access).run(sockets=[listening])
