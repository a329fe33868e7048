"""The running gateway: uvicorn in a thread or in the foreground."""

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import uvicorn

from quire.errors import StorageFailure
from quire.gateway.proxy import Gateway
from quire.server.access import UVICORN_OPTIONS, url_of
from quire.server.connections import Connections, Limits

_START_TIMEOUT = 30.0
_GRACE_SECONDS = 10
_SWITCH_SECONDS = 0.001
"""How long a thread that folds may run before a response is relayed on."""
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


class RunningGateway:
    """A running gateway. As a context manager it stops at the end."""

    def __init__(self, gateway: Gateway, listening: socket.socket, token: str | None) -> None:
        self.gateway = gateway
        self.token = token
        self.host, self.port = listening.getsockname()[:2]
        self._socket = listening
        self._server = _Server(gateway)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """The base URL for clients of Anthropic, with the token; clients of OpenAI add `/v1`."""
        base = url_of(self.host, self.port).rstrip("/")
        return base if self.token is None else f"{base}/k/{self.token}"

    def start(self) -> Self:
        """Run in a new thread; return when the gateway answers requests."""
        self._thread = threading.Thread(target=self._run_in_thread, name="quire-gateway", daemon=True)
        self._thread.start()
        self._server.ready.wait(_START_TIMEOUT)
        if self._failure is not None:
            raise StorageFailure(f"The gateway did not start: {self._failure}.") from self._failure
        return self

    def run(self, ready: Callable[[Self], None] | None = None) -> None:
        """Run in this thread until a signal stops the gateway. `ready` is called before."""
        with suppress(KeyboardInterrupt):
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, self._request_exit)
            if ready is not None:
                ready(self)
            sys.setswitchinterval(_SWITCH_SECONDS)
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Finish running requests and stop. Stopping twice is allowed."""
        self._request_exit()
        if self._thread is not None:
            self._thread.join(_GRACE_SECONDS + _START_TIMEOUT)

    def _request_exit(self, *_: object) -> None:
        self._server.should_exit = True

    def _run_in_thread(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # raised by start() in the caller's thread
            self._failure = error
        finally:
            self._server.ready.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(uvicorn.Server):
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
        self.ready = threading.Event()
        logging.getLogger("uvicorn.error").addFilter(_is_own_message)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _is_own_message(record: logging.LogRecord) -> bool:
    """Leave out what uvicorn says about responses that the upstream cut off, and about WebSockets."""
    text = str(record.msg)
    return not text.startswith(("ASGI callable returned without", "Unsupported upgrade", "No supported WebSocket"))
