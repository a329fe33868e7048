"""What a gateway records: every conversation once, whatever clients repeat, rewrite, branch off or start anew."""

from collections.abc import Iterator
from typing import Any

import pytest

import quire
from tests.gateway.conftest import Recorded, Start
from tests.gateway.scripted_client import Api, Client
from tests.strict_provider import Body, Call, Fault, Reply, StrictProvider

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


def _name(api: Api) -> str:
    return f"local/{'anthropic' if api == 'anthropic' else 'openai'}/one"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_a_conversation_with_tools_is_recorded_once(
    start: Start, provider: StrictProvider, recorded: Recorded, api: Api, stream: bool
) -> None:
    calls = [Call(f"c{n}", "look", {"query": word}) for n, word in enumerate("abc")]
    replies = iter(
        [Reply("I look.", (*calls[:2],), ("hm",)), Reply("", (calls[2],), ("so",)), Reply("."), Reply("Bye")]
    )
    provider.script = lambda _: next(replies)
    client = Client(start(mode="fold" if stream else "observe").url, api, {"x-quire-session": "one"}, stream=stream)
    client.say("Look for a and b.")
    client.say("Thanks.")
    assert provider.refused == []
    first = ["u:Look for a and b.", "a:I look.<look><look>", "t:Result for a.", "t:Result for b."]
    assert recorded() == {_name(api): [*first, "a:<look>", "t:Result for c.", "a:.", "u:Thanks.", "a:Bye"]}


def test_retries_add_nothing(start: Start, provider: StrictProvider, recorded: Recorded) -> None:
    client = Client(start().url, "anthropic", CLAUDE)
    client.say("One")
    faults: Iterator[Reply | Fault] = iter([Fault(529), Fault(529), Reply("a", cut=3), Reply("two"), Reply("again")])
    provider.script = lambda _: next(faults)
    client.items.append({"role": "user", "content": "Two"})
    got = [client.request() for _ in range(4)]
    assert [answer.status for answer in got] == [529, 529, 200, 200]
    assert [answer.complete for answer in got[2:]] == [False, True]
    client.take(client.request())  # the reply to a repeated request replaces the first
    assert recorded()[MAIN] == ["u:One", "a:re One", "u:Two", "a:again"]


def test_other_forms_of_the_same_message_are_the_same(start: Start, recorded: Recorded) -> None:
    client = Client(start().url, "anthropic", CLAUDE)
    client.say("One")
    marked = {"type": "text", "text": "One", "cache_control": {"type": "ephemeral"}}
    client.items[0] = {"role": "user", "content": [marked]}
    client.items[1]["content"] = [block for block in client.items[1]["content"] if block["type"] != "thinking"]
    client.say("Two")
    assert recorded()[MAIN] == ["u:One", "a:re One", "u:Two", "a:re Two"]


def test_a_rewritten_last_message_stays_at_its_place(start: Start, recorded: Recorded) -> None:
    """Aider adds a reminder to the last message, and sends the message without it next time."""
    client = Client(start().url, "chat")
    client.items = [{"role": "user", "content": "Example"}, {"role": "assistant", "content": "Ok."}]
    for text in ("One", "Two"):
        client.items.append({"role": "user", "content": f"{text} - mind the rules."})
        client.take(client.request())
        client.items[-2]["content"] = text
    client.say("Three")
    rules = "- mind the rules."
    said = ["u:One", f"a:re One {rules}", "u:Two", f"a:re Two {rules}", "u:Three", "a:re Three"]
    assert list(recorded().values()) == [["u:Example", "a:Ok.", *said]]


def test_a_reply_that_the_client_changed_is_replaced(start: Start, recorded: Recorded) -> None:
    client = Client(start().url, "anthropic", CLAUDE)
    client.say("One")
    client.items[-1] = {"role": "assistant", "content": "re On [interrupted]"}
    client.say("Two")
    assert recorded()[MAIN] == ["u:One", "a:re On [interrupted]", "u:Two", "a:re Two"]


@pytest.mark.parametrize("api", APIS)
def test_going_back_is_a_branch_once_the_client_goes_on(start: Start, recorded: Recorded, api: Api) -> None:
    client = Client(start().url, api, {"x-quire-session": "one"})
    for text in ("One", "Two", "Three"):
        client.say(text)
    whole, name = list(client.items), _name(api)
    second = next(n for n, item in enumerate(whole) if item.get("content") == "Two")
    client.items = whole[:second]
    client.items.append({"role": "user", "content": "Other"})
    got = client.request()
    assert list(recorded()) == [name]  # only one more try
    client.take(got)
    client.url = start().url
    client.say("On")
    branch = ["u:One", "a:re One", "u:Other", "a:re Other", "u:On", "a:re On"]
    client.items = whole
    client.say("Four")
    said = [f"{who}{text}" for text in ("One", "Two", "Three", "Four") for who in ("u:", "a:re ")]
    assert recorded() == {name: said, f"{name}~2": branch}


def test_a_compaction_of_the_client_begins_an_epoch(start: Start, recorded: Recorded, store: str) -> None:
    client = Client(start().url, "anthropic", CLAUDE)
    client.say("The code is zebra-17.")
    client.say("Two")
    client.items.append({"role": "user", "content": "Summarise this conversation."})
    client.request()
    client.items = [{"role": "user", "content": "This session is being continued. Summary: codes were named."}]
    client.run()
    client.say("Three")
    assert list(recorded()) == [MAIN]
    with quire.Library(store) as library:
        ctx = library.open(f"gateway/{MAIN}")
        assert [message.text for message in ctx.render().messages][-2:] == ["Three", "re Three"]
        assert all("zebra" not in message.text for message in ctx.render().messages)
        assert ctx.pages.detail(ctx.find("zebra-17")[0].index).endswith("The code is zebra-17.")
        assert ctx.check() == []


def test_side_calls_are_passed_on_and_not_recorded(start: Start, recorded: Recorded) -> None:
    url = start().url
    title, client = Client(url, "anthropic", CLAUDE), Client(url, "anthropic", CLAUDE)
    title.tools = []
    title.items = [{"role": "user", "content": "Write a title."}]
    for text in ("One", "Two"):
        assert title.request().status == 200
        client.say(text)
    assert recorded() == {MAIN: ["u:One", "a:re One", "u:Two", "a:re Two"]}


def test_sub_agents_have_lines_of_their_own(start: Start, provider: StrictProvider, recorded: Recorded) -> None:
    """Without an id it is a sub-agent that begins while its parent waits for a result."""
    url = start().url
    codex = {"session-id": "s", "prompt_cache_key": "s"}
    Client(url, "responses", {**codex, "thread-id": "t1"}).say("Parent")
    Client(url, "responses", {**codex, "thread-id": "t2", "x-codex-parent-thread-id": "t1"}).say("Child")
    provider.script = lambda _: Reply("I ask.", (Call("c1", "look", {"query": "a"}),))
    client = Client(url, "anthropic", CLAUDE)
    client.items.append({"role": "user", "content": "Main"})
    client.take(client.request())
    provider.script = echo
    Client(url, "anthropic", {**CLAUDE, "x-claude-code-agent-id": "agent-7"}).say("Sub")
    sub = Client(url, "anthropic", CLAUDE)
    sub.say("No id")
    sub.say("More")
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "A"}
    client.items.append({"role": "user", "content": [result]})
    client.run()
    assert recorded() == {
        MAIN: ["u:Main", "a:I ask.<look>", "t:A", "a:re done"],
        f"{MAIN}.agent-7": ["u:Sub", "a:re Sub"],
        f"{MAIN}~2": ["u:No id", "a:re No id", "u:More", "a:re More"],
        "local/openai/t1": ["u:Parent", "a:re Parent"],
        "local/openai/t2": ["u:Child", "a:re Child"],
    }


def test_anonymous_conversations_that_begin_alike_stay_apart(start: Start, recorded: Recorded) -> None:
    url = start().url
    opening = [{"role": "user", "content": "Change it."}, {"role": "assistant", "content": "Ok."}]
    clients = [Client(url, "chat"), Client(url, "chat")]
    for round_ in ("First", "Second"):
        for number, client in enumerate(clients):
            client.items = client.items or list(opening)
            client.say(f"{round_} of {number}")
    said = [[f"{who}{word} of {n}" for word in ("First", "Second") for who in ("u:", "a:re ")] for n in (0, 1)]
    assert sorted(texts[2:] for texts in recorded().values()) == said


def test_two_gateways_of_a_store_record_one_line_in_turn(start: Start, recorded: Recorded) -> None:
    urls = [start().url, start().url]
    client = Client(urls[0], "anthropic", CLAUDE)
    for number in range(4):
        client.url = urls[number % 2]  # the other process has changed the line meanwhile
        client.say(f"{number}")
    assert recorded() == {MAIN: [f"{who}{n}" for n in range(4) for who in ("u:", "a:re ")]}


def test_a_context_that_is_deleted_before_its_reply_arrives_is_recorded_again(
    start: Start, provider: StrictProvider, recorded: Recorded, store: str
) -> None:
    def delete(body: Body) -> Reply:
        with quire.Library(store) as library:
            library.delete(f"gateway/{MAIN}")
        return echo(body)

    client = Client(start(mode="fold").url, "anthropic", CLAUDE)
    for text, script in (("One", echo), ("Two", delete), ("Three", echo)):
        provider.script = script
        client.say(text)
    assert "x-quire" not in dict(client.received[-1].headers)
    assert recorded() == {MAIN: [f"{who}{text}" for text in ("One", "Two", "Three") for who in ("u:", "a:re ")]}


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_what_continues_a_stored_response_is_passed_on_and_not_recorded(
    start: Start, provider: StrictProvider, recorded: Recorded, fields: dict[str, Any]
) -> None:
    client = Client(start(mode="fold").url, "responses", {"x-quire-session": "one"}, **fields)
    client.request([{"role": "user", "content": "Hi"}])
    assert provider.requests[-1].items() >= fields.items()
    assert recorded() == {}
