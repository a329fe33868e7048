"""Requests that the upstream refuses: they are sent again in another form, and at last as the client sent them."""

import gzip
import json
from typing import Any

import pytest

from tests.gateway.conftest import Start
from tests.gateway.raw_upstream import RawRequest, RawResponse, RawUpstream, answer_with
from tests.gateway.scripted_client import Client
from tests.gateway.test_folding import BUDGET, FILLER, ONE, Worker, header, is_folded, steps
from tests.strict_provider import Reply, StrictProvider

LONG = [{"role": role, "content": FILLER * 4} for _ in range(12) for role in ("user", "assistant")][:-1]


def test_what_cannot_fit_gets_the_error_of_the_provider(start: Start, provider: StrictProvider) -> None:
    provider.state.limit = BUDGET
    client = Client(start(mode="fold", budget=BUDGET).url, "anthropic", ONE)
    client.system = FILLER * 60
    got = client.request([{"role": "user", "content": "Hello"}])
    assert (got.status, header(client)) == (400, "bypass")
    assert b"prompt is too long" in got.body


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_too_long_is_folded_and_sent_once_more(start: Start, provider: StrictProvider, api: Any) -> None:
    """The budget is larger than the window of the model."""
    provider.script = steps(4)
    provider.state.limit = BUDGET
    client = Worker(start(mode="fold", budget=10 * BUDGET).url, api, ONE)
    client.items.append({"role": "user", "content": "Start."})
    client.work(18)
    assert 1 <= len(provider.refused) <= 3  # it learns the size at the first one


@pytest.mark.parametrize(
    ("message", "tries"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", 2),
        ("This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.", 2),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", 2),
        ("Input is too long for requested model.", 2),
        ("the request exceeds the available context size, try increasing it", 2),
        ("input length and `max_tokens` exceed context limit: 3000 + 200000 > 200000, decrease input length", 1),
        ("This model does not support the 1M context window beta.", 1),
    ],
)
def test_the_words_of_providers_for_a_long_request_are_known(start: Start, message: str, tries: int) -> None:
    """The request is folded and sent once more; if that is refused too, the client gets the first error."""
    sizes: list[int] = []

    def answer(request: RawRequest) -> RawResponse:
        sizes.append(len(json.loads(request.body)["messages"]))
        data = json.dumps({"error": {"message": message, "size": sizes[-1]}}).encode()
        return RawResponse(400, [("content-encoding", "gzip")], [gzip.compress(data)])

    with RawUpstream(answer) as upstream:
        got = Client(start(mode="fold", anthropic=upstream.url).url, "anthropic", ONE).request(LONG)
    assert len(sizes) == tries
    assert (sizes[0], sizes[-1] < len(LONG)) == (len(LONG), tries == 2)
    assert json.loads(gzip.decompress(got.body))["error"]["size"] == len(LONG)


def test_an_error_in_an_unknown_encoding_is_passed_on(start: Start) -> None:
    answer = RawResponse(400, [("content-encoding", "unknown")], [b"prompt is too long"])
    with RawUpstream(lambda _: answer) as upstream:
        got = Client(start(mode="fold", anthropic=upstream.url).url, "anthropic", ONE).request(LONG)
        assert (got.status, got.body, len(upstream.requests)) == (400, b"prompt is too long", 1)


def thinking_client(start: Start, provider: StrictProvider, mode: str = "fold") -> Client:
    """Return a client with two turns, after replies with thinking, whose prompt has changed since."""
    client = Client(start(mode=mode).url, "anthropic", ONE)
    provider.script = lambda _: Reply("ok", thinking=("hm",))
    client.say("One")
    client.say("Two")
    client.system = "Other words."  # every block before is bound to the old prompt
    return client


def test_an_invalid_signature_is_left_out_and_stays_so(start: Start, provider: StrictProvider) -> None:
    client = thinking_client(start, provider)
    client.say("Three")
    client.say("Four")
    assert len(provider.refused) == 1
    sent = provider.requests[-1]["messages"]
    kinds = [[block["type"] for block in message["content"]] for message in sent if message["role"] == "assistant"]
    assert kinds == [["text"], ["text"], ["thinking", "text"]]
    client.items = client.items[:4]
    client.say("Another way.")  # a branch leaves it out too
    client.say("On")
    assert len(provider.refused) == 1
    client.items = []
    client.say("This session is being continued.")  # after a compaction of the client, thinking is sent again
    client.say("More")
    assert provider.requests[-1]["messages"] == client.items[:-1]
    assert len(provider.refused) == 1


def test_observe_never_sends_a_request_twice(start: Start, provider: StrictProvider) -> None:
    client = thinking_client(start, provider, "observe")
    client.items.append({"role": "user", "content": "Three"})
    assert client.request().status == 400
    assert len(provider.requests) == 3


def test_a_tool_loop_with_manual_thinking_that_is_bound_is_sent_as_it_is(
    start: Start, provider: StrictProvider
) -> None:
    """The thinking of the loop may not be left out, and no shorter list of messages may be before it."""
    provider.script = steps(20)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    client = Worker(start(mode="fold", budget=BUDGET).url, "anthropic", ONE, thinking=thinking)
    client.say("Start.")
    assert header(client) == "bypass"
    assert len(provider.refused) == 1  # after it, the loop is not folded again
    client.say("Go on.")  # the thinking before this loop can be left out
    assert header(client) is None
    assert is_folded(provider.requests[-1], client)


def test_a_view_that_is_refused_twice_is_replaced_by_the_original(start: Start, provider: StrictProvider) -> None:
    views: list[Any] = []
    provider.script = steps(4)
    error = {"type": "error", "error": {"message": "messages.1: Invalid `signature` in `thinking` block"}}

    def answer(request: RawRequest) -> RawResponse:
        body = json.loads(request.body)
        if len(body["messages"]) < len(client.items):
            views.append(body)
            return RawResponse(400, [], [json.dumps(error).encode()])
        return answer_with(provider)(request)

    with RawUpstream(answer) as upstream:
        client = Worker(start(mode="fold", budget=BUDGET, anthropic=upstream.url).url, "anthropic", ONE)
        client.items.append({"role": "user", "content": "Start."})
        client.work(18)
    assert views
    assert header(client) == "bypass"
    assert provider.requests[-1]["messages"][0] == client.items[0]
