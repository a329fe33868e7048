"""No request is lost because of quire: whatever fails, the client gets the upstream's answer or its error."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, cast

import pytest

import quire
from quire.errors import Busy, InvalidValue, NoSuchContext
from quire.gateway import gateway_server
from quire.gateway.figures import FigureKeeper
from quire.gateway.gateway_server import RunningGateway
from quire.gateway.line import Line
from quire.server.gateway_ledger import Ledger
from tests.gateway.conftest import Start
from tests.gateway.raw_upstream import RawRequest, RawResponse, RawUpstream, answer_with, send
from tests.gateway.scripted_client import Client
from tests.gateway.test_folding import BUDGET, Worker, steps
from tests.gateway.test_recording import Recorded
from tests.strict_provider import Reply, StrictProvider

HELLO = {"x-quire-session": "one"}


def header(client: Client, name: str) -> str | None:
    return {key.lower(): value for key, value in client.received[-1].headers}.get(name)


@pytest.mark.parametrize("error", [Busy("locked"), RuntimeError("a bug"), RecursionError()])
def test_an_error_of_quire_sends_the_original(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    running = start(mode="fold", budget=BUDGET)
    client = Worker(running.url, "anthropic", HELLO)
    client.say("One")
    monkeypatch.setattr(Line, "append", fail)
    client.say("Two")
    assert header(client, "x-quire") == "bypass"
    assert provider.requests[-1] == client.body(client.items[:-1])
    monkeypatch.undo()
    client.say("Three")
    assert header(client, "x-quire") is None
    running.gateway.sessions.drain()


def test_figures_that_were_not_stored_are_stored_at_the_next_update(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start()
    Client(running.url, "anthropic", HELLO).say("One")
    running.gateway.sessions.drain()
    keeper, tries = FigureKeeper(running.gateway.sessions), []

    def fail_once(changed: dict[str, Any]) -> None:
        tries.append(len(changed))
        if len(tries) == 1:
            raise Busy("locked")

    monkeypatch.setattr(keeper._ledger, "write", fail_once)
    for _ in range(3):
        keeper.update()
    assert tries == [1, 1, 0]


def test_observe_does_not_notice_an_error_of_quire(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start()
    monkeypatch.setattr(Line, "append", lambda *_: 1 / 0)
    client = Client(running.url, "chat", HELLO)
    client.say("One")
    client.say("Two")
    assert header(client, "x-quire") is None
    running.gateway.sessions.drain()


def test_a_line_that_is_locked_is_passed(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.gateway.rewriting._LOCK_SECONDS", 0.1)
    running = start(mode="fold")
    client = Client(running.url, "chat", HELLO)
    client.say("One")
    running.gateway.sessions.drain()
    sessions = running.gateway.sessions
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with sessions._locks["gateway/local/openai/one"]:
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    client.say("Two")
    release.set()
    thread.join()
    assert header(client, "x-quire") == "bypass"


@pytest.mark.parametrize("mode", ["observe", "fold"])
def test_an_upstream_that_cannot_be_reached_is_an_error_that_clients_read(start: Start, mode: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    running = start(anthropic=f"http://127.0.0.1:{port}", mode=mode)
    client = Client(running.url, "anthropic", HELLO)
    client.items = [{"role": "user", "content": "Hello"}]
    got = client.request()
    assert got.status == 502
    error = json.loads(got.body)["error"]
    assert error["code"] == "upstream_unreachable"
    assert f"http://127.0.0.1:{port}" in error["message"]
    running.gateway.sessions.drain()
    (session,) = running.gateway.list_sessions()
    assert (session.requests, session.errors, session.last_status) == (1, 1, 502)


def test_a_stream_that_is_cut_is_passed_on_as_cut(start: Start, provider: StrictProvider) -> None:
    for mode in ("observe", "fold"):
        running = start(mode=mode)
        provider.script = lambda _: Reply("a long answer", cut=3)
        client = Client(running.url, "anthropic", {"x-quire-session": mode})
        client.items = [{"role": "user", "content": "Hello"}]
        got = client.request()
        assert (got.status, got.complete) == (200, False)
        assert b"content_block_start" in got.body


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

    def answer(_: RawRequest) -> RawResponse:
        return RawResponse(200, [("content-type", "text/event-stream")], endless())

    with RawUpstream(answer) as upstream:
        running = start(openai=upstream.url, max_body=max_body)
        with socket.create_connection((running.host, running.port)) as connection:
            body = json.dumps({"messages": [{"role": "user", "content": "x" * 100_000}], "stream": True}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        assert ended.wait(10)


def test_a_gateway_that_stops_cuts_off_a_stream_without_a_traceback(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gateway_server, "_GRACE_SECONDS", 1)
    stopped = threading.Event()

    def waiting() -> Iterator[bytes]:
        yield b"data: {}\n\n"
        stopped.wait(20)

    with RawUpstream(lambda _: RawResponse(200, [("content-type", "text/event-stream")], waiting())) as upstream:
        running = start(openai=upstream.url)
        with socket.create_connection((running.host, running.port)) as connection:
            connection.sendall(b"GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
            running.stop()
            while connection.recv(1_000):
                pass
        stopped.set()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert "Cancel 1 running task(s)" in caplog.text


@pytest.mark.parametrize("mode", ["observe", "fold"])
@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/messages", b"message_stop"),
        ("/v1/chat/completions", b'"finish_reason":"stop"'),
        ("/v1/responses", b"response.completed"),
    ],
)
def test_a_reply_is_recorded_if_the_client_leaves_after_its_last_event(
    start: Start, provider: StrictProvider, recorded: Recorded, path: str, end: bytes, mode: str
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

    with RawUpstream(answer) as upstream:
        running = start(openai=upstream.url, anthropic=upstream.url, mode=mode)
        asked = [{"role": "user", "content": "Hello"}]
        fields = {"input": asked} if "responses" in path else {"messages": asked, "max_tokens": 100}
        data = json.dumps({"model": "m", "stream": True, **fields}).encode()
        with socket.create_connection((running.host, running.port)) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Quire-Session: one\r\nContent-Length: {len(data)}"
            connection.sendall(head.encode() + b"\r\n\r\n" + data)
            got = b""
            while end not in got.replace(b" ", b"") or b"in the mid" not in got:
                piece = connection.recv(1_000)
                assert piece, got
                got += piece
        until = time.monotonic() + 10
        while (found := [*recorded(running).values()]) != [["u:Hello", "a:all of it"]] and time.monotonic() < until:
            time.sleep(0.05)
        left.set()
    assert found == [["u:Hello", "a:all of it"]]


def test_an_idle_connection_that_the_upstream_closed_is_replaced(start: Start) -> None:
    with RawUpstream(lambda _: RawResponse(200, [], [b"ok"], complete=False, length=True)) as upstream:
        running = start(openai=upstream.url)
        for _ in range(3):
            assert send(running.url, "POST", "/v1/chat/completions", [], b"{}").body == b"ok"


@pytest.mark.parametrize("kept", [0, 1], ids=["new connection", "connection used before"])
def test_an_upstream_that_closes_without_an_answer_is_named_in_the_error(start: Start, kept: int) -> None:
    heads: list[bytes] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            for _ in range(kept + 1):
                heads.append(b"".join(iter(self.rfile.readline, b"\r\n")))
                self.rfile.read(2)
                if len(heads) <= kept:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                else:
                    return

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        running = start(openai=f"http://127.0.0.1:{server.server_address[1]}")
        for _ in range(kept):
            assert send(running.url, "POST", "/v1/chat/completions", [], b"{}").body == b"ok"
        got = send(running.url, "POST", "/v1/chat/completions", [], b"{}")
        server.shutdown()
    assert got.status == 502
    assert json.loads(got.body)["error"]["message"] == "The upstream closed the connection without an answer."
    assert len(heads) == 1 + 2 * kept  # over a connection that was used before, it is sent once more


@pytest.mark.parametrize("max_body", [64 << 20, 1_000], ids=["read", "passed on as it arrives"])
def test_an_upstream_may_refuse_a_body_before_it_has_read_it(start: Start, max_body: int) -> None:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            list(iter(self.rfile.readline, b"\r\n"))
            self.wfile.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
            time.sleep(0.3)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        running = start(openai=f"http://127.0.0.1:{server.server_address[1]}", max_body=max_body)
        body = json.dumps({"messages": [{"role": "user", "content": "x" * 8_000_000}]}).encode()
        for _ in range(3):
            assert send(running.url, "POST", "/v1/chat/completions", [], body).status == 413
        server.shutdown()


def test_a_store_that_disappears_does_not_stop_the_gateway(start: Start, provider: StrictProvider, store: str) -> None:
    running = start(mode="fold")
    client = Client(running.url, "chat", HELLO)
    client.say("One")
    running.gateway.sessions.drain()
    running.gateway.sessions.library.storage.close()
    client.say("Two")
    assert header(client, "x-quire") == "bypass"
    assert [item["role"] for item in client.items] == ["user", "assistant"] * 2


# The mode `fold` in special cases


def folded_client(running: RunningGateway, provider: StrictProvider, rounds: int = 30) -> Worker:
    """Return a client after a run that was folded."""
    provider.script = steps(4)
    client = Worker(running.url, "anthropic", {"x-claude-code-session-id": "one"})
    client.items.append({"role": "user", "content": "Start."})
    for _ in range(rounds):
        reply = client.take(client.request())
        client.items += client._results(reply) or [{"role": "user", "content": "Go on."}]
    return client


def is_folded(body: dict[str, Any]) -> bool:
    return "Context key" in json.dumps(body["messages"][0])


def test_count_tokens_is_rewritten_like_the_request(start: Start, provider: StrictProvider) -> None:
    running = start(mode="fold", budget=BUDGET)
    client = folded_client(running, provider)
    client.request()
    sent = provider.requests[-1]
    count = {key: value for key, value in client.body().items() if key not in ("stream", "max_tokens")}
    got = send(running.url, "POST", "/v1/messages/count_tokens", client.headers, json.dumps(count).encode())
    assert got.status == 200
    assert provider.requests[-1]["messages"] == sent["messages"]
    assert is_folded(sent)
    other = {**count, "messages": [{"role": "user", "content": "How long is this?"}]}
    send(running.url, "POST", "/v1/messages/count_tokens", client.headers, json.dumps(other).encode())
    assert provider.requests[-1] == other


def test_a_restarted_gateway_sends_the_same_prefix(start: Start, provider: StrictProvider) -> None:
    first = start(mode="fold", budget=BUDGET)
    client = folded_client(first, provider)
    client.request()
    before = provider.requests[-1]["messages"]
    first.gateway.sessions.drain()
    client.url = start(mode="fold", budget=BUDGET).url
    client.take(client.request())
    assert is_folded({"messages": before})
    assert provider.requests[-1]["messages"] == before
    assert provider.refused == []


def test_a_compaction_call_of_a_folded_session_fits(start: Start, provider: StrictProvider, store: str) -> None:
    provider.state.limit = BUDGET + 500
    running = start(mode="fold", budget=BUDGET)
    client = folded_client(running, provider)
    client.request()  # the request that makes the client compact
    last = dict(client.items[-1])
    blocks = last["content"] if isinstance(last["content"], list) else [{"type": "text", "text": last["content"]}]
    asked = {"role": "user", "content": [*blocks, {"type": "text", "text": "Summarise this conversation."}]}
    got = client.request([*client.items[:-1], asked])
    assert got.status == 200
    assert is_folded(provider.requests[-1])
    assert provider.refused == []
    client.take(client.request())
    running.gateway.sessions.drain()
    with quire.Library(store) as library:
        texts = [message.text for message in library.open(next(iter(library.list(prefix="gateway/")))).messages()]
    assert not any("Summarise this" in text for text in texts)


def test_a_branch_of_a_folded_session_fits(start: Start, provider: StrictProvider, store: str) -> None:
    provider.state.limit = BUDGET + 500
    running = start(mode="fold", budget=BUDGET)
    client = folded_client(running, provider, 60)
    turn = [n for n, item in enumerate(client.items) if item["role"] == "user" and isinstance(item["content"], str)]
    client.items = [*client.items[: turn[-6]], {"role": "user", "content": "Another way."}]
    assert client.request().status == 200
    assert is_folded(provider.requests[-1])
    assert provider.refused == []
    running.gateway.sessions.drain()
    with quire.Library(store) as library:
        assert len(list(library.list(prefix="gateway/"))) == 2


def test_one_session_is_switched_between_the_modes(start: Start, provider: StrictProvider) -> None:
    running = start(mode="observe", budget=BUDGET)
    client = folded_client(running, provider)
    running.gateway.sessions.drain()
    assert not is_folded(provider.requests[-1])
    name = running.gateway.list_sessions()[0].name
    running.gateway.sessions.set_mode(name, "fold")
    client.request()
    assert is_folded(provider.requests[-1])
    running.gateway.sessions.set_mode(name, "observe")
    client.request()
    assert not is_folded(provider.requests[-1])


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_a_wrong_upstream_is_refused_with_an_example_of_its_provider(name: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^{name} is 'ftp://x'; .*https://api\.{name}\.com ") as error:
        quire.gateway.create_app("memory:", **cast(Any, {name: "ftp://x"}))
    assert error.value.argument == name


def test_an_unknown_mode_or_session_is_refused(start: Start, store: str) -> None:
    running = start(mode="observe")
    Client(running.url, "anthropic", {"x-quire-session": "one"}).say("One")
    running.gateway.sessions.drain()
    sessions = running.gateway.sessions
    (name,) = (session.name for session in running.gateway.list_sessions())
    with pytest.raises(InvalidValue) as wrong:
        sessions.set_mode(name, cast(Any, "folds"))
    assert wrong.value.argument == "mode"
    assert all(accepted in str(wrong.value) for accepted in ("'folds'", "observe", "fold"))
    with pytest.raises(NoSuchContext) as unknown:
        sessions.set_mode("gateway/no/such/session", "fold")
    assert unknown.value.context == "gateway/no/such/session"
    assert (sessions.modes, running.gateway.list_sessions()[0].mode) == ({}, "observe")
    running.stop()
    with quire.Library(store) as library:
        assert [session.mode for session in Ledger(library).sessions()] == ["observe"]


def test_a_gateway_starts_if_a_session_with_a_chosen_mode_was_deleted(start: Start, store: str) -> None:
    first = start(mode="fold")
    Client(first.url, "anthropic", {"x-quire-session": "one"}).say("One")
    first.stop()
    with quire.Library(store) as library:
        Ledger(library).choose_mode("gateway/local/anthropic/one", "observe")
        library.delete("gateway/local/anthropic/one")
    second = start(mode="fold")
    client = Client(second.url, "anthropic", {"x-quire-session": "one"})
    client.say("One")
    assert client.received[-1].status == 200
