"""OpenAI's SDK with a local endpoint: chat and Responses, plain, streaming and async, far beyond the budget."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

import quire
from quire import VocabularyCounter
from quire.adapters.openai import (
    TurnOptions,
    acomplete,
    arespond,
    astream,
    astream_response,
    complete,
    respond,
    stream,
    stream_response,
)
from tests.strict_provider import Body, Call, Reply, State, StrictProvider

BUDGET = 2_000
MODEL = "gpt-5"
COUNTER = VocabularyCounter()
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
CHAT_TOOL: Body = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
RESPONSES_TOOL: Body = {"type": "function", "name": "add", "parameters": PARAMETERS, "strict": False}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=BUDGET)) as made:
        yield made


@pytest.fixture
def ctx() -> quire.Context:
    return quire.open("memory:", budget=BUDGET)


def sent(body: Body) -> list[Body]:
    listed: list[Body] = body.get("messages") or body["input"]
    return listed


def is_asked(body: Body) -> bool:
    """Return whether a request ends with a user message."""
    return sent(body)[-1].get("role") == "user"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_many_turns_stay_within_the_budget(
    client: OpenAI, endpoint: StrictProvider, ctx: quire.Context, request: pytest.FixtureRequest, api: str
) -> None:
    turns = 1_000 if request.config.getoption("--long") else 18
    ask, read = (complete, stream) if api == "chat" else (respond, stream_response)
    options: dict[str, Any] = {"model": MODEL, "functions": {"add": lambda a, b: a + b}}
    options["tools"] = [CHAT_TOOL if api == "chat" else RESPONSES_TOOL]
    ctx.system("你是一个细心的助手。")

    def script(body: Body) -> Reply:
        number = len(endpoint.requests)
        if is_asked(body) and number % 4 == 0:
            calls = (
                Call(f"f{number}", "find", {"query": f"question {number}"}),
                Call(f"a{number}", "add", {"a": 1, "b": 2}),
            )
            return Reply("let me see", calls, ("hm",))
        return Reply(f"answer {number} " + "with some words to fill the room " * 8, thinking=("hm",))

    endpoint.script = script
    ctx.user("记住: 我的会员号是 QX-4471-Z。")
    ask(client, ctx, **options)
    for number in range(turns):
        ctx.user(f"question {number}, " + "which is rather long " * 6)
        if number % 4:
            ask(client, ctx, **options)
        else:
            assert list(read(client, ctx, **options))
        assert ctx.pending_calls() == []
    assert len(endpoint.requests) > turns
    assert endpoint.refused == []  # nothing illegal, nothing beyond the budget
    assert list(ctx.history(operation="fold"))
    assert sum(message.role == "user" for message in ctx.messages()) == turns + 1
    assert ctx.conversation.newest(1)[0].role == "assistant"
    assert "QX-4471-Z" in ctx.tools.call("find", {"query": "会员号"})
    learned = ctx.stats().usage[MODEL]
    assert learned.reports > 18
    assert 0.8 < learned.factor < 1.2  # the endpoint reports the tokens that are counted here
    assert ctx.check() == []


def test_async_clients_and_functions(endpoint: StrictProvider, ctx: quire.Context) -> None:
    endpoint.forget()

    async def add(a: int, b: int) -> Body:
        await asyncio.sleep(0)
        return {"和": a + b}

    def script(body: Body) -> Reply:
        number = len(endpoint.requests)
        return Reply("", (Call(f"a{number}", "add", {"a": number, "b": 1}),)) if is_asked(body) else Reply("Done.")

    endpoint.script = script
    options: Body = {"model": MODEL, "functions": {"add": add}}

    async def work() -> None:
        async with AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="none") as client:
            ctx.user("one")
            first = await acomplete(client, ctx, tools=[CHAT_TOOL], **options)
            assert first.choices[0].message.content == "Done."
            ctx.user("two")
            assert [chunk async for chunk in astream(client, ctx, tools=[CHAT_TOOL], **options)]
            ctx.user("three")
            third = await arespond(client, ctx, tools=[RESPONSES_TOOL], instructions="Be brief.", **options)
            assert third.output_text == "Done."
            ctx.user("four")
            types = [event.type async for event in astream_response(client, ctx, tools=[RESPONSES_TOOL], **options)]
            assert types.count("response.completed") == 2

    asyncio.run(work())
    results = [message.text for message in ctx.messages() if message.role == "tool"]
    assert results == ['{"和": 2}', '{"和": 4}', '{"和": 6}', '{"和": 8}']
    assert (len(endpoint.requests), endpoint.refused) == (8, [])


def test_what_was_streamed_is_stored_as_what_was_not(client: OpenAI, endpoint: StrictProvider) -> None:
    calls = Call("a1", "add", {"a": 1, "b": 2}), Call("a2", "add", {"a": 3, "b": 4})
    endpoint.script = lambda body: Reply("两次", calls) if is_asked(body) else Reply("好了。")
    stored = []
    for ask in (complete, lambda *args, **more: list(stream(*args, **more))):
        ctx = quire.open("memory:", budget=BUDGET)
        ctx.user("add")
        ask(client, ctx, model=MODEL, tools=[CHAT_TOOL], functions={"add": lambda a, b: a + b})
        stored.append([(message.role, message.content, message.tool_calls, message.raw) for message in ctx.messages()])
    assert stored[0] == stored[1]
    assert [row[1] for row in stored[0]] == ["add", "两次", "3", "7", "好了。"]


def test_a_turn_that_was_broken_off_is_gone_on_with(
    client: OpenAI, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    calls = Call("a1", "add", {"a": 1, "b": 2}), Call("t1", "theirs", {})
    endpoint.script = lambda body: Reply("", calls) if is_asked(body) else Reply("3.")
    ctx.user("add")

    def add(a: int, b: int) -> int:
        raise ZeroDivisionError(a + b)

    with pytest.raises(ZeroDivisionError):
        complete(client, ctx, model=MODEL, functions={"add": add})
    with pytest.raises(quire.InvalidOperation):
        complete(client, ctx, model=MODEL, functions={"add": lambda a, b: a + b})
    ctx.tool_result("t1", "by hand")
    reply = complete(client, ctx, model=MODEL)
    assert reply.choices[0].message.content == "3."
    assert [message["content"] for message in sent(endpoint.requests[-1]) if message["role"] == "tool"] == [
        "3",
        "by hand",
    ]


def test_what_fails_changes_nothing(client: OpenAI, endpoint: StrictProvider, ctx: quire.Context) -> None:
    def script(_: Body) -> Reply:
        raise RuntimeError("overloaded")

    endpoint.script = script
    ctx.user("Hello?")
    asks: list[Callable[..., Any]] = [complete, respond, lambda *args, **more: list(stream(*args, **more))]
    for ask in asks:
        with pytest.raises(BadRequestError):
            ask(client, ctx, model=MODEL)
    endpoint.script = lambda _: Reply("half an answer")
    chunks = stream(client, ctx, model=MODEL)
    next(chunks)
    cast(Any, chunks).close()
    assert [message.role for message in ctx.messages()] == ["user"]
    list(stream_response(client, ctx, model=MODEL))
    assert [message.role for message in ctx.messages()] == ["user", "assistant"]


def test_a_stream_without_an_end_is_told_and_not_asked_for_again(
    client: OpenAI, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda _: Reply("half an answer", cut=5, clean=True)
    ctx.user("Hello?")
    with pytest.raises(quire.InvalidOperation):
        list(stream_response(client, ctx, model=MODEL))
    assert len(endpoint.requests) == 1
    assert [message.role for message in ctx.messages()] == ["user"]


def test_which_tools_and_how_it_is_drawn_can_be_said(
    client: OpenAI, endpoint: StrictProvider, ctx: quire.Context
) -> None:
    endpoint.script = lambda _: Reply("Hi.")
    ctx.user("早上好。" * 40 + "雨伞放在地下室的蓝色柜子里。" + "今天天气不错。" * 40)
    for number in range(60):
        ctx.user(f"question {number} " * 20)
    ctx.user("What is new?")
    complete(client, ctx, model=MODEL, options=TurnOptions(tools=False))
    assert "tools" not in endpoint.requests[-1]
    assert "地下室" not in json.dumps(sent(endpoint.requests[-1]), ensure_ascii=False)
    ctx.user("雨伞在哪里?")
    only = TurnOptions(tools=ctx.tools.only("find"), render={"recall": True})
    complete(client, ctx, model=MODEL, options=only)
    assert [tool["function"]["name"] for tool in endpoint.requests[-1]["tools"]] == ["find"]
    assert "地下室" in json.dumps(sent(endpoint.requests[-1]), ensure_ascii=False)
