"""Clients that open connections and send nothing, or slowly: the server closes them and answers the others."""

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

import quire
import quire.server
from quire.server.access import AccessCheck
from quire.server.connections import Connection, Connections, Limits, _network_of
from quire.server.http_server import RunningServer
from tests.marks import broad
from tests.server.conftest import TOKEN

HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = (
    b"POST /api/contexts HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{" % TOKEN.encode()
)
KEEP_ALIVE = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BOTH = (
    b"POST /api/contexts HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    % TOKEN.encode()
)


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let this process, which is both sides, open enough files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 6_000 if hard == resource.RLIM_INFINITY else min(hard, 6_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def serving(**options: Any) -> Iterator[RunningServer]:
    with quire.server.start("memory:", port=0, token=TOKEN, grace=1, **options) as running:
        yield running


class FakeConnection(Connection):
    """A connection of an address, without a socket."""

    def __init__(self, address: str) -> None:
        self.address, self.kind = address, "closed"


def connect(address: str, sent: bytes = b"") -> socket.socket:
    parts = urlsplit(address)
    opened = socket.create_connection((parts.hostname, parts.port), timeout=10)
    opened.sendall(sent)
    return opened


def ends_within(connection: socket.socket, seconds: float) -> bool:
    """Return whether the server closes a connection in this time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    "sent", [*broad(b""), HALF, *broad(HALF_BODY), KEEP_ALIVE], ids=["nothing", "headers", "body", "idle"]
)
def test_a_thousand_half_open_connections_keep_nobody_out(sent: bytes) -> None:
    with serving(header_timeout=120, patience=120) as running, ExitStack() as opened:
        for _ in range(1_000):
            connection = opened.enter_context(connect(running.address, sent))
            if sent == KEEP_ALIVE:
                assert connection.recv(65_536)  # it is answered, and idle from now on
        assert httpx.get(f"{running.address}health", timeout=30).status_code == 200


def test_headers_that_do_not_arrive_end_the_connection() -> None:
    with serving(header_timeout=0.3) as running:
        for sent in (b"", HALF, KEEP_ALIVE + HALF):
            with connect(running.address, sent) as connection:
                assert ends_within(connection, 30), sent


def test_headers_that_drip_end_the_connection() -> None:
    with serving(header_timeout=0.5) as running, connect(running.address, HALF) as connection:
        deadline = time.monotonic() + 30
        ended = False
        while not ended and time.monotonic() < deadline:
            connection.sendall(b"x")
            ended = ends_within(connection, 0.05)
        assert ended


def test_a_body_that_drips_is_refused() -> None:
    with serving(patience=0.5) as running, connect(running.address, HALF_BODY) as connection:
        deadline = time.monotonic() + 30
        answer = b""
        connection.settimeout(0.05)
        while time.monotonic() < deadline and not answer:
            connection.sendall(b" ")
            try:
                answer = connection.recv(65_536)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_connections_that_wait_are_closed_when_an_address_has_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.connections._BURST_SECONDS", 60.0)
    with serving(waiting=4) as running, ExitStack() as opened:
        first = [opened.enter_context(connect(running.address)) for _ in range(12)]
        assert not any(ends_within(each, 0.01) for each in first)  # they may have come together with their requests
        monkeypatch.setattr("quire.server.connections._BURST_SECONDS", 0.0)
        opened.enter_context(connect(running.address))
        assert all(ends_within(each, 30) for each in first[:9])
        assert not any(ends_within(each, 0.01) for each in first[9:])


def test_event_streams_do_not_count_as_requests() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with serving(listeners=300, waiting=4) as running, ExitStack() as opened:
        accepted = f"Authorization: Bearer {TOKEN}\r\nAccept: text/event-stream"
        request = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{accepted}\r\n\r\n".encode()
        streams = [opened.enter_context(connect(running.address, request)) for _ in range(300)]
        assert all(stream.recv(65_536).startswith(b"HTTP/1.1 200 ") for stream in streams)
        assert httpx.get(f"{running.address}api/contexts", headers=headers, timeout=10).status_code == 200
        assert not any(ends_within(stream, 0.01) for stream in streams[:20])


def test_too_many_requests_of_one_address_are_refused() -> None:
    connections = Connections(Limits(requests_per_address=2, requests=3))
    one, two, three, other = (FakeConnection(address) for address in ("a", "a", "a", "b"))
    for connection in (one, two, three, other):
        connections.move(connection, "request")
    assert connections.is_full(three)
    connections.move(two, "stream")
    assert not connections.is_full(three)
    assert not connections.is_full(other)
    connections.move(two, "request")
    connections.move(one, "closed")
    assert not connections.is_full(three)


def test_two_lengths_are_refused_and_the_connection_is_closed() -> None:
    with serving() as running, connect(running.address, BOTH) as connection:
        answer = b""
        connection.settimeout(30)
        while part := connection.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"ambiguous_length" in answer
    assert answer.count(b"HTTP/1.1 ") == 1  # the second request was not answered


def test_a_client_that_does_not_read_is_let_go() -> None:
    async def talk() -> bool:
        async def endless(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not made[0].transport.is_closing():
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})

        config = uvicorn.Config(endless, lifespan="off", log_config=None)
        config.load()
        server = uvicorn.Server(config)
        connections = Connections(Limits(write_seconds=0.3))
        made: list[Connection] = []

        def protocol() -> Connection:
            made.append(Connection(connections, config=config, server_state=server.server_state, app_state={}))
            return made[-1]

        listening = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(KEEP_ALIVE)
        for _ in range(600):
            await asyncio.sleep(0.05)
            if made and made[0].transport.is_closing():
                break
        closed = made[0].transport.is_closing()
        writer.close()
        listening.close()
        return closed

    assert asyncio.run(asyncio.wait_for(talk(), 20))


def test_the_addresses_of_one_ipv6_network_count_as_one() -> None:
    assert _network_of("2001:db8::1") == _network_of("2001:db8::ffff:1")
    assert _network_of("2001:db8:0:1::1") != _network_of("2001:db8::1")
    assert _network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert _network_of("10.0.0.1") == "10.0.0.1"
    assert _network_of("unix") == "unix"


def test_both_servers_refuse_two_lengths() -> None:
    refused = AccessCheck("127.0.0.1", (), None).refusal(
        lambda name: {"host": ["127.0.0.1"], "content-length": ["3"], "transfer-encoding": ["chunked"]}.get(name, [])
    )
    assert refused is not None
    assert refused.code == "ambiguous_length"
    assert refused.headers == {"connection": "close"}
