"""The running gateway: uvicorn in a thread or in the foreground."""

import gc
import logging
import signal
import socket
import sys
import threading
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import uvicorn

from quire.gateway.proxy import Gateway
from quire.server.access import UVICORN_OPTIONS, url_of
from quire.server.connections import Connections, Limits, ThreadedServer, UvicornServer

_GRACE_SECONDS = 10
_SWITCH_SECONDS = 0.001
"""Python's thread switch interval. A thread that folds delays the relay of a response by at most this time."""
_MANY = 10_000
_LIMITS = Limits(
    header_seconds=60.0,
    write_seconds=600.0,  # a client that is paused in its terminal does not read
    waiting=_MANY,
    waiting_per_address=_MANY,
    requests=_MANY,
    requests_per_address=_MANY,
    streams=_MANY,
)


class RunningGateway(ThreadedServer):
    """A running gateway. As a context manager it stops at the end."""

    def __init__(self, gateway: Gateway, listening: socket.socket) -> None:
        super().__init__("gateway", _Server(gateway), listening, _GRACE_SECONDS)
        self.gateway = gateway
        self.token = gateway.options.token

    @property
    def url(self) -> str:
        """The base URL for clients of Anthropic, with the token; clients of OpenAI add `/v1`."""
        base = url_of(self.host, self.port).rstrip("/")
        return base if self.token is None else f"{base}/k/{self.token}"

    def run(self, ready: Callable[[Self], None] | None = None) -> None:
        """Run in this thread until a signal stops the gateway. `ready` is called before the gateway starts."""
        with suppress(KeyboardInterrupt):
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, self._request_exit)
            if ready is not None:
                ready(self)
            sys.setswitchinterval(_SWITCH_SECONDS)
            gc.freeze()  # later collections skip the objects that exist now, so they are short
            self._serve()


class _Server(UvicornServer):
    def __init__(self, gateway: Gateway) -> None:
        super().__init__(
            uvicorn.Config(
                gateway,
                http=Connections(_LIMITS).protocol(),
                timeout_graceful_shutdown=_GRACE_SECONDS,
                h11_max_incomplete_event_size=64 << 10,
                date_header=False,  # the upstream has sent one
                **UVICORN_OPTIONS,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_is_own_message)


def _is_own_message(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's messages about WebSockets, and about responses that the upstream or a stop cut off."""
    is_stopped = record.exc_info is not None and isinstance(record.exc_info[1], CancelledError)
    hidden = ("ASGI callable returned without", "Unsupported upgrade", "No supported WebSocket")
    return not is_stopped and not str(record.msg).startswith(hidden)
