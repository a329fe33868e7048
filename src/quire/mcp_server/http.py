"""Serving over streamable HTTP, behind the same rules as our other servers: our own names, our own pages, the token."""

import asyncio
import logging
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

import msgspec
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.mcp_server.protocol import BookServer
from quire.web.visitors import Names, Refusal, Token

PATH = "/mcp"
_MOST = 16 << 20
"""Bytes of a request."""
_SESSIONS = 1_000
_GRACE = 5
_log = logging.getLogger("quire.mcp")


class Doors(NamedTuple):
    """Who may come in: by these names, and with the token if there is one."""

    names: Names
    token: Token | None

    def refusal(self, headers: Headers) -> tuple[HTTPStatus, Refusal] | None:
        """Why a request may not come in; None if it may."""
        refused = self.names.refusal(headers.getlist("host"), headers.getlist("origin"))
        if refused is not None:
            return HTTPStatus.FORBIDDEN, refused
        refused = self.token.refusal(headers.getlist("authorization")) if self.token else None
        return None if refused is None else (HTTPStatus.UNAUTHORIZED, refused)


class Gate:
    """Lets requests in, and at the end tells those who still listen that nothing more comes."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app = app
        self._doors = doors
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Let everybody go who listens."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":  # no websockets here
            await send({"type": "websocket.close", "code": 1008})
        elif (refused := self._doors.refusal(Headers(scope=scope))) is not None:
            _log.info("%s %s: %s", scope["method"], refused[0].value, refused[1].code)
            await _refuse(*refused, send)
        else:
            await self._app(scope, self._until_closed(receive), send)

    def _until_closed(self, receive: Receive) -> Receive:
        """What the client sends; once we close it has gone, as far as a stream to it can tell."""
        whole = False

        async def until_closed() -> Message:
            nonlocal whole
            if not whole:
                message = await receive()
                whole = not message.get("more_body", False)
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


async def _refuse(status: HTTPStatus, refused: Refusal, send: Send) -> None:
    error = {"code": INVALID_REQUEST, "message": refused.message, "data": {"code": refused.code}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """uvicorn, with streams ended before it waits for connections."""

    def __init__(self, server: BookServer, doors: Doors) -> None:
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=_MOST,
            max_sessions=_SESSIONS,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the gate's work
        )
        self._gate = Gate(app, doors)
        self._listeners = server.listeners
        super().__init__(
            uvicorn.Config(
                self._gate,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="on",
                log_config=None,  # logging is the program's own to set up
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=_GRACE,
                limit_concurrency=1_000,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._listeners.close()
        await asyncio.sleep(0)  # streams say that they end
        self._gate.close()
        await super().shutdown(sockets)


def run_http(server: BookServer, listening: socket.socket, doors: Doors) -> None:
    """Serve whoever comes, until SIGINT or SIGTERM."""
    with suppress(KeyboardInterrupt):
        _Server(server, doors).run(sockets=[listening])
