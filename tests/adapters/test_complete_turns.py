"""Turns of `complete` and of the adapters: one worker at a time, resumed, answered once."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from openai import AsyncOpenAI, OpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import quire
from quire import aio
from quire.adapters import anthropic, openai
from quire.adapters.langchain import QuireMiddleware
from quire.adapters.pydantic_ai import QuireCapability
from tests.adapters.langchain_models import Scripted, look, looks_then_answers
from tests.strict_provider import Body, Call, Reply, StrictProvider

MODEL = "gpt-5"


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
