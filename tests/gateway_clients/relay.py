"""A relay between a client and a gateway, which records the bytes of both directions as the client sees them."""

import http.client
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.servers.local import LocalServer
from tests.strict_provider.server import Exchange

_OWN = {"connection", "transfer-encoding", "content-length"}


class Relay(LocalServer):
    """A server in a thread that passes everything on to `target`. `wire` has every exchange."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.wire: list[Exchange] = []
        super().__init__(type("_RelayHandler", (_Handler,), {"relay": self}))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    relay: Relay

    def _pass_on(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        target = self.relay.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port)
        with closing(connection):
            self._exchange(connection, data)

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
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if self.command != "HEAD":
            self.wfile.write(b"0\r\n\r\n")
        seen = (self.command, self.path, self.headers.items(), data, response.status)
        self.relay.wire.append(Exchange(*seen, dict(response.getheaders()), bytes(read)))

    do_GET = do_HEAD = do_POST = _pass_on  # noqa: N815 - the names that the base class calls

    def log_message(self, *_: Any) -> None:
        return
