"""The mode `fold`: above the budget only the list of messages changes, and every request is legal, bound and cached."""

import json
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import quire
from quire.gateway import layout
from quire.gateway.gateway_server import RunningGateway
from quire.gateway.routing import Protocol
from quire.gateway.spans import split_array, split_request
from tests.gateway.conftest import Start
from tests.gateway.raw_upstream import RawUpstream, answer_with, send
from tests.gateway.scripted_client import PATHS, Api, Client
from tests.marks import broad
from tests.strict_provider import Body, Call, Reply, StrictProvider
from tests.strict_provider.requests import Request
from tests.strict_provider.tokens import count_request

Recorded = Callable[[RunningGateway], dict[str, list[str]]]
APIS: list[Api] = ["anthropic", "chat", "responses"]
BUDGET = 4_000
FILLER = "The quick brown fox jumps over the lazy dog near the river bank. " * 15


def steps(number: int) -> Callable[[Body], Reply]:
    """Return a script that calls a tool at every step, thinks, and ends a turn at every `number`-th step."""
    made = count(1)

    def answer(body: Body) -> Reply:
        step = next(made)
        thinking = (f"I think about step {step}.",)
        if step % number == 0:
            return Reply(f"Step {step} is done. {FILLER}", thinking=thinking)
        return Reply(f"Step {step}.", (Call(f"call_{step}", "look", {"query": f"fact-{step:04}"}),), thinking)

    return answer


class Worker(Client):
    """A client with long results of tools. It marks the last message for the cache, as Claude Code does."""

    def use(self, arguments: dict[str, Any]) -> str:
        return f"The value of {arguments['query']} is V{arguments['query'][5:]}X. {FILLER}"

    def body(self, items: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        value = super().body(items)
        if self.api == "anthropic":
            value["messages"] = [*value["messages"][:-1], _marked(value["messages"][-1])]
        return value


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


def tokens_of(api: Api, body: Body) -> int:
    return count_request(Request(api, body))


@pytest.mark.parametrize("loop", [4, *broad(1_000)], ids=["turns", "one loop"])
@pytest.mark.parametrize("api", APIS)
def test_a_long_run_fits_is_legal_and_keeps_its_prefix(
    start: Start, provider: StrictProvider, store: str, api: Api, loop: int
) -> None:
    provider.script = steps(loop)
    provider.state.limit = BUDGET + 500
    running = start(mode="fold", budget=BUDGET)
    client = Worker(running.url, api, {"x-quire-session": "one"})
    client.fields = {"stream_options": {"include_usage": True}} if api == "chat" else {}
    client.items.append({"role": "user", "content": "Start. The rule is: never delete the file keep.txt."})
    cached = billed = 0
    for step in range(1, 61):
        reply = client.take(client.request())
        read, all_tokens = _usage(api, reply)
        cached, billed = cached + read, billed + all_tokens
        results = client._results(reply)
        client.items += results or [{"role": "user", "content": f"Go on after step {step}."}]
    assert provider.refused == []
    assert tokens_of(api, client.body()) > 2 * BUDGET
    sent = provider.requests
    assert max(tokens_of(api, body) for body in sent) <= provider.state.limit
    info = running.gateway.list_sessions()[0]
    assert info.folds >= 2
    assert info.errors == 0
    if api != "chat":
        assert any(
            b"think" in json.dumps(body).encode() or b"reasoning" in json.dumps(body).encode() for body in sent[-5:]
        )
    assert cached / billed > 0.6, (cached, billed)
    running.gateway.sessions.drain()
    with quire.Library(store) as library:
        ctx = library.open(next(iter(library.list(prefix="gateway/"))))
        assert ctx.check() == []
        for step in (1, 7, 30, 58):
            if step % loop:
                hit = ctx.find(f"fact-{step:04}")[0]
                assert f"V{step:04}X" in ctx.pages.detail(hit.index)
    sys.stdout.write(f"{api} {loop}: cached {cached / billed:.3f}, folds {info.folds}\n")


def _usage(api: Api, reply: dict[str, Any]) -> tuple[int, int]:
    usage = reply["usage"]
    if api == "anthropic":
        read = usage["cache_read_input_tokens"]
        return read, usage["input_tokens"] + usage["cache_creation_input_tokens"] + read
    if api == "chat":
        return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]
    return usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"]


@pytest.mark.parametrize("api", APIS)
def test_only_the_messages_change_and_kept_ones_keep_their_bytes(
    start: Start, provider: StrictProvider, api: Api
) -> None:
    provider.script = steps(5)
    with RawUpstream(answer_with(provider)) as upstream:
        running = start(mode="fold", budget=BUDGET, anthropic=upstream.url, openai=upstream.url)
        client = Worker(running.url, api, {"x-quire-session": "one"}, metadata={"user_id": "u"})
        client.items.append({"role": "user", "content": "Beginne. 开始。"})
        folded = 0
        for step in range(40):
            body = json.dumps(client.body(), ensure_ascii=step % 2 == 0, indent=1).encode()
            got = send(running.url, "POST", PATHS[api], client.headers, body)
            arrived = upstream.requests[-1].body
            if arrived != body:
                folded += 1
                _check_bytes(body, arrived, api)
            reply = client.take(got)
            client.items += client._results(reply) or [{"role": "user", "content": f"Go on after {step}."}]
        assert folded > 10
        assert provider.refused == []


def test_a_request_of_a_folded_session_costs_what_is_new(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(work: Callable[..., Any], name: str) -> Callable[..., Any]:
        def count_call(*given: Any) -> Any:
            made.append(name)
            return work(*given)

        return count_call

    monkeypatch.setattr(layout, "_split_part", counted(layout._split_part, "_split_part"))
    monkeypatch.setattr(layout.Writer, "_write_item", counted(layout.Writer._write_item, "_write_item"))
    provider.script = steps(5)
    running = start(mode="fold", budget=4 * BUDGET)
    client = Worker(running.url, "anthropic", {"x-quire-session": "one"})
    client.items.append({"role": "user", "content": "Begin."})
    counts, folds = [], 0
    for step in range(90):
        made.clear()
        reply = client.take(client.request())
        client.items += client._results(reply) or [{"role": "user", "content": f"Go on after {step}."}]
        (info,) = running.gateway.list_sessions()
        if info.folds and info.folds == folds:
            counts.append((made.count("_split_part"), made.count("_write_item")))
        folds = info.folds
    assert len(counts) > 30
    assert len(client.items) > 150
    assert max(count for pair in counts for count in pair) <= 8


def _check_bytes(body: bytes, arrived: bytes, api: Api) -> None:
    """Check that everything before and after the array is the same, and that items are those of the client."""
    field = b'"input"' if api == "responses" else b'"messages"'
    assert body[: body.index(field)] == arrived[: arrived.index(field)]
    before, after = json.loads(body), json.loads(arrived)
    name = field.decode().strip('"')
    original, sent = before.pop(name), after.pop(name)
    assert before == after
    front = [item for item in sent if "Context key" in json.dumps(item)]
    assert len(front) == 1
    assert front[0]["role"] == "user"
    protocol: Protocol = "openai" if api == "chat" else api
    spans, kept = split_request(body, protocol), split_request(arrived, protocol)
    assert spans is not None
    assert kept is not None
    known = [json.dumps(_without_thinking(item), sort_keys=True) for item in original]
    before, after = split_array(spans.array), split_array(kept.array)
    for item, raw in zip(sent, after, strict=True):
        if item not in front and raw not in before:
            assert "thinking" in json.dumps(original) or "reasoning" in json.dumps(original)
            assert json.dumps(_without_thinking(item), sort_keys=True) in known
    assert after[-1] == before[-1]


def _without_thinking(item: Any) -> Any:
    content = item.get("content")
    if isinstance(content, list):
        blocks = [block for block in content if block.get("type") != "thinking"]
        return {**{key: value for key, value in item.items() if key != "id"}, "content": blocks}
    return {key: value for key, value in item.items() if key != "id"}


@pytest.mark.parametrize(
    "item", [{"role": "narrator", "content": 7}, {"role": "tool", "tool_call_id": "none", "content": "x"}]
)
def test_a_new_epoch_folds_again_after_an_item_that_cannot_be_stored(
    start: Start, provider: StrictProvider, item: dict[str, Any]
) -> None:
    provider.script = lambda _: Reply("Done.")
    running = start(mode="fold", budget=2_000)
    client = Client(running.url, "chat", {"x-quire-session": "one"})
    client.items = [item, {"role": "user", "content": "Hello"}]
    client.request()
    client.items = [{"role": "user", "content": "This session is continued."}]
    for _ in range(12):
        client.run()
        client.items.append({"role": "user", "content": FILLER * 2})
    sessions = running.gateway.list_sessions()
    assert len(sessions) == 1
    assert sessions[0].folds > 0
    assert len(provider.refused) == 1  # the first request
