"""`complete` for people and services: plain functions as tools, async contexts, errors, parallel calls, keyed turns."""

import asyncio
import threading
from collections.abc import Callable
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
from quire.adapters.turns import function_tool
from tests.adapters.scripts import calling, results
from tests.strict_provider import Body, Call, Reply, StrictProvider

MODEL = "gpt-5"


# Functions as tools


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


def test_the_schema_of_a_function_comes_from_its_hints_and_its_docstring() -> None:
    schema = function_tool(order_status).schema
    assert schema == {
        "type": "function",
        "function": {
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
        },
    }

    def send(to: Address, speed: Speed, tags: list[str] | None = None) -> None:
        """Send a parcel.

        :param to: The address.
        :param Speed speed: How fast.
        """

    found = function_tool(send).schema["function"]
    assert found["description"] == "Send a parcel."
    parameters = found["parameters"]
    assert parameters["properties"]["to"]["description"] == "The address."
    assert parameters["properties"]["speed"]["description"] == "How fast."
    assert parameters["$defs"]["Address"]["required"] == ["city"]
    assert parameters["required"] == ["to", "speed"]


def test_arguments_are_converted_to_the_annotated_types() -> None:
    def send(to: Address, speed: Speed = Speed.SLOW, weight: float = 1.0) -> tuple[Any, ...]:
        return to, speed, weight

    tool = function_tool(send)
    assert tool.bind({"to": {"city": "Ulm"}, "speed": "fast", "weight": "2"})() == (Address("Ulm"), Speed.FAST, 2.0)
    assert tool.bind({"to": {"city": "Ulm"}})() == (Address("Ulm"), Speed.SLOW, 1.0)
    for wrong in ({}, {"to": {"city": 5}}, {"to": {"city": "Ulm"}, "speed": "slowest"}, {"to": {}, "color": "red"}):
        with pytest.raises(ValueError, match=r"city|to|slowest|color"):
            tool.bind(wrong)


def open_socket(name: str, connection: threading.Thread) -> None: ...


def unknown_type(name: "Nmae") -> None: ...  # type: ignore[name-defined] # noqa: F821


def any_number(*names: str) -> None: ...


def any_names(**names: str) -> None: ...


def by_place(name: str, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (open_socket, r"open_socket: parameter 'connection' has the annotation <class 'threading.Thread'>.*use JSON"),
        (unknown_type, r"unknown_type: parameter 'name' has the annotation 'Nmae'"),
        (any_number, r"any_number: '\*names: str'"),
        (any_names, r"any_names: '\*\*names: str'"),
        (by_place, r"by_place: 'name: str' cannot be given by name"),
        (lambda name: name, "it has no name"),
    ],
)
def test_a_function_that_a_model_cannot_call_is_refused_by_name(
    client: OpenAI, endpoint: StrictProvider, function: Callable[..., Any], match: str
) -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Hello?")
    with pytest.raises(quire.InvalidValue, match=match):
        openai.complete(client, ctx, model=MODEL, tools=[function])
    assert endpoint.requests == []


def test_two_functions_with_one_name_are_refused(client: OpenAI) -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Hello?")
    with pytest.raises(quire.InvalidValue, match="2 functions with the name 'order_status'"):
        openai.complete(client, ctx, model=MODEL, tools=[order_status, order_status])


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


def test_a_result_is_text_parts_or_json(client: OpenAI, endpoint: StrictProvider) -> None:
    def find_address(name: str) -> list[Address]:
        """Return addresses."""
        return [Address(name, "89073")] if name == "Ulm" else []

    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Where?")
    calling(endpoint, Call("c1", "find_address", {"name": "Ulm"}), Call("c2", "find_address", {"name": "Um"}))
    openai.complete(client, ctx, model=MODEL, tools=[find_address])
    assert results(ctx) == {"c1": '[{"city": "Ulm", "zip": "89073"}]', "c2": "[]"}


# Errors


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
    with pytest.raises(quire.InvalidValue, match="on_error is 'show'; use 'raise' or 'tell'"):
        ask(on_error="show")
    ask(on_error="tell")
    assert results(ctx) == {"c1": "ZeroDivisionError: float division by zero"}
    if api == "anthropic":
        block = endpoint.requests[-1]["messages"][-1]["content"][0]
        assert (block["type"], block["is_error"]) == ("tool_result", True)
    assert ctx.messages()[-1].text == "Done."


def test_an_async_function_in_plain_code_is_an_error_for_the_caller(client: OpenAI, endpoint: StrictProvider) -> None:
    async def wait() -> None:
        """Wait."""

    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Wait.")
    calling(endpoint, Call("c1", "wait", {}))
    with pytest.raises(quire.InvalidOperation, match="'wait' is async"):
        openai.complete(client, ctx, model=MODEL, tools=[wait], on_error="tell")


# Parallel calls


@pytest.mark.parametrize("parallel", [True, False])
def test_calls_run_in_parallel_if_it_is_asked_for(client: OpenAI, endpoint: StrictProvider, parallel: bool) -> None:
    running = most = 0
    lock, together = threading.Lock(), threading.Event()

    def work(number: int) -> int:
        """Work."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if most == 4:
            together.set()
        if parallel:
            together.wait(30)
        with lock:
            running -= 1
        if number == 1:
            raise TimeoutError("1 is late")
        return number

    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Work.")
    calling(endpoint, *(Call(f"c{number}", "work", {"number": number}) for number in range(4)))
    with pytest.raises(TimeoutError, match="1 is late"):
        openai.complete(client, ctx, model=MODEL, tools=[work], parallel=parallel)
    assert most == (4 if parallel else 1)
    assert results(ctx) == ({"c0": "0", "c2": "2", "c3": "3"} if parallel else {"c0": "0"})  # what ran is not lost
    openai.complete(client, ctx, model=MODEL, tools=[work], parallel=parallel, on_error="tell")
    assert results(ctx) == {"c0": "0", "c1": "TimeoutError: 1 is late", "c2": "2", "c3": "3"}
    assert ctx.messages()[-1].text == "Done."
    assert ctx.check() == []


def test_async_calls_run_in_parallel_if_it_is_asked_for(endpoint: StrictProvider) -> None:
    met = asyncio.Event()

    async def first() -> str:
        """Wait for the second."""
        await asyncio.wait_for(met.wait(), 10)
        return "first"

    async def second() -> str:
        """Let the first go on."""
        met.set()
        return "second"

    async def work() -> None:
        async with (
            aio.open("memory:", budget=4_000) as ctx,
            AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="no") as ai,
        ):
            await ctx.user("Go.")
            await openai.acomplete(ai, ctx, model=MODEL, tools=[first, second], parallel=True)
            assert {m.tool_call_id: m.text for m in await ctx.messages() if m.role == "tool"} == {
                "c1": "first",
                "c2": "second",
            }

    endpoint.forget()
    calling(endpoint, Call("c1", "first", {}), Call("c2", "second", {}))
    asyncio.run(work())


# Async contexts


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


def test_a_client_of_the_other_kind_is_named(client: OpenAI, endpoint: StrictProvider) -> None:
    async def ask() -> None:
        async with AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="none") as other:
            for call in (openai.complete, openai.respond):
                with pytest.raises(quire.InvalidValue, match="client is an async client"):
                    call(other, ctx, model=MODEL)  # type: ignore[arg-type]
            with pytest.raises(quire.InvalidValue, match="client is an async client"):
                next(openai.stream(other, ctx, model=MODEL))  # type: ignore[arg-type]
        with pytest.raises(quire.InvalidValue, match="client is a synchronous client"):
            await openai.acomplete(client, ctx, model=MODEL)  # type: ignore[arg-type]
        with pytest.raises(quire.InvalidValue, match="client is a synchronous client"):
            await anext(openai.astream(client, ctx, model=MODEL))  # type: ignore[arg-type]

    with quire.open("memory:") as ctx:
        ctx.user("Hello")
        asyncio.run(ask())
        assert len(ctx.messages()) == 1


def test_what_is_no_context_is_named(client: OpenAI) -> None:
    with pytest.raises(quire.InvalidValue, match=r"ctx is <quire\.aio.*; a quire.Context or a quire.aio.Context"):
        openai.complete(client, aio.open("memory:"), model=MODEL)  # type: ignore[arg-type]


def test_the_tools_of_an_async_context_can_be_chosen(endpoint: StrictProvider) -> None:
    async def work() -> None:
        async with (
            aio.open("memory:", budget=4_000) as ctx,
            AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="n") as ai,
        ):
            await ctx.user("Hello?")
            options = openai.TurnOptions(tools=await ctx.tools.only("find"))
            await openai.acomplete(ai, ctx, model=MODEL, options=options)

    endpoint.forget()
    endpoint.script = lambda _: Reply("Done.")
    asyncio.run(work())
    assert [tool["function"]["name"] for tool in endpoint.requests[0]["tools"]] == ["find"]
