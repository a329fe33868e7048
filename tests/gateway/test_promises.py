"""Smaller promises of docs/gateway.md: keys, summaries, redaction, stored responses, WebSockets, and other sessions."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from quire.gateway import rewriting
from quire.gateway.gateway_server import RunningGateway
from quire.gateway.sessions import Call as GatewayCall
from tests.gateway.conftest import Start
from tests.gateway.raw_upstream import send
from tests.gateway.scripted_client import Client
from tests.gateway.test_folding import BUDGET, Worker, steps
from tests.strict_provider import Reply, StrictProvider

Recorded = Callable[[RunningGateway], dict[str, list[str]]]


def _work(url: str, provider: StrictProvider, rounds: int, **headers: str) -> Worker:
    provider.script = steps(3)
    client = Worker(url, "anthropic", {"x-quire-session": "one", **headers})
    for turn in range(rounds):
        client.say(f"Begin turn {turn}.")
    return client


def test_the_key_of_folded_lines_does_not_occur_in_the_transcript(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = iter(["begin", "turn", "k7x9q2"])  # the first two are words of the client
    monkeypatch.setattr("quire.gateway.sessions.new_key", lambda _: next(keys))
    running = start(mode="fold", budget=BUDGET)
    provider.script = steps(3)
    client = Worker(running.url, "anthropic", {"x-quire-session": "one"})
    for turn in range(8):
        client.say(f"We begin the turn {turn} now.")
    sent = str(provider.requests[-1]["messages"][0])
    assert "Context key: k7x9q2." in sent


def test_a_model_writes_the_summaries_of_later_folds(start: Start, provider: StrictProvider) -> None:
    texts: list[str] = []

    def summarise(text: str, limit: int) -> str:
        texts.append(text)
        return "The model read these files with care."

    running = start(mode="fold", budget=BUDGET, summariser=summarise)
    _work(running.url, provider, 16)
    assert texts
    assert "with care" in str(provider.requests[-1]["messages"][0])
    assert provider.refused == []


def test_a_fold_delays_no_other_response(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free = threading.Event(), threading.Event()
    prepare = rewriting.Rewriter._prepare

    def slow(self: rewriting.Rewriter, call: GatewayCall) -> bytes | None:
        if call.session == "slow":
            begun.set()
            assert free.wait(30)
        return prepare(self, call)

    monkeypatch.setattr(rewriting.Rewriter, "_prepare", slow)
    provider.script = lambda _: Reply("Good morning")
    running = start(mode="fold", budget=BUDGET)
    waiting = Client(running.url, "anthropic", {"x-quire-session": "slow"})
    thread = threading.Thread(target=waiting.say, args=("Hello",))
    thread.start()
    try:
        assert begun.wait(30)
        for number in range(6):
            Client(running.url, "anthropic", {"x-quire-session": f"quick-{number}"}).say("Hello")
        assert waiting.received == []
    finally:
        free.set()
        thread.join()
    assert waiting.received[0].status == 200


def test_secrets_are_removed_from_the_record_and_not_from_the_request(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    running = start(redact=lambda text: text.replace("hunter2", "[removed]"))
    Client(running.url, "anthropic", {"x-quire-session": "one"}).say("My password is hunter2.")
    assert "hunter2" in str(provider.requests[-1])
    (texts,) = recorded(running).values()
    assert texts[0] == "u:My password is [removed]."


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_what_continues_a_stored_response_is_passed_on_and_not_recorded(
    start: Start, provider: StrictProvider, recorded: Recorded, fields: dict[str, Any]
) -> None:
    running = start(mode="fold")
    Client(running.url, "responses", {"x-quire-session": "one"}, **fields).request([{"role": "user", "content": "Hi"}])
    assert provider.requests[-1].items() >= fields.items()
    assert recorded(running) == {}


def test_a_request_for_a_websocket_is_answered_with_426(start: Start, provider: StrictProvider) -> None:
    running = start()
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    got = send(running.url, "GET", "/v1/responses", headers)
    assert got.status == 426
    assert provider.requests == []
