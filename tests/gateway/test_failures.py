"""No request is lost because of quire: whatever fails, the client gets the upstream's answer or its error."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

import quire
from quire.errors import Busy
from tests.gateway.conftest import Recorded, Start
from tests.gateway.raw_upstream import RawRequest, RawResponse, RawUpstream, answer_with, send
from tests.gateway.scripted_client import Client
from tests.gateway.test_folding import BUDGET, ONE, Worker, header
from tests.strict_provider import Reply, StrictProvider

CHAT = "/v1/chat/completions"
STREAM = [("content-type", "text/event-stream")]


class FailingStorage(quire.MemoryStorage):
    """A store that raises an error at each commit while there is one."""

    error: Exception | None = None

    def commit(self, *given: Any, **named: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().commit(*given, **named)


@pytest.mark.parametrize(
    ("mode", "error"), [("fold", Busy("locked")), ("fold", RecursionError()), ("observe", RuntimeError("a bug"))]
)
def test_an_error_of_the_store_sends_the_original(
    start: Start, provider: StrictProvider, mode: str, error: Exception
) -> None:
    storage = FailingStorage()
    client = Worker(start(storage, mode=mode, budget=BUDGET).url, "anthropic", ONE)
    client.say("One")
    storage.error = error
    client.say("Two")
    assert header(client) == ("bypass" if mode == "fold" else None)
    assert provider.requests[-1] == client.body(client.items[:-1])
    storage.error = None
    client.say("Three")
    assert header(client) is None


@pytest.mark.parametrize("mode", ["observe", "fold"])
def test_an_upstream_that_cannot_be_reached_is_an_error_that_clients_read(start: Start, mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client(start(anthropic=f"http://127.0.0.1:{port}", mode=mode).url, "anthropic", ONE)
    got = client.request([{"role": "user", "content": "Hello"}])
    error = json.loads(got.body)["error"]
    assert (got.status, error["code"]) == (502, "upstream_unreachable")
    assert f"http://127.0.0.1:{port}" in error["message"]


@pytest.mark.parametrize("mode", ["observe", "fold"])
def test_a_stream_that_is_cut_is_passed_on_as_cut(start: Start, provider: StrictProvider, mode: str) -> None:
    provider.script = lambda _: Reply("a long answer", cut=3)
    got = Client(start(mode=mode).url, "anthropic", ONE).request([{"role": "user", "content": "Hello"}])
    assert (got.status, got.complete) == (200, False)
    assert b"content_block_start" in got.body


@contextmanager
def _post(gateway: Any, path: str, body: dict[str, Any], *more: str) -> Iterator[socket.socket]:
    """Send a request, and yield its connection."""
    data = json.dumps(body).encode()
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}", *more])
    with socket.create_connection((gateway.host, gateway.port)) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + data)
        yield connection


@pytest.mark.parametrize("max_body", [64 << 20, 100_000, 1_000], ids=["read", "one chunk", "many chunks"])
def test_a_client_that_goes_away_ends_the_request_to_the_upstream(start: Start, max_body: int) -> None:
    ended = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            for _ in range(1_000):
                yield b"data: {}\n\n" * 100
                time.sleep(0.01)
        finally:
            ended.set()

    body = {"messages": [{"role": "user", "content": "x" * 100_000}], "stream": True}
    with RawUpstream(lambda _: RawResponse(200, STREAM, endless())) as upstream:
        with _post(start(openai=upstream.url, max_body=max_body), CHAT, body) as connection:
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        assert ended.wait(10)


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/messages", b"message_stop"),
        (CHAT, b'"finish_reason":"stop"'),
        ("/v1/responses", b"response.completed"),
    ],
)
def test_a_reply_is_recorded_if_the_client_leaves_after_its_last_event(
    start: Start, provider: StrictProvider, recorded: Recorded, store: str, path: str, end: bytes
) -> None:
    """A client may close the connection after the last event, before the stream of the upstream ends."""
    provider.script = lambda _: Reply("all of it")
    left = threading.Event()

    def answer(request: RawRequest) -> RawResponse:
        def chunks() -> Iterator[bytes]:
            yield from complete.chunks
            yield b"data: cut in the mid"
            left.wait(10)

        complete = answer_with(provider)(request)
        return complete._replace(chunks=chunks())

    asked = [{"role": "user", "content": "Hello"}]
    fields = {"input": asked} if "responses" in path else {"messages": asked, "max_tokens": 100}
    body = {"model": "m", "stream": True, **fields}
    with RawUpstream(answer) as upstream:
        gateway = start(openai=upstream.url, anthropic=upstream.url, mode="fold")
        with _post(gateway, path, body, "X-Quire-Session: one") as connection:
            got = b""
            while end not in got.replace(b" ", b"") or b"in the mid" not in got:
                piece = connection.recv(1_000)
                assert piece, got
                got += piece
        until = time.monotonic() + 10
        while _count_messages(store) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        left.set()
        assert [*recorded().values()] == [["u:Hello", "a:all of it"]]


def _count_messages(store: str) -> int:
    with quire.Library(store) as library:
        return sum(len(library.open(name).messages()) for name in library.list(prefix="gateway/"))


def test_an_idle_connection_that_the_upstream_closed_is_replaced(start: Start) -> None:
    with RawUpstream(lambda _: RawResponse(200, [], [b"ok"], complete=False, length=True)) as upstream:
        url = start(openai=upstream.url).url
        assert [send(url, "POST", CHAT, [], b"{}").body for _ in range(3)] == [b"ok"] * 3


class _Refusing(StreamRequestHandler):
    """Refuses a request before it has read the body."""

    def handle(self) -> None:
        list(iter(self.rfile.readline, b"\r\n"))
        self.wfile.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        time.sleep(0.3)


@pytest.mark.parametrize("max_body", [64 << 20, 1_000], ids=["read", "passed on as it arrives"])
def test_an_upstream_may_refuse_a_body_before_it_has_read_it(start: Start, max_body: int) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 8_000_000}]}).encode()
    with ThreadingTCPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = start(openai=f"http://127.0.0.1:{server.server_address[1]}", max_body=max_body).url
        assert [send(url, "POST", CHAT, [], body).status for _ in range(2)] == [413] * 2
        server.shutdown()


@pytest.mark.parametrize("mode", ["observe", "fold"])
def test_the_second_of_two_gateways_passes_on_and_records_nothing(
    start: Start, provider: StrictProvider, recorded: Recorded, mode: str
) -> None:
    second = start("memory:", mode=mode)
    client = Client(start(anthropic=second.url).url, "anthropic", ONE)
    client.say("One")
    client.say("Two")
    assert header(client) == "second"
    assert json.loads(send(second.url, "GET", "/quire/sessions", []).body) == []
    assert recorded() == {"local/anthropic/one": ["u:One", "a:ok", "u:Two", "a:ok"]}
    assert not any("x-quire-gateway" in name for headers in provider.headers for name in headers)


def test_a_loop_of_gateways_is_refused(start: Start, provider: StrictProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = start(anthropic=f"http://127.0.0.1:{port}")
    two = start(anthropic=one.url, port=port)
    for running in (one, two):
        got = Client(running.url, "anthropic").request([{"role": "user", "content": "Hello"}])
        assert (got.status, json.loads(got.body)["error"]["code"]) == (508, "gateway_loop")
    assert provider.requests == []
