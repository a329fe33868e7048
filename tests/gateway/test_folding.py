"""The mode `fold`: above the budget only the list of messages changes, and every request is legal, bound and cached."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import quire
from tests.gateway.conftest import Recorded, Start
from tests.gateway.raw_upstream import RawUpstream, answer_with, send
from tests.gateway.scripted_client import PATHS, Api, Client
from tests.strict_provider import Body, Call, Reply, StrictProvider

APIS: list[Api] = ["anthropic", "chat", "responses"]
BUDGET = 4_000
FILLER = "The quick brown fox jumps over the lazy dog near the river bank. " * 15
RULES = "<system-reminder>Rules of the project: HOUSE RULE.</system-reminder>"
ONE = {"x-quire-session": "one"}


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

    def work(self, rounds: int) -> None:
        """Send the transcript, and go on after each answer."""
        for number in range(rounds):
            self.items += self.results(self.take(self.request())) or [{"role": "user", "content": f"Go on: {number}."}]


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


def folded_client(start: Start, provider: StrictProvider, rounds: int = 20, **settings: Any) -> Worker:
    """Return a client after a run that was folded."""
    provider.script = steps(4)
    provider.state.limit = BUDGET + 500
    client = Worker(start(**{"mode": "fold", "budget": BUDGET, **settings}).url, "anthropic", ONE)
    client.items.append({"role": "user", "content": "Start."})
    client.work(rounds)
    return client


def is_folded(body: Body, client: Client) -> bool:
    """Return whether a request is shorter than the transcript, which may have a reply and results more by now."""
    return len(body["messages"]) < len(client.items) - 2


def header(client: Client, name: str = "x-quire") -> str | None:
    return {key.lower(): value for key, value in client.received[-1].headers}.get(name)


@pytest.mark.parametrize("api", APIS)
def test_a_long_run_changes_only_the_messages_fits_is_legal_and_keeps_its_prefix(
    start: Start, provider: StrictProvider, store: str, recorded: Recorded, api: Api
) -> None:
    """What a client says about its project stays; the rest of the first message, too."""
    provider.script = steps(4)
    provider.state.limit = BUDGET
    kind = "input_text" if api == "responses" else "text"
    first = {"role": "user", "content": [{"type": kind, "text": RULES}, {"type": kind, "text": "Beginne. 开始。"}]}
    cached = billed = folded = 0
    with RawUpstream(answer_with(provider)) as upstream:
        url = start(mode="fold", budget=BUDGET, anthropic=upstream.url, openai=upstream.url).url
        client = Worker(url, api, ONE, metadata={"user_id": "u"})
        client.fields |= {"stream_options": {"include_usage": True}} if api == "chat" else {}
        client.items.append(first)
        for step in range(1, 31):
            body = json.dumps(client.body(), ensure_ascii=step % 2 == 0, indent=1).encode()
            got = send(url, "POST", PATHS[api], client.headers, body)
            if (arrived := upstream.requests[-1].body) != body:
                folded += 1
                _check_bytes(body, arrived, "input" if api == "responses" else "messages")
            reply = client.take(got)
            read, tokens = _usage(api, reply)
            cached, billed = cached + read, billed + tokens
            client.items += client.results(reply) or [{"role": "user", "content": f"Go on after step {step}."}]
        recorded()
    assert provider.refused == []
    assert folded > 8
    assert cached / billed > 0.6
    assert first in (provider.requests[-1].get("messages") or provider.requests[-1]["input"])
    with quire.Library(store) as library, library.open(*library.list(prefix="gateway/")) as ctx:
        assert ctx.check() == []
        for step in (1, 7, 18, 26):
            assert f"V{step:04}X" in ctx.pages.detail(ctx.find(f"fact-{step:04}")[0].index)


def _usage(api: Api, reply: dict[str, Any]) -> tuple[int, int]:
    """Return the tokens that were read from the cache, and all tokens of the request."""
    usage = reply["usage"]
    if api == "anthropic":
        read = usage["cache_read_input_tokens"]
        return read, usage["input_tokens"] + usage["cache_creation_input_tokens"] + read
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return details["cached_tokens"], usage.get("prompt_tokens") or usage["input_tokens"]


def _check_bytes(body: bytes, arrived: bytes, field: str) -> None:
    """Check that everything before and after the array is the same, and that items are those of the client."""
    name = f'"{field}"'.encode()
    assert body[: body.index(name)] == arrived[: arrived.index(name)]
    before, after = json.loads(body), json.loads(arrived)
    original, _ = before.pop(field), after.pop(field)
    assert before == after
    known = [json.dumps(_without_thinking(item), sort_keys=True) for item in original]
    theirs, ours = list(_raw_items(body, name)), list(_raw_items(arrived, name))
    changed = [raw for raw in ours if raw not in theirs]
    new = [raw for raw in changed if json.dumps(_without_thinking(json.loads(raw)), sort_keys=True) not in known]
    assert len(new) == 1  # the folded lines, in one message of the user
    assert json.loads(new[0])["role"] == "user"
    assert ours[-1] == theirs[-1]


def _raw_items(body: bytes, name: bytes) -> Iterator[str]:
    """Yield the items of an array as they are in a body."""
    text, decoder = body[body.index(name) + len(name) :].decode(), json.JSONDecoder()
    place = text.index("[") + 1
    while (place := len(text) - len(text[place:].lstrip(" \n,"))) < len(text) and text[place] != "]":
        _, end = decoder.raw_decode(text, place)
        yield text[place:end]
        place = end


def _without_thinking(item: Any) -> Any:
    kept = {key: value for key, value in item.items() if key != "id"}
    if isinstance(kept.get("content"), list):
        kept["content"] = [block for block in kept["content"] if block.get("type") != "thinking"]
    return kept


def test_a_restarted_gateway_and_count_tokens_get_the_same_view(start: Start, provider: StrictProvider) -> None:
    client = folded_client(start, provider)
    client.request()
    sent = provider.requests[-1]
    assert is_folded(sent, client)
    count = {key: value for key, value in client.body().items() if key not in ("stream", "max_tokens")}
    send(client.url, "POST", "/v1/messages/count_tokens", client.headers, json.dumps(count).encode())
    assert provider.requests[-1]["messages"] == sent["messages"]
    other = {**count, "messages": [{"role": "user", "content": "How long is this?"}]}
    send(client.url, "POST", "/v1/messages/count_tokens", client.headers, json.dumps(other).encode())
    assert provider.requests[-1] == other
    client.url = start(mode="fold", budget=BUDGET).url
    client.take(client.request())
    assert provider.requests[-1]["messages"] == sent["messages"]
    assert provider.refused == []


def test_a_compaction_call_of_a_folded_session_fits_and_is_not_recorded(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    client = folded_client(start, provider)
    client.request()  # the request that makes the client compact
    last = client.items[-1]
    blocks = last["content"] if isinstance(last["content"], list) else [{"type": "text", "text": last["content"]}]
    asked = {"role": "user", "content": [*blocks, {"type": "text", "text": "Summarise this conversation."}]}
    assert client.request([*client.items[:-1], asked]).status == 200
    assert is_folded(provider.requests[-1], client)
    client.take(client.request())
    assert provider.refused == []
    (texts,) = recorded().values()
    assert not any("Summarise this" in text for text in texts)


def test_a_branch_of_a_folded_session_fits(start: Start, provider: StrictProvider, recorded: Recorded) -> None:
    client = folded_client(start, provider, 36)
    turn = [n for n, item in enumerate(client.items) if item["role"] == "user" and isinstance(item["content"], str)]
    client.items = [*client.items[: turn[-5]], {"role": "user", "content": "Another way."}]
    assert client.request().status == 200
    assert is_folded(provider.requests[-1], client)
    assert provider.refused == []
    assert len(recorded()) == 2


def test_a_page_that_another_process_opens_is_sent(
    start: Start, provider: StrictProvider, recorded: Recorded, store: str
) -> None:
    client = folded_client(start, provider)
    (name,) = recorded()
    with quire.Library(store) as library, library.open(f"gateway/{name}") as ctx:
        ctx.agent.expand_details(ctx.find("fact-0002")[0].index)
    client.url = start(mode="fold", budget=BUDGET).url
    client.work(1)
    assert "V0002X" in json.dumps(provider.requests[-1]["messages"])
    assert provider.refused == []


def test_a_model_writes_the_summaries_of_later_folds(start: Start, provider: StrictProvider) -> None:
    texts: list[str] = []

    def summarise(text: str, limit: int) -> str:
        texts.append(text)
        return "The model read these files with care."

    folded_client(start, provider, 34, summariser=summarise)
    assert texts
    assert "with care" in json.dumps(provider.requests[-1]["messages"])
    assert provider.refused == []


@pytest.mark.parametrize(
    "item", [{"role": "narrator", "content": 7}, {"role": "tool", "tool_call_id": "none", "content": "x"}]
)
def test_what_cannot_be_stored_is_passed_on_and_a_new_epoch_folds_again(
    start: Start, provider: StrictProvider, item: dict[str, Any]
) -> None:
    client = Client(start(mode="fold", budget=2_000).url, "chat", ONE)
    client.items = [item, {"role": "user", "content": "Hello"}]
    client.request()
    assert provider.requests[-1]["messages"][1:] == client.items
    client.items = [{"role": "user", "content": "This session is continued."}]
    for _ in range(12):
        client.run()
        client.items.append({"role": "user", "content": FILLER * 2})
    assert is_folded(provider.requests[-1], client)
    assert len(provider.refused) == 1  # the first request
