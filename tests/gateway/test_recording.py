"""What a gateway records: every conversation once, whatever clients repeat, rewrite, branch off or start anew."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import quire
from quire.errors import Conflict
from quire.gateway.gateway_server import RunningGateway
from quire.gateway.identity import Item, Role, hash_item
from quire.gateway.line import Line
from tests.gateway.conftest import Start
from tests.gateway.scripted_client import Api, Client
from tests.strict_provider import Body, Call, Fault, Reply, StrictProvider

Recorded = Callable[[RunningGateway], dict[str, list[str]]]
APIS: list[Api] = ["anthropic", "chat", "responses"]
CLAUDE = {"x-claude-code-session-id": "session-1"}
MAIN = "local/anthropic/session-1"


def echo(body: Body) -> Reply:
    """Answer with the last text of the user, and think."""
    last = body["messages"][-1]["content"] if "messages" in body else body["input"][-1]["content"]
    text = last if isinstance(last, str) else last[-1].get("text", "done")
    return Reply(f"re {text[:40]}", thinking=("hm",))


@pytest.fixture(autouse=True)
def answers(provider: StrictProvider) -> None:
    provider.script = echo


@pytest.mark.parametrize("mode", ["observe", "fold"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_a_conversation_with_tools_is_recorded_once(
    start: Start, provider: StrictProvider, recorded: Recorded, api: Api, stream: bool, mode: str
) -> None:
    replies = iter(
        [
            Reply("I look.", (Call("c1", "look", {"query": "a"}), Call("c2", "look", {"query": "b"})), ("hm",)),
            Reply("", (Call("c3", "look", {"query": "c"}),), ("so",)),
            Reply("Found."),
            Reply("Bye."),
        ]
    )
    provider.script = lambda _: next(replies)
    running = start(mode=mode)
    client = Client(running.url, api, {"x-quire-session": "one"}, stream=stream)
    client.say("Look for a and b.")
    client.say("Thanks.")
    assert provider.refused == []
    upstream = "anthropic" if api == "anthropic" else "openai"
    assert recorded(running) == {
        f"local/{upstream}/one": [
            "u:Look for a and b.",
            "a:I look.<look><look>",
            "t:Result for a.",
            "t:Result for b.",
            "a:<look>",
            "t:Result for c.",
            "a:Found.",
            "u:Thanks.",
            "a:Bye.",
        ]
    }
    assert running.gateway.list_sessions()[0].requests == 4


def test_retries_add_nothing(start: Start, provider: StrictProvider, recorded: Recorded) -> None:
    running = start()
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")
    faults: Iterator[Reply | Fault] = iter([Fault(529), Fault(529), Reply("a", cut=3), Reply("two")])
    provider.script = lambda _: next(faults)
    client.items.append({"role": "user", "content": "Two"})
    statuses = [client.request().status for _ in range(3)]
    client.take(client.request())
    assert statuses == [529, 529, 200]
    assert not client.received[3].complete
    assert recorded(running)[MAIN] == ["u:One", "a:re One", "u:Two", "a:two"]
    info = running.gateway.list_sessions()[0]
    assert (info.requests, info.retries, info.errors) == (5, 3, 3)


def test_the_reply_to_a_repeated_request_replaces_the_first(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    numbers = count(1)
    provider.script = lambda _: Reply(f"answer {next(numbers)}", (Call(f"c{next(numbers)}", "look", {}),))
    running = start()
    client = Client(running.url, "anthropic", CLAUDE)
    client.items.append({"role": "user", "content": "One"})
    client.request()
    client.take(client.request())
    assert recorded(running)[MAIN] == ["u:One", "a:answer 3<look>"]


def test_other_forms_of_the_same_message_are_the_same(start: Start, recorded: Recorded) -> None:
    running = start()
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")
    marked = {"type": "text", "text": "One", "cache_control": {"type": "ephemeral"}}
    client.items[0] = {"role": "user", "content": [marked]}
    client.items[1]["content"] = [block for block in client.items[1]["content"] if block["type"] != "thinking"]
    client.say("Two")
    assert recorded(running)[MAIN] == ["u:One", "a:re One", "u:Two", "a:re Two"]


def test_a_rewritten_last_message_stays_at_its_place(start: Start, recorded: Recorded) -> None:
    """Aider adds a reminder to the last message, and sends the message without it next time."""
    running = start()
    client = Client(running.url, "chat")
    client.items = [{"role": "user", "content": "Example"}, {"role": "assistant", "content": "Ok."}]
    for text in ("One", "Two", "Three"):
        client.items.append({"role": "user", "content": f"{text}\n\nRemember the rules."})
        client.take(client.request())
        client.items[-2]["content"] = text
    client.say("Four")
    assert list(recorded(running).values()) == [
        [
            "u:Example",
            "a:Ok.",
            "u:One",
            "a:re One\n\nRemember the rules.",
            "u:Two",
            "a:re Two\n\nRemember the rules.",
            "u:Three",
            "a:re Three\n\nRemember the rules.",
            "u:Four",
            "a:re Four",
        ]
    ]


def test_a_reply_that_the_client_changed_is_replaced(start: Start, recorded: Recorded) -> None:
    running = start()
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")
    client.items[-1] = {"role": "assistant", "content": "re On [interrupted]"}
    client.say("Two")
    assert recorded(running)[MAIN] == ["u:One", "a:re On [interrupted]", "u:Two", "a:re Two"]


@pytest.mark.parametrize("api", APIS)
def test_going_back_is_a_branch_once_the_client_goes_on(start: Start, recorded: Recorded, api: Api) -> None:
    running = start()
    client = Client(running.url, api, {"x-quire-session": "one"})
    for text in ("One", "Two", "Three"):
        client.say(text)
    whole = list(client.items)
    second = next(n for n, item in enumerate(whole) if item.get("content") == "Two")
    client.items = whole[:second]
    client.items.append({"role": "user", "content": "Other"})
    got = client.request()
    upstream = "anthropic" if api == "anthropic" else "openai"
    assert list(recorded(running)) == [f"local/{upstream}/one"]  # only one more try
    client.take(got)
    client.say("On")
    texts = recorded(running)
    assert texts[f"local/{upstream}/one"] == ["u:One", "a:re One", "u:Two", "a:re Two", "u:Three", "a:re Three"]
    assert texts[f"local/{upstream}/one~2"] == ["u:One", "a:re One", "u:Other", "a:re Other", "u:On", "a:re On"]
    client.items = whole
    client.say("Four")
    assert recorded(running)[f"local/{upstream}/one"][-2:] == ["u:Four", "a:re Four"]


def test_a_compaction_of_the_client_begins_an_epoch(start: Start, recorded: Recorded, store: str) -> None:
    running = start()
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("The code is zebra-17.")
    client.say("Two")
    client.items.append({"role": "user", "content": "Summarise this conversation."})
    client.request()
    client.items = [{"role": "user", "content": "This session is being continued. Summary: codes were named."}]
    client.run()
    client.say("Three")
    assert list(recorded(running)) == [MAIN]
    with quire.Library(store) as library:
        ctx = library.open(f"gateway/{MAIN}")
        assert [message.text for message in ctx.render().messages][-2:] == ["Three", "re Three"]
        assert all("zebra" not in message.text for message in ctx.render().messages)
        assert ctx.pages.detail(ctx.find("zebra-17")[0].index).endswith("The code is zebra-17.")
        assert ctx.check() == []


def test_side_calls_are_passed_on_and_not_recorded(start: Start, recorded: Recorded) -> None:
    running = start()
    title = Client(running.url, "anthropic", CLAUDE)
    title.tools = []
    title.items = [{"role": "user", "content": "Write a title."}]
    assert title.request().status == 200
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")
    title.request()
    client.say("Two")
    assert recorded(running) == {MAIN: ["u:One", "a:re One", "u:Two", "a:re Two"]}


def test_sub_agents_have_lines_of_their_own(start: Start, provider: StrictProvider, recorded: Recorded) -> None:
    running = start()
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("Main")
    Client(running.url, "anthropic", {**CLAUDE, "x-claude-code-agent-id": "agent-7"}).say("Sub")
    codex = {"session-id": "s", "prompt_cache_key": "s"}
    Client(running.url, "responses", {**codex, "thread-id": "t1"}).say("Parent")
    Client(running.url, "responses", {**codex, "thread-id": "t2", "x-codex-parent-thread-id": "t1"}).say("Child")
    client.say("More")
    assert recorded(running) == {
        MAIN: ["u:Main", "a:re Main", "u:More", "a:re More"],
        f"{MAIN}.agent-7": ["u:Sub", "a:re Sub"],
        "local/openai/t1": ["u:Parent", "a:re Parent"],
        "local/openai/t2": ["u:Child", "a:re Child"],
    }


def test_a_sub_agent_without_an_id_has_a_line_of_its_own(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    running = start()
    provider.script = lambda _: Reply("I ask.", (Call("c1", "look", {"query": "a"}),))
    client = Client(running.url, "anthropic", CLAUDE)
    client.items.append({"role": "user", "content": "Main"})
    client.items += client._results(client.take(client.request()))
    provider.script = echo
    sub = Client(running.url, "anthropic", CLAUDE)
    sub.say("Sub")
    sub.say("Sub 2")
    client.run()
    assert recorded(running) == {
        MAIN: ["u:Main", "a:I ask.<look>", "t:Result for a.", "a:re done"],
        f"{MAIN}~2": ["u:Sub", "a:re Sub", "u:Sub 2", "a:re Sub 2"],
    }
    client.items = []
    client.say("This session is being continued.")  # a compaction of the main agent, which spoke last
    assert recorded(running)[MAIN][-2:] == [
        "u:This session is being continued.",
        "a:re This session is being continued.",
    ]
    assert len(recorded(running)[f"{MAIN}~2"]) == 4


def test_anonymous_conversations_that_begin_alike_stay_apart(start: Start, recorded: Recorded) -> None:
    running = start()
    opening = [
        {"role": "user", "content": "Change the greeting."},
        {"role": "assistant", "content": "Ok."},
    ]
    one, two = Client(running.url, "chat"), Client(running.url, "chat")
    one.items, two.items = list(opening), list(opening)
    one.say("First")
    two.say("Second")
    one.say("First again")
    two.say("Second again")
    texts = sorted(texts[2:] for texts in recorded(running).values())
    assert texts == [
        ["u:First", "a:re First", "u:First again", "a:re First again"],
        ["u:Second", "a:re Second", "u:Second again", "a:re Second again"],
    ]


def test_a_restarted_gateway_continues_the_line(start: Start, recorded: Recorded) -> None:
    first = start()
    client = Client(first.url, "anthropic", CLAUDE)
    client.say("One")
    first.gateway.sessions.drain()
    second = start()
    client.url = second.url
    client.say("Two")
    client.url = first.url  # another process has changed the line meanwhile
    second.gateway.sessions.drain()
    client.say("Three")
    assert recorded(first) == {MAIN: ["u:One", "a:re One", "u:Two", "a:re Two", "u:Three", "a:re Three"]}


@pytest.mark.parametrize("mode", ["observe", "fold"])
def test_a_deleted_context_is_recorded_again(start: Start, recorded: Recorded, store: str, mode: str) -> None:
    running = start(mode=mode)
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")
    client.say("Two")
    running.gateway.sessions.drain()
    with quire.Library(store) as library:
        library.delete(f"gateway/{MAIN}")
    client.say("Three")
    assert "x-quire" not in dict(client.received[-1].headers)
    client.say("Four")
    assert recorded(running) == {
        MAIN: ["u:One", "a:re One", "u:Two", "a:re Two", "u:Three", "a:re Three", "u:Four", "a:re Four"]
    }


def test_a_context_that_is_deleted_before_the_reply_arrives_is_recorded_again(
    start: Start, provider: StrictProvider, recorded: Recorded, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = start(mode="fold")
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")

    def delete(body: Body) -> Reply:
        running.gateway.sessions.drain()
        with quire.Library(store) as library:
            library.delete(f"gateway/{MAIN}")
        return echo(body)

    provider.script = delete
    client.say("Two")
    assert recorded(running) == {}
    provider.script = echo
    client.say("Three")
    assert recorded(running)[MAIN] == ["u:One", "a:re One", "u:Two", "a:re Two", "u:Three", "a:re Three"]
    assert not [record for record in caplog.records if record.exc_info]


def test_two_gateways_that_change_a_line_in_turn_both_record_it(
    start: Start, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(mode="fold")
    client = Client(running.url, "anthropic", CLAUDE)
    client.say("One")
    running.gateway.sessions.drain()
    append, conflicts = Line.append, iter(range(3))

    def late(line: Line, *given: Any) -> None:
        if next(conflicts, None) is not None:
            raise Conflict("Another writer was first.")
        append(line, *given)

    monkeypatch.setattr(Line, "append", late)
    client.say("Two")
    assert "x-quire" not in dict(client.received[-1].headers)
    assert recorded(running) == {MAIN: ["u:One", "a:re One", "u:Two", "a:re Two"]}


def test_a_session_never_crosses_tokens(start: Start, recorded: Recorded) -> None:
    tokens = ("token-number-one-1", "token-number-two-2")
    for token in tokens:
        running = start(token=token)
        Client(running.url, "anthropic", CLAUDE).say("Hello")
        names = list(recorded(running))
    assert len(names) == len(tokens)
    assert not any(token in name for token in tokens for name in names)


def test_what_cannot_be_stored_as_it_is_is_passed_on(start: Start, provider: StrictProvider) -> None:
    """A result without its call, and a shape that is not known."""
    seen: list[Any] = []
    running = start(mode="fold")
    broken: list[list[dict[str, Any]]] = [
        [{"role": "tool", "tool_call_id": "none", "content": "x"}, {"role": "user", "content": "Hello"}],
        [{"role": "narrator", "content": 7}, {"role": "user", "content": "Hello"}],
    ]
    for items in broken:
        client = Client(running.url, "chat", {"x-quire-session": f"s{len(seen)}"})
        client.items = items
        client.request()
        seen.append(provider.requests[-1]["messages"][1:])
        assert seen[-1] == items
    running.gateway.sessions.drain()


def test_an_epoch_has_its_own_thinking() -> None:
    def item(role: Role, content: Any) -> Item:
        value = {"role": role, "content": content}
        return Item(json.dumps(value).encode(), hash_item(value), role)

    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    with quire.open(quire.MemoryStorage()) as ctx:
        line = Line(ctx, "anthropic")
        line.append([item("user", "One"), item("assistant", [thinking, {"type": "text", "text": "Two"}])])
        assert [found.has_thinking for found in (line, Line(ctx, "anthropic"))] == [True, True]
        line.begin_epoch()
        line.append([item("user", "Three")])
        assert [found.has_thinking for found in (line, Line(ctx, "anthropic"))] == [False, False]
