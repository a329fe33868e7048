"""The inspector shows the sessions of the gateway, switches their modes, and undoes folds."""

import time
from collections.abc import Callable

import httpx

import quire
import quire.gateway
from quire.server.gateway_ledger import Ledger
from tests.server.inspector.conftest import Opener
from tests.server.inspector.visitor import expect
from tests.strict_provider import Fault, Reply, StrictProvider

BUDGET = 1_500


def _say(client: httpx.Client, messages: list[dict[str, str]], text: str) -> None:
    messages.append({"role": "user", "content": text})
    body = {"model": "claude-fable-5-1", "max_tokens": 100, "messages": messages, "tools": []}
    answer = client.post("/v1/messages", json=body, headers={"x-quire-session": "mine"}).json()
    messages.append({"role": "assistant", "content": answer["content"]})


def test_sessions_of_the_gateway_are_shown_live_and_can_be_switched_and_undone(visit: Opener) -> None:
    visitor = visit()
    reply = Reply("It is well. " * 40)
    overloads: list[Fault] = []
    with (
        StrictProvider(script=lambda _: overloads.pop() if overloads else reply) as upstream,
        quire.gateway.start(visit.stand.path, anthropic=upstream.url, mode="fold", budget=BUDGET, port=0) as gateway,
        httpx.Client(base_url=gateway.url, timeout=30) as client,
    ):
        messages: list[dict[str, str]] = []
        _say(client, messages, "How is part 0?")
        visitor.page.evaluate("location.hash = '#/gateway'")
        card = visitor.find(".gateway-session", "mine")
        expect(card.locator(".gateway-requests dd")).to_have_text("1")
        expect(card.locator(".gateway-folds dd")).to_have_text("0")
        for part in range(1, 12):
            _say(client, messages, f"How is part {part}? " + "Look at it. " * 20)
        expect(card.locator(".gateway-requests dd")).to_have_text("12")
        expect(card.locator(".gateway-folds dd")).not_to_have_text("0")
        saved = card.locator(".gateway-saved_tokens dd").inner_text().replace(",", "")
        expect(card.locator(".gateway-money dd")).to_have_text(f"${int(saved) * 10 / 1e6:.2f}")  # $10 in the table
        visitor.find(".gateway-price").fill("1000000")
        expect(card.locator(".gateway-money dd")).to_have_text(f"${saved}.00")
        overloads.append(Fault(529))
        body = {"model": "claude-fable-5-1", "max_tokens": 100, "messages": messages[:-1], "tools": []}
        for status in (529, 200):  # the same request again and again
            answer = client.post("/v1/messages", json=body, headers={"x-quire-session": "mine"})
            assert answer.status_code == status
        expect(card.locator(".gateway-requests dd")).to_have_text("14")
        expect(card.locator(".gateway-retries dd")).to_have_text("2")
        expect(card.locator(".gateway-errors dd")).to_have_text("1")
        card.get_by_text("observe", exact=True).click()
        expect(card.locator("[aria-pressed=true]")).to_have_text("observe")
        name = "gateway/local/anthropic/mine"
        _wait(lambda: gateway.gateway.sessions.infos[name].mode == "observe")
        sent = len(upstream.requests)
        _say(client, messages, "And the last part?")
        assert len(upstream.requests[sent]["messages"]) == len(messages) - 1  # the whole transcript
        card.get_by_text("Use the mode of the gateway").click()
        expect(card.get_by_text("Use the mode of the gateway")).to_have_count(0)
        _wait(lambda: gateway.gateway.sessions.infos[name].mode == "fold")
        card.get_by_text("observe", exact=True).click()
        gateway.gateway.sessions.drain()
        card.get_by_text("Undo the last fold").click()
        expect(visitor.find(".toast, .notice", "is undone")).to_be_visible()
    with quire.Library(visit.stand.path) as library:
        (session,) = Ledger(library).sessions()
        assert (session.chosen, session.requests, session.errors) == ("observe", 15, 1)
        with library.open(name) as context:
            assert any(entry.operation == "undo" for entry in context.history())


def _wait(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
