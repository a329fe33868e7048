"""Requests that the upstream refuses: they are sent again in another form, and at last as the client sent them."""

import gzip
import json
from typing import Any

import pytest

from quire.gateway.proxy import find_reason
from tests.gateway.conftest import Start
from tests.gateway.raw_upstream import RawRequest, RawResponse, RawUpstream, answer_with
from tests.gateway.scripted_client import Client
from tests.gateway.test_failures import HELLO, folded_client, header, is_folded
from tests.gateway.test_folding import BUDGET, FILLER, Worker, steps
from tests.gateway.test_recording import Recorded
from tests.strict_provider import Reply, StrictProvider


def test_what_cannot_fit_gets_the_error_of_the_provider(start: Start, provider: StrictProvider) -> None:
    provider.state.limit = BUDGET
    running = start(mode="fold", budget=BUDGET)
    client = Client(running.url, "anthropic", HELLO)
    client.system = FILLER * 60
    client.items = [{"role": "user", "content": "Hello"}]
    got = client.request()
    assert got.status == 400
    assert b"prompt is too long" in got.body
    running.gateway.sessions.drain()
    (session,) = running.gateway.list_sessions()
    assert (session.bypasses, session.errors) == (1, 1)


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_too_long_is_folded_and_sent_once_more(start: Start, provider: StrictProvider, api: Any) -> None:
    """The budget is larger than the window of the model."""
    provider.script = steps(4)
    provider.state.limit = BUDGET
    running = start(mode="fold", budget=10 * BUDGET)
    client = Worker(running.url, api, HELLO)
    client.items.append({"role": "user", "content": "Start."})
    for _ in range(40):
        got = client.request()
        assert got.status == 200, got.body
        reply = client.take(got)
        client.items += client._results(reply) or [{"role": "user", "content": "Go on."}]
    refused = {problem.rule for problem in provider.refused}
    assert len(provider.refused) <= 3, refused  # it learns the size at the first one
    assert provider.refused


def budget_after(start: Start, message: str, system: str = "Be brief.") -> tuple[int, int]:
    """Return the budget of a session after an upstream refused its requests, and the number of requests it got."""

    def answer(_: RawRequest) -> RawResponse:
        return RawResponse(400, [], [json.dumps({"error": {"message": message}}).encode()])

    with RawUpstream(answer) as upstream:
        running = start(mode="fold", anthropic=upstream.url)
        client = Client(running.url, "anthropic", HELLO)
        client.system = system
        client.items = [{"role": role, "content": FILLER * 4} for _ in range(20) for role in ("user", "assistant")][:-1]
        for _ in range(3):
            assert client.request().status == 400
        (line,) = running.gateway.sessions._lines.values()
        return line.ctx.budget, len(upstream.requests)


@pytest.mark.parametrize("system", ["Be brief.", FILLER * 200], ids=["short", "too long alone"])
def test_a_budget_stays_if_the_shorter_request_is_refused_too(start: Start, system: str) -> None:
    assert budget_after(start, "prompt is too long: 300000 tokens > 200000 maximum", system)[0] == 120_000


@pytest.mark.parametrize(
    "message",
    [
        "input length and `max_tokens` exceed context limit: 3000 + 200000 > 200000, decrease input length",
        "This model does not support the 1M context window beta.",
    ],
)
def test_an_error_about_something_else_is_passed_on(start: Start, message: str) -> None:
    assert budget_after(start, message) == (120_000, 3)


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Input is too long for requested model.",
        "the request exceeds the available context size, try increasing it",
    ],
)
def test_the_words_of_providers_for_a_long_request_are_known(message: str) -> None:
    assert find_reason(400, json.dumps({"error": {"message": message}}).encode()) == "too_long"


@pytest.mark.parametrize("encoding", ["gzip", "unknown"])
def test_an_encoded_error_is_read_and_passed_on_as_it_is(start: Start, encoding: str) -> None:
    error = gzip.compress(b'{"error": {"message": "prompt is too long"}}')
    answer = RawResponse(400, [("content-encoding", encoding)], [error])
    with RawUpstream(lambda _: answer) as upstream:
        client = Client(start(mode="fold", anthropic=upstream.url).url, "anthropic", HELLO)
        client.items = [{"role": role, "content": FILLER * 4} for _ in range(20) for role in ("user", "assistant")][:-1]
        assert client.request().body == error
        assert len(upstream.requests) == (2 if encoding == "gzip" else 1)


def thinking_client(start: Start, provider: StrictProvider) -> Client:
    """Return a client with two turns, after replies with thinking, behind a gateway in the mode `fold`."""
    client = Client(start(mode="fold").url, "anthropic", HELLO)
    provider.script = lambda _: Reply("ok", thinking=("hm",))
    client.say("One")
    client.say("Two")
    return client


def test_an_invalid_signature_is_left_out_and_stays_so(start: Start, provider: StrictProvider) -> None:
    client = thinking_client(start, provider)
    provider.refused.clear()
    client.system = "Other words."  # every block before is bound to the old prompt
    client.say("Three")
    assert len(provider.refused) == 1
    client.say("Four")
    assert len(provider.refused) == 1
    sent = provider.requests[-1]["messages"]
    kinds = [[block["type"] for block in message["content"]] for message in sent if message["role"] == "assistant"]
    assert kinds == [["text"], ["text"], ["thinking", "text"]]


def test_thinking_after_a_compaction_of_the_client_is_sent(start: Start, provider: StrictProvider) -> None:
    client = thinking_client(start, provider)
    client.system = "Other words."
    client.say("Three")
    assert len(provider.refused) == 1
    client.items = []
    client.say("This session is being continued.")
    client.say("Four")
    assert provider.requests[-1]["messages"] == client.items[:-1]
    assert len(provider.refused) == 1


def test_a_branch_leaves_out_the_thinking_that_was_refused(start: Start, provider: StrictProvider) -> None:
    running = start(mode="fold")
    client = Client(running.url, "anthropic", HELLO)
    provider.script = lambda _: Reply("ok", thinking=("hm",))
    for text in ("One", "Two", "Three"):
        client.say(text)
    client.system = "Other words."
    client.say("Four")
    assert len(provider.refused) == 1
    client.items = client.items[:4]
    client.say("Another way.")
    client.say("On")
    running.gateway.sessions.drain()
    assert len(running.gateway.list_sessions()) == 2
    assert len(provider.refused) == 1


def test_observe_never_sends_a_request_twice(start: Start, provider: StrictProvider) -> None:
    running = start()
    client = Client(running.url, "anthropic", HELLO)
    provider.script = lambda _: Reply("ok", thinking=("hm",))
    client.say("One")
    client.system = "Other words."
    client.items.append({"role": "user", "content": "Two"})
    assert client.request().status == 400
    assert len(provider.requests) == 2


def test_manual_thinking_of_a_loop_is_sent_back(start: Start) -> None:
    """Models with manual thinking refuse a tool loop without the thinking it began with."""
    seen: list[dict[str, Any]] = []
    with StrictProvider() as provider:
        made = steps(1_000)

        def answer(request: RawRequest) -> RawResponse:
            body = json.loads(request.body)
            seen.append(body)
            plain = {**body, "thinking": {"type": "adaptive"}, "messages": [{"role": "user", "content": "x"}]}
            provider.script = made
            return answer_with(provider)(request._replace(body=json.dumps(plain).encode()))

        with RawUpstream(answer) as upstream:
            running = start(mode="fold", budget=BUDGET, anthropic=upstream.url)
            thinking = {"type": "enabled", "budget_tokens": 1024}
            client = Worker(running.url, "anthropic", HELLO, thinking=thinking)
            client.items.append({"role": "user", "content": "Start."})
            for _ in range(30):
                client.items += client._results(client.take(client.request()))
    assert is_folded(seen[-1])
    for body in seen:
        first = next((message for message in body["messages"] if message["role"] == "assistant"), None)
        assert first is None or first["content"][0]["type"] == "thinking"


def test_a_tool_loop_with_manual_thinking_that_is_bound_is_sent_as_it_is(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    """The thinking of the loop may not be left out, and no shorter list of messages may be before it."""
    provider.script = steps(30)
    running = start(mode="fold", budget=BUDGET)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    client = Worker(running.url, "anthropic", HELLO, thinking=thinking)
    client.say("Start.")
    assert header(client, "x-quire") == "bypass"
    assert len(provider.refused) == 1  # after it, the loop is not folded again
    running.gateway.sessions.drain()
    assert recorded(running)["local/anthropic/one"][-1].startswith("a:Step 30 is done.")
    client.say("Go on.")  # the thinking before this loop can be left out
    assert header(client, "x-quire") is None
    assert is_folded(provider.requests[-1])
    assert running.gateway.list_sessions()[0].errors == 0


def test_a_view_that_is_refused_twice_is_replaced_by_the_original(start: Start) -> None:
    views: list[dict[str, Any]] = []
    with StrictProvider(script=steps(4)) as provider:

        def answer(request: RawRequest) -> RawResponse:
            body = json.loads(request.body)
            if is_folded(body):
                views.append(body)
                error = {"type": "error", "error": {"message": "messages.1: Invalid `signature` in `thinking` block"}}
                return RawResponse(400, [], [json.dumps(error).encode()])
            return answer_with(provider)(request)

        with RawUpstream(answer) as upstream:
            client = folded_client(start(mode="fold", budget=BUDGET, anthropic=upstream.url), provider)
            assert header(client, "x-quire") == "bypass"
            assert provider.requests[-1]["messages"][0] == client.items[0]
    assert views


def test_the_client_gets_the_first_error_if_the_second_body_is_refused_too(start: Start) -> None:
    def answer(request: RawRequest) -> RawResponse:
        size = len(json.loads(request.body)["messages"])
        return RawResponse(400, [], [json.dumps({"error": {"message": f"prompt is too long: {size}"}}).encode()])

    with RawUpstream(answer) as upstream:
        client = Client(start(mode="fold", anthropic=upstream.url).url, "anthropic", HELLO)
        client.items = [{"role": role, "content": FILLER * 4} for _ in range(20) for role in ("user", "assistant")][:-1]
        got = client.request()
        assert len(upstream.requests) == 2
    assert json.loads(got.body)["error"]["message"] == "prompt is too long: 39"
