"""Runs of the Agents SDK with the session: budget, recall, handoffs, interruptions, approvals."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    Runner,
    function_tool,
)
from agents.memory import SessionSettings
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

import quire
from quire.adapters.openai_agents import QuireSession, count_unsaved, function_tools, messages_of
from quire.model.messages import count_message_tokens
from tests.adapters.agents_sdk_items import (
    BUDGET,
    FACT,
    HISTORY,
    Item,
    add,
    items_of,
    run,
    said,
)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[QuireSession]:
    made = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
    yield made
    made.close()


class Desk:
    """A scripted model that checks every list it gets."""

    def __init__(self, session: QuireSession, calls_every: int = 3) -> None:
        self.session = session
        self.every = calls_every
        self.sent: list[list[Item]] = []
        self.model = ScriptedModel()

    def ready(self, steps: int) -> None:
        self.model.extend([ModelStep.respond(self._answer)] * steps)

    def _answer(self, call: ModelCall) -> Sequence[Any]:
        items = cast(list[Item], call.input)
        problems = quire.check_legal(items, "responses")
        assert problems == [], problems
        tokens = _tokens(self.session.context, items, call.system_instructions or "")
        assert tokens <= BUDGET, f"{tokens} tokens in request {len(self.sent)}"
        self.sent.append(items)
        number = len(self.sent)
        if items[-1].get("type") != "function_call_output" and number % self.every == 0:
            query = "会员号" if "会员号" in str(items[-1]) else f"question {number // 2}"
            return [function_call("find", {"query": query}, call_id=f"call-{number}")]
        return [assistant_message(f"answer {number}: " + "words to fill the room " * 12, item_id=f"m-{number}")]


def _tokens(ctx: quire.Context, items: Sequence[Item], instructions: str) -> int:
    count = ctx.pages.counter.count
    shown = sum(count_message_tokens(message, count) for message in messages_of(items))
    return shown + (count(instructions) + 4 if instructions else 0)


def desk_agent(desk: Desk, **more: Any) -> Agent[Any]:
    tools = desk.session.tools("find", "read_page")
    return Agent(name="clerk", instructions="Be brief. " * 20, model=desk.model, tools=tools, **more)


async def turn(agent: Agent[Any], text: str, session: QuireSession, streamed: bool = False, **more: Any) -> Any:
    config = session.run_config(tracing_disabled=True)
    if not streamed:
        return await Runner.run(agent, text, session=session, run_config=config, **more)
    streaming = Runner.run_streamed(agent, text, session=session, run_config=config, **more)
    async for _ in streaming.stream_events():
        pass
    return streaming


def test_long_runs_stay_within_the_budget_and_reach_what_is_old(
    session: QuireSession, request: pytest.FixtureRequest
) -> None:
    turns = 1_000 if request.config.getoption("--long") else 90
    desk = Desk(session)
    desk.ready(2 * turns)
    agent = desk_agent(desk)
    session.session_settings = SessionSettings(limit=12)  # the view comes from the store, not from this list

    async def work() -> None:
        await turn(agent, f"记住: {FACT}。", session)
        for number in range(turns):
            await turn(agent, f"question {number}, " + "which is long " * 8, session, streamed=number % 5 == 0)
            assert any(f"question {number}," in str(item) for item in desk.sent[-1][-4:]), number
        desk.every = 1
        await turn(agent, "那么会员号呢?", session)
        assert desk.sent[-1][-1]["type"] == "function_call_output"
        assert "QX-4471-Z" in desk.sent[-1][-1]["output"]

    run(work())
    stored = run(session.get_items(10 * turns))
    assert len([item for item in stored if item.get("role") == "user"]) >= turns + 1
    assert session.context.check() == []


def test_recall_brings_back_what_the_user_speaks_of(session: QuireSession) -> None:
    desk = Desk(session, calls_every=10_000)
    desk.ready(50)
    agent = Agent(name="clerk", model=desk.model)
    config = session.run_config(tracing_disabled=True)
    config.call_model_input_filter = session.view_filter(recall=True)

    async def work() -> None:
        await turn(agent, "早上好。" * 40 + "雨伞放在地下室的蓝色柜子里。" + "今天天气不错。" * 40, session)
        for number in range(40):
            await turn(agent, f"another thing {number} " * 12, session)
        await Runner.run(agent, "雨伞在哪里?", session=session, run_config=config)

    run(work())
    assert "地下室" not in str(desk.sent[-2])
    assert "地下室" in str(desk.sent[-1])


def test_several_runs_at_once_keep_every_item(session: QuireSession) -> None:
    desk = Desk(session)
    desk.ready(200)
    agent = desk_agent(desk)

    async def work() -> None:
        for _ in range(4):
            await asyncio.gather(*(turn(agent, f"at once {n}", session, streamed=n % 2 == 0) for n in range(6)))
        items = await items_of(session)
        assert sorted(item["content"] for item in items if item.get("role") == "user") == sorted(
            f"at once {n}" for n in range(6) for _ in range(4)
        )
        outputs = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
        assert outputs == {item["call_id"] for item in items if item.get("type") == "function_call"}

    run(work())


def test_a_handoff_goes_on_with_the_same_conversation(session: QuireSession) -> None:
    desk = Desk(session, calls_every=10_000)
    second = desk_agent(desk)
    first = Agent(
        name="porter",
        model=ScriptedModel([[function_call("transfer_to_clerk", {}, call_id="h1")]]),
        handoffs=[second],
    )
    desk.ready(3)

    async def work() -> None:
        done = await turn(first, "hello", session)
        assert done.last_agent is second
        await turn(second, "and now?", session)
        kinds = [item.get("type") or item["role"] for item in await items_of(session)]
        assert kinds == ["user", "function_call", "function_call_output", "message", "user", "message"]

    run(work())


def test_an_interrupted_run_continues(session: QuireSession) -> None:
    @function_tool
    def look(place: str) -> str:
        """Look somewhere."""
        if place == "nowhere":
            raise RuntimeError("the lamp went out")
        return f"{place} is empty"

    look._failure_error_function = None
    steps = [[function_call("look", {"place": "房间"}, call_id=f"c{n}")] for n in range(5)]

    async def work() -> None:
        with pytest.raises(MaxTurnsExceeded):
            await turn(Agent(name="a", model=ScriptedModel(steps), tools=[look]), "search", session, max_turns=3)
        broken = Agent(name="a", model=ScriptedModel([RuntimeError("the line went dead")] * 2))
        with pytest.raises(RuntimeError):
            await turn(broken, "hello?", session)
        with pytest.raises(RuntimeError):
            await turn(broken, "still there?", session, streamed=True)
        refusing = InputGuardrail(lambda *_: GuardrailFunctionOutput(output_info=None, tripwire_triggered=True))
        with pytest.raises(InputGuardrailTripwireTriggered):
            await turn(Agent(name="a", model=ScriptedModel([]), input_guardrails=[refusing]), "no", session)
        desk = Desk(session, calls_every=10_000)
        desk.ready(1)
        await turn(desk_agent(desk), "go on", session)
        shown = str(desk.sent[-1])
        assert [text for text in ("房间 is empty", "hello?", "still there?", "go on") if text not in shown] == []

    run(work())


def test_an_approval_waits_and_goes_on(session: QuireSession) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    model = ScriptedModel([[function_call("pay", {"amount": 7}, call_id="p1")], [assistant_message("done")]])
    agent = Agent(name="a", model=model, tools=[pay])

    async def work() -> None:
        waiting = await turn(agent, "pay 7", session)
        assert waiting.interruptions
        assert quire.check_legal(session.context.render().responses(), "responses") == []
        state = waiting.to_state()
        state.approve(waiting.interruptions[0])
        config = session.run_config(tracing_disabled=True)
        done = await Runner.run(agent, state, session=session, run_config=config)
        assert done.final_output == "done"
        sent = cast(list[Item], cast(ModelCall, model.last_call).input)
        assert quire.check_legal(sent, "responses") == []
        assert "paid 7" in str(sent)
        assert [item.get("type") or item["role"] for item in await items_of(session)] == [
            "user",
            "function_call",
            "function_call_output",
            "message",
        ]

    run(work())


def test_compaction_of_the_sdk_replaces_in_one_commit(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        before = session.context.seq
        assert await session._atomic_replace_items(cast(Any, HISTORY[-2:]))
        assert session.context.seq == before + 1
        assert await items_of(session) == HISTORY[-2:]

    run(work())


def test_the_loop_is_never_blocked(session: QuireSession) -> None:
    """While the session's thread waits for a lock, the event loop continues."""

    async def work() -> None:
        session.context.user("hello")
        with session.context.pages._engine.lock:
            waiting = asyncio.ensure_future(items_of(session))
            await asyncio.sleep(0.01)
            assert not waiting.done()
        assert await waiting == [said("hello")]

    run(work())


def test_tools_of_a_context_alone() -> None:
    ctx = quire.open("memory:")
    ctx.pages.create_detail_page("Seat", "", "靠窗", "mem-0")
    tools = {tool.name: cast(FunctionTool, tool) for tool in function_tools(ctx)}
    assert list(tools) == ctx.tools.names()
    assert [tool.name for tool in function_tools(ctx, "find")] == ["find"]
    answer = run(tools["read_page"].on_invoke_tool(cast(Any, None), json.dumps({"page": "mem-1"})))
    assert "靠窗" in answer
    assert run(tools["read_page"].on_invoke_tool(cast(Any, None), "{")).startswith("InvalidValue: ")


def test_where_a_list_goes_on() -> None:
    assert count_unsaved([], []) == 0
    assert count_unsaved(["a", "b"], []) == 2
    assert count_unsaved(["a", "b", "c"], ["a", "b"]) == 1
    assert count_unsaved(["go", "yes", "go"], ["go", "yes"]) == 1
    assert count_unsaved(["yes", "go", "go"], ["yes", "go"]) == 1
    assert count_unsaved(["b", "c"], ["a", "b", "c"]) == 0
    assert count_unsaved(["a", "mine"], ["a", "mine", "theirs"]) == 0
    assert count_unsaved(["a", "mine", "new"], ["a", "mine", "theirs"]) == 1
