"""An upstream that records the raw bytes of requests and answers with given bytes, and a client that does the same."""

import http.client
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.servers.local import LocalServer
from tests.strict_provider import StrictProvider

HeaderList = list[tuple[str, str]]


class RawRequest(NamedTuple):
    """A request as it arrived."""

    method: str
    target: str
    headers: HeaderList
    body: bytes


class RawResponse(NamedTuple):
    """A response. Without `complete` the connection closes before its end. `length` sends a Content-Length."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    chunks: Iterable[bytes] = ()
    complete: bool = True
    length: bool = False


Answer = Callable[[RawRequest], RawResponse]


class RawUpstream(LocalServer):
    """A server in a thread. `requests` has what arrived, `answer` returns the response."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[RawRequest] = []
        super().__init__(_make_handler(self))


def answer_with(provider: StrictProvider) -> Answer:
    """Return the answers of a strict provider."""
    import json

    def answer(request: RawRequest) -> RawResponse:
        headers = {name.lower(): value for name, value in request.headers}
        found = provider.respond(request.target.partition("?")[0], json.loads(request.body), headers)
        more = [("request-id", "req_1"), *found.headers.items()]
        return RawResponse(found.status, more, found.chunks, found.complete)

    return answer


def _make_handler(upstream: RawUpstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b"".join(iter(self._read_chunk, b""))
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = RawRequest(self.command, self.path, list(self.headers.items()), body)
            upstream.requests.append(request)
            self._send(upstream.answer(request))

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the names that the base class calls

        def _read_chunk(self) -> bytes:
            size = int(self.rfile.readline(), 16)
            data = self.rfile.read(size)
            self.rfile.readline()
            return data

        def _send(self, response: RawResponse) -> None:
            self.send_response_only(response.status)
            for name, value in response.headers:
                self.send_header(name, value)
            if response.length:
                data = b"".join(response.chunks)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data if self.command != "HEAD" else b"")
            else:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for chunk in response.chunks:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.write(b"0\r\n\r\n" if response.complete else b"")
            self.close_connection = not response.complete

        def log_message(self, *_: Any) -> None:
            return

    return Handler


class Received(NamedTuple):
    """A response as a client got it. `complete` is False if the connection closed before its end."""

    status: int
    headers: HeaderList
    body: bytes
    complete: bool = True


def send(url: str, method: str, path: str, headers: HeaderList, body: bytes | None = None) -> Received:
    """Send a request with exactly these headers, a Host and a Content-Length."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=20)
    try:
        names = {name.lower() for name, _ in headers}
        connection.putrequest(method, parts.path + path, skip_host="host" in names, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        try:
            data, complete = response.read(), True
        except http.client.IncompleteRead as error:
            data, complete = error.partial, False
        return Received(response.status, response.getheaders(), data, complete)
    finally:
        connection.close()
