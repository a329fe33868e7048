"""`complete` for people and services: functions as tools, async contexts, errors, turns resumed and answered once."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

import quire
from quire import aio
from quire.adapters import anthropic, openai
from tests.adapters.scripts import calling, results
from tests.strict_provider import Body, Call, Reply, StrictProvider

MODEL = "gpt-5"


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass
class Address:
    """Where a parcel goes."""

    city: str
    zip: str = ""


def order_status(order: str, days: Annotated[int, "How many days back."] = 7, kind: Literal["in", "out"] = "in") -> str:
    """Return the status of an order.

    Orders have numbers such as A-1.

    Args:
        order: The number of the order,
            with its letter.
        kind (str): In or out.

    Returns:
        A sentence: what is known.
    """
    return f"{order} is on its way ({days}, {kind})."


def test_the_schema_comes_from_hints_and_docstring_and_arguments_are_converted(
    client: OpenAI, endpoint: StrictProvider
) -> None:
    sent: list[object] = []

    def send(to: Address, speed: Speed = Speed.SLOW, weight: float = 1.0) -> list[Address]:
        """Send a parcel.

        :param to: The address.
        :param Speed speed: How fast.
        """
        sent.append((to, speed, weight))
        return [to]

    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Send it.")
    wrong = Call("c2", "send", {"to": {"city": "Ulm"}, "speed": "slowest"})
    calling(endpoint, Call("c1", "send", {"to": {"city": "Ulm"}, "speed": "fast", "weight": "2"}), wrong)
    openai.complete(client, ctx, model=MODEL, tools=[order_status, send])
    assert sent == [(Address("Ulm"), Speed.FAST, 2.0)]
    assert results(ctx)["c1"] == '[{"city": "Ulm"}]'
    assert results(ctx)["c2"].startswith("InvalidValue: ")
    status, parcel = (tool["function"] for tool in endpoint.requests[0]["tools"][-2:])
    assert status == {
        "name": "order_status",
        "description": "Return the status of an order.\n\nOrders have numbers such as A-1.",
        "parameters": {
            "type": "object",
            "properties": {
                "order": {"type": "string", "description": "The number of the order, with its letter."},
                "days": {"type": "integer", "description": "How many days back."},
                "kind": {"enum": ["in", "out"], "description": "In or out."},
            },
            "required": ["order"],
            "additionalProperties": False,
        },
    }
    assert parcel["parameters"]["properties"]["to"]["description"] == "The address."
    assert parcel["parameters"]["required"] == ["to"]


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_a_plain_function_is_a_tool(client: OpenAI, claude: Anthropic, endpoint: StrictProvider, api: str) -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Where is my order A-1?")
    calling(endpoint, Call("c1", "order_status", {"order": "A-1"}), Call("c2", "order_status", {"days": "x"}))
    options: Body = {"model": MODEL, "tools": [order_status]}
    if api == "anthropic":
        anthropic.complete(claude, ctx, max_tokens=100, **options)
    else:
        (openai.complete if api == "chat" else openai.respond)(client, ctx, **options)
    assert results(ctx)["c1"] == "A-1 is on its way (7, in)."
    assert results(ctx)["c2"].startswith("InvalidValue: order_status: ")
    names = [tool.get("function", tool).get("name") for tool in endpoint.requests[0]["tools"]]
    assert names[-1] == "order_status"
    assert names.count("order_status") == 1
    assert len(endpoint.requests) == 2


def divide(a: float, b: float) -> float:
    """Divide two numbers."""
    return a / b


@pytest.mark.parametrize("api", ["chat", "anthropic"])
def test_the_model_is_told_the_error_of_a_function_if_it_is_asked_for(
    client: OpenAI, claude: Anthropic, endpoint: StrictProvider, api: str
) -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("What is 1/0?")
    calling(endpoint, Call("c1", "divide", {"a": 1, "b": 0}))

    def ask(**options: Any) -> None:
        if api == "chat":
            openai.complete(client, ctx, model=MODEL, tools=[divide], **options)
        else:
            anthropic.complete(claude, ctx, model=MODEL, tools=[divide], max_tokens=100, **options)

    with pytest.raises(ZeroDivisionError):
        ask()
    assert [call.id for call in ctx.pending_calls()] == ["c1"]
    with pytest.raises(quire.InvalidValue):
        ask(on_error="show")
    ask(on_error="tell")
    assert results(ctx) == {"c1": "ZeroDivisionError: float division by zero"}
    if api == "anthropic":
        block = endpoint.requests[-1]["messages"][-1]["content"][0]
        assert (block["type"], block["is_error"]) == ("tool_result", True)
    assert ctx.messages()[-1].text == "Done."


def test_every_function_takes_an_async_context(
    client: OpenAI, claude: Anthropic, endpoint: StrictProvider, tmp_path: Path
) -> None:
    asked = 0

    def script(body: Body) -> Reply:
        last = (body.get("messages") or body["input"])[-1]
        is_question = "Question" in str(last)
        calls = (Call(f"c{len(endpoint.requests)}", "order_status", {"order": "A-1"}),)
        return Reply("", calls) if is_question else Reply("Done.")

    async def work() -> None:
        nonlocal asked
        ai = AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="none")
        async_claude = AsyncAnthropic(base_url=endpoint.url, api_key="none")
        options: Body = {"model": MODEL, "tools": [order_status]}
        limited: Body = {**options, "max_tokens": 100}
        async with ai, async_claude, aio.open(tmp_path / "a.db", budget=4_000) as ctx:
            forms: list[Callable[[], Any]] = [
                lambda: openai.acomplete(ai, ctx, **options),
                lambda: openai.arespond(ai, ctx, **options),
                lambda: anthropic.acomplete(async_claude, ctx, **limited),
                lambda: read(openai.astream(ai, ctx, **options)),
                lambda: read(openai.astream_response(ai, ctx, **options)),
                lambda: read(anthropic.astream(async_claude, ctx, **limited)),
                lambda: asyncio.to_thread(openai.complete, client, ctx, **options),
                lambda: asyncio.to_thread(openai.respond, client, ctx, **options),
                lambda: asyncio.to_thread(anthropic.complete, claude, ctx, **limited),
                lambda: asyncio.to_thread(lambda: list(openai.stream(client, ctx, **options))),
                lambda: asyncio.to_thread(lambda: list(anthropic.stream(claude, ctx, **limited))),
            ]
            for form in forms:
                await ctx.user(f"Question {asked}")
                await form()
                asked += 1
            openai.complete(client, ctx, model=MODEL)  # it blocks the loop, and it works
            roles = [message.role for message in await ctx.messages()]
            assert roles == ["user", "assistant", "tool", "assistant"] * asked + ["assistant"]
            assert await ctx.check() == []

    async def read(events: Any) -> None:
        assert [event async for event in events]

    endpoint.forget()
    endpoint.script = script
    asyncio.run(work())
    assert asked == 11


def test_a_worker_that_does_not_want_to_wait_gets_busy(
    client: OpenAI, endpoint: StrictProvider, tmp_path: Path
) -> None:
    endpoint.script = lambda _: Reply("Done.")
    with quire.Library(tmp_path / "a.db") as library, library.open("talk", budget=4_000) as ctx:
        ctx.user("Hello?")
        with library.turn("talk"), pytest.raises(quire.Busy):
            openai.complete(client, ctx, model=MODEL, options=openai.TurnOptions(wait=0))
        assert endpoint.requests == []
        openai.complete(client, ctx, model=MODEL, options=openai.TurnOptions(wait=0))


def test_a_stream_that_is_not_read_to_its_end_frees_the_context(
    client: OpenAI, endpoint: StrictProvider, tmp_path: Path
) -> None:
    endpoint.script = lambda _: Reply("A long answer. " * 50)
    with quire.Library(tmp_path / "a.db") as library, library.open("talk", budget=4_000) as ctx:
        ctx.user("Hello?")
        events = openai.stream(client, ctx, model=MODEL)
        next(events)
        with pytest.raises(quire.Busy), library.turn("talk", wait=0):
            pass
        events.close()  # type: ignore[attr-defined]
        with library.turn("talk", wait=0) as other:
            assert len(other.messages()) == 1


def test_the_threads_of_a_stream_may_change(client: OpenAI, endpoint: StrictProvider, tmp_path: Path) -> None:
    """A web framework reads a plain generator in threads of a pool."""
    endpoint.script = lambda _: Reply("A long answer. " * 50)
    with quire.open(tmp_path / "a.db", budget=4_000) as ctx:
        ctx.user("Hello?")
        events = openai.stream(client, ctx, model=MODEL)
        read: list[Any] = []

        def step() -> None:
            with suppress(StopIteration):
                read.append(next(events))

        while True:
            before = len(read)
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
            if len(read) == before:
                break
        assert len(read) > 2
        assert ctx.messages()[-1].text == "A long answer. " * 50
        with ctx.turn(wait=0):
            pass


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_a_turn_with_a_key_that_was_interrupted_resumes_and_answers_once(
    client: OpenAI, claude: Anthropic, endpoint: StrictProvider, tmp_path: Path, api: str
) -> None:
    paid: list[str] = []
    is_down = True

    def pay(order: str) -> str:
        """Pay for an order."""
        paid.append(order)
        return "paid"

    def script(body: Body) -> Reply:
        if len(endpoint.requests) == 1:
            return Reply("", (Call("c1", "pay", {"order": "A-1"}),))
        return Reply("Done.")

    def ask(ctx: quire.Context) -> str:
        if api == "anthropic":
            found = anthropic.complete(claude, ctx, model=MODEL, tools=[pay], max_tokens=100)
            block = found.content[0]
            assert block.type == "text"
            return block.text
        if api == "responses":
            return openai.respond(client, ctx, model=MODEL, tools=[pay]).output_text
        return openai.complete(client, ctx, model=MODEL, tools=[pay]).choices[0].message.content or ""

    def handle() -> str:
        with library.turn("user-7", key="request-1", keep=True, budget=4_000) as ctx:
            ctx.user("Pay for A-1.")
            if is_down:
                with pytest.raises(quire.QuotaExceeded):
                    openai.complete(client, ctx, model=MODEL, tools=[pay], options=openai.TurnOptions(requests=1))
                raise TimeoutError("The worker fails.")
            return ask(ctx)

    endpoint.script = script
    with quire.Library(tmp_path / "a.db") as library:
        with pytest.raises(TimeoutError):
            handle()
        is_down = False
        assert handle() == "Done."
        assert handle() == "Done."  # the client repeats a request that was answered
        with library.open("user-7") as ctx:
            assert [message.role for message in ctx.messages()] == ["user", "assistant", "tool", "assistant"]
            assert ctx.check() == []
    assert paid == ["A-1"]
    assert len(endpoint.requests) == 2


def test_a_repeated_request_gets_its_own_answers(client: OpenAI, endpoint: StrictProvider) -> None:
    def handle(key: str, *texts: str) -> list[str | None]:
        answers = []
        with library.turn("user-7", key=key, keep=True, budget=4_000) as ctx:
            for text in texts:
                ctx.user(text)
                answers.append(openai.complete(client, ctx, model=MODEL).choices[0].message.content)
        return answers

    endpoint.script = lambda body: Reply(f"Answer {len(endpoint.requests)}.")
    with quire.Library("memory:") as library:
        first = handle("request-1", "One", "Two")  # one turn that asks twice
        handle("request-2", "Three")
        assert handle("request-1", "One", "Two") == first == ["Answer 1.", "Answer 2."]
        with library.open("user-7") as ctx:
            assert len(ctx.messages()) == 6
            ctx.assistant(None, [quire.ToolCall("c1", "pay", "{}")])  # another turn waits for a result
            ctx.tool_result("c1", "paid")
        assert handle("request-1", "One", "Two") == first
    assert len(endpoint.requests) == 3
