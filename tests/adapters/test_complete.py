"""`complete` for people and services: plain functions as tools, async contexts, errors, parallel calls, keyed turns."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from anthropic import Anthropic, AsyncAnthropic
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from openai import AsyncOpenAI, OpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import quire
from quire import aio
from quire.adapters import anthropic, openai
from quire.adapters.functions import function_tool
from quire.adapters.langchain import QuireMiddleware
from quire.adapters.pydantic_ai import QuireCapability
from tests.adapters.langchain_models import Scripted, look, looks_then_answers
from tests.strict_provider import Body, Call, Reply, State, StrictProvider

MODEL = "gpt-5"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=8_000)) as made:
        yield made


@pytest.fixture
def client(endpoint: StrictProvider) -> Iterator[OpenAI]:
    endpoint.forget()
    with OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def claude(endpoint: StrictProvider) -> Iterator[Anthropic]:
    endpoint.forget()
    with Anthropic(base_url=endpoint.url, api_key="none", max_retries=0) as made:
        yield made


def calling(endpoint: StrictProvider, *calls: Call) -> None:
    """Let the model make these calls once, then answer with the results that it sees."""

    def script(body: Body) -> Reply:
        return Reply("", calls) if len(endpoint.requests) == 1 else Reply("Done.")

    endpoint.script = script


def results(ctx: quire.Context) -> dict[str, str]:
    return {str(message.tool_call_id): message.text for message in ctx.messages() if message.role == "tool"}


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
        return [Address(name, "89073")]

    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Where?")
    calling(endpoint, Call("c1", "find_address", {"name": "Ulm"}))
    openai.complete(client, ctx, model=MODEL, tools=[find_address])
    assert results(ctx) == {"c1": '[{"city": "Ulm", "zip": "89073"}]'}


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
    lock = threading.Lock()

    def work(number: int) -> int:
        """Work."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
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


# Turns


def test_only_one_worker_at_a_time_asks_for_a_context(client: OpenAI, endpoint: StrictProvider, tmp_path: Path) -> None:
    running = most = 0
    lock = threading.Lock()

    def script(body: Body) -> Reply:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return Reply("Done.")

    endpoint.script = script
    library = quire.Library(tmp_path / "a.db")

    def work(number: int) -> None:
        with library.open("talk", budget=4_000) as ctx:
            for _ in range(3):
                ctx.pages._engine.retry(lambda: ctx.user(f"Question of {number}"))
                openai.complete(client, ctx, model=MODEL)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with library.open("talk") as ctx:
        assert [message.role for message in ctx.messages()].count("assistant") == 9
        assert ctx.check() == []
    assert most == 1
    library.close()


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


def test_an_async_turn_is_joined(endpoint: StrictProvider, tmp_path: Path) -> None:
    ctx: Any = None

    async def note(text: str) -> str:
        """Take a note in a turn of its own, which joins."""
        async with ctx.turn(wait=0):
            await ctx.pages.create_detail_page("Note", "", text, "mem-0")
        return "noted"

    async def work() -> None:
        nonlocal ctx
        ai = AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key="none")
        async with ai, aio.Library(tmp_path / "a.db") as library:
            async with library.turn("user-7", key="r-1", keep=True, budget=4_000) as ctx:
                await ctx.user("Take a note.")
                await openai.acomplete(ai, ctx, model=MODEL, tools=[note])
            async with library.open("user-7") as ctx:
                await ctx.user("Take another.")
                assert [event async for event in openai.astream(ai, ctx, model=MODEL, tools=[note])]
                with ctx._get().turn(wait=0):  # a plain turn in the thread of the loop
                    await openai.acomplete(ai, ctx, model=MODEL, tools=[note])
                assert len(await ctx.pages.children("mem-0")) == 2

    def script(body: Body) -> Reply:
        asks = str(body["messages"][-1]["content"]).startswith("Take")
        return Reply("", (Call(f"c{len(endpoint.requests)}", "note", {"text": "x"}),)) if asks else Reply("Done.")

    endpoint.forget()
    endpoint.script = script
    asyncio.run(work())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_of_the_langchain_middleware_is_a_turn(tmp_path: Path, is_async: bool) -> None:
    seen: list[str] = []

    class Model(Scripted):
        def _generate(self, *args: Any, **options: Any) -> Any:
            with pytest.raises(quire.Busy), library.turn("default", wait=0):
                pass
            seen.append("asked")
            return super()._generate(*args, **options)

    async def work() -> None:
        async with aio.open(library.storage, budget=4_000) as ctx:
            agent = create_agent(Model(play=looks_then_answers), [look], middleware=[QuireMiddleware(ctx)])
            await agent.ainvoke({"messages": [HumanMessage("1: what about item 1?")]})

    with quire.Library(tmp_path / "a.db") as library:
        if is_async:
            asyncio.run(work())
        else:
            ctx = library.open(budget=4_000)
            agent = create_agent(Model(play=looks_then_answers), [look], middleware=[QuireMiddleware(ctx)])
            agent.invoke({"messages": [HumanMessage("1: what about item 1?")]})
        assert seen == ["asked", "asked"]
        with library.turn("default", wait=0) as ctx:
            assert [message.role for message in ctx.messages()] == ["user", "assistant", "tool", "assistant"]


def test_a_request_of_the_pydantic_ai_capability_is_a_turn(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        with pytest.raises(quire.Busy), library.turn("default", wait=0):
            pass
        seen.append("asked")
        if len(seen) == 1:
            raise TimeoutError("The model does not answer.")
        return ModelResponse(parts=[TextPart("Done.")])

    with quire.Library(tmp_path / "a.db") as library:
        ctx = library.open(budget=4_000)
        agent = Agent(FunctionModel(answer), capabilities=[QuireCapability(ctx)])
        with pytest.raises(TimeoutError):
            asyncio.run(agent.run("Hello?"))
        with library.turn("default", wait=0) as other:
            assert [message.role for message in other.messages()] == ["user"]  # it is kept
        asyncio.run(agent.run("Hello?"))
        with library.turn("default", wait=0) as other:
            assert [message.role for message in other.messages()][-2:] == ["user", "assistant"]
    assert len(seen) == 2
