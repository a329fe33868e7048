"""A proxy before an S3 server that loses, cuts and delays requests, and a server that ignores conditions.

A client cannot distinguish a request that was lost from an answer that was lost: it gets no answer.
"""

import http.client
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Fault = Literal["none", "lost", "silent", "cut", "error", "error after", "busy", "late", "slow"]
FAULTS: tuple[Fault, ...] = ("lost", "silent", "cut", "error", "error after", "busy", "late")
"""lost: not forwarded, no answer. silent: forwarded, no answer. cut: half an answer. error, busy: 500 and 503 instead
of forwarding. error after: forwarded, then 500. late: no answer, forwarded a little later. `FAULTS` lacks slow: the
answer arrives after SLOW_SECONDS."""
LATE_SECONDS = 0.15
SLOW_SECONDS = 1.2


class Proxy:
    """Forwards to a server. `fault` decides what happens to each request."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or "", parts.port or 80)
        self.fault: Callable[[str, str], Fault] = lambda method, path: "none"
        self.seen: list[tuple[str, str]] = []
        self.late: list[threading.Thread] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.seen.append((handler.command, handler.path))
        fault = self.fault(handler.command, handler.path)
        if fault == "late":
            self._later(handler, body)
        if fault in ("lost", "late"):
            handler.close_connection = True
            return
        if fault in ("error", "busy"):
            _send(handler, 500 if fault == "error" else 503, {}, b"")
            return
        status, headers, data = self._forward(handler, body)
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        if fault == "silent":
            handler.close_connection = True
        elif fault == "cut":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
            handler.close_connection = True
        elif fault == "error after":
            _send(handler, 500, {}, b"")
        else:
            _send(handler, status, headers, data)

    def _later(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        def work() -> None:
            time.sleep(LATE_SECONDS)
            self._forward(handler, body)

        thread = threading.Thread(target=work)
        self.late.append(thread)
        thread.start()

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self._server, timeout=10)
        try:
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            found = connection.getresponse()
            return found.status, dict(found.getheaders()), found.read()
        finally:
            connection.close()


class CarelessServer:
    """An S3 server that ignores some conditions of writes."""

    def __init__(self, *ignored: str) -> None:
        self._ignored = ignored
        self._objects: dict[str, bytes] = {}

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        found = self._objects.get(handler.path)
        if handler.command == "PUT":
            if self._refuses(handler, found):
                _send(handler, 412, {}, b"")
                return
            self._objects[handler.path] = body
            _send(handler, 200, {"ETag": _tag(body)}, b"")
        elif handler.command == "POST":
            deleted = (b"<Deleted>%s</Deleted>" % key for key in re.findall(rb"<Key>.*?</Key>", body))
            _send(handler, 200, {}, b"<DeleteResult>%s</DeleteResult>" % b"".join(deleted))
        else:
            _send(handler, 404, {}, b"")

    def _refuses(self, handler: BaseHTTPRequestHandler, found: bytes | None) -> bool:
        create, match = handler.headers.get("If-None-Match"), handler.headers.get("If-Match")
        if create and "If-None-Match" not in self._ignored:
            return found is not None
        if match and "If-Match" not in self._ignored:
            return found is None or match != _tag(found) or "refuses all" in self._ignored
        return False


def _tag(data: bytes) -> str:
    return f'"{md5(data).hexdigest()}"'


def _send(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes) -> None:
    handler.send_response_only(status)
    for name, value in headers.items():
        if name.lower() not in ("content-length", "transfer-encoding", "connection"):
            handler.send_header(name, value)
    if handler.command != "HEAD" and status not in (204, 304):
        handler.send_header("Content-Length", str(len(data)))
    elif handler.command == "HEAD":
        handler.send_header("Content-Length", headers.get("Content-Length", "0"))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)


class _Server(ThreadingHTTPServer):
    """A server that ignores clients that disconnect: they time out or are killed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(behind: Proxy | CarelessServer) -> Iterator[str]:
    """Run a server with this behaviour and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            behind.answer(self)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - names of the base class

        def log_message(self, *arguments: Any) -> None:
            """Log nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        for late in getattr(behind, "late", []):
            late.join()
        server.shutdown()
        thread.join()
        server.server_close()
