"""A relay between a client and a gateway, which records the bytes of both directions as the client sees them."""

import http.client
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.servers.local import LocalServer
from tests.strict_provider import StrictProvider
from tests.strict_provider.server import Exchange

_OWN = {"connection", "transfer-encoding", "content-length"}
_HOP_BY_HOP = {*_OWN, "host", "keep-alive", "upgrade"}


class Relay(LocalServer):
    """A server in a thread that passes everything on to a target. `wire` has every exchange."""

    def __init__(self, target: str = "") -> None:
        self.point_to(target)
        self.wire: list[Exchange] = []
        self.begun = self.ended = 0
        super().__init__(type("_RelayHandler", (_Handler,), {"relay": self}))

    def point_to(self, target: str) -> None:
        """Pass later requests on to another URL."""
        self.target = urlsplit(target)

    def settle(self) -> None:
        """Wait until every exchange is in `wire`: a client may leave after the last event of a stream."""
        while self.ended < self.begun:
            time.sleep(0.01)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    relay: Relay

    def _pass_on(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        target = self.relay.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port)
        self.relay.begun += 1
        try:
            with closing(connection):
                self._exchange(connection, data)
        finally:
            self.relay.ended += 1

    def _exchange(self, connection: http.client.HTTPConnection, data: bytes) -> None:
        target = self.relay.target
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, target.netloc if name.lower() == "host" else value)
        connection.endheaders(data or None)
        response = connection.getresponse()
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _OWN:
                self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        read = bytearray()
        while self.command != "HEAD" and (chunk := response.read1(65_536)):
            read += chunk
            self._write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        seen = (self.command, self.path, self.headers.items(), data, response.status)
        self.relay.wire.append(Exchange(*seen, dict(response.getheaders()), bytes(read)))
        if self.command != "HEAD":
            self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        with suppress(ConnectionError):  # the client has left
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = _pass_on  # noqa: N815 - the names that the base class calls

    def log_message(self, *_: Any) -> None:
        return


def check_wires(relay: Relay, upstream: StrictProvider) -> None:
    """Check that a client and its provider got the same bytes and headers as without what is between them."""
    relay.settle()
    sent = [exchange for exchange in relay.wire if exchange.status != 426]  # the gateway itself refuses WebSockets
    for ours, theirs in zip(_sorted(sent), _sorted(upstream.wire or ()), strict=True):
        assert (ours.method, ours.path, ours.status) == (theirs.method, theirs.path, theirs.status)
        assert ours.data == theirs.data
        assert ours.answer == theirs.answer
        assert _kept(ours.headers) == _kept(theirs.headers)
        assert _kept(theirs.answer_headers.items()) <= _kept(ours.answer_headers.items())


def _sorted(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Return the exchanges in an order that does not depend on which of two parallel ones ended first."""
    return sorted(exchanges, key=lambda exchange: (exchange.method, exchange.path, exchange.data))


def _kept(headers: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(name.lower(), value) for name, value in headers if name.lower() not in _HOP_BY_HOP}
