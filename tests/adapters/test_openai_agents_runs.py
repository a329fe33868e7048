"""Runs of the Agents SDK with the session: budget, recall, handoffs, interruptions, approvals."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("agents")
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
from quire.adapters.openai_agents import QuireSession, function_tools
from tests.adapters.agents_sdk_items import (
    BUDGET,
    FACT,
    Item,
    items_of,
    run,
)

pytestmark = pytest.mark.clients


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
        counted = quire.open("memory:", budget=10**6, preamble="")
        counted.system(call.system_instructions or "x")
        counted.import_messages(items)
        tokens = counted.render(preview=True).tokens
        assert tokens <= BUDGET, f"{tokens} tokens in request {len(self.sent)}"
        self.sent.append(items)
        number = len(self.sent)
        if items[-1].get("type") != "function_call_output" and number % self.every == 0:
            query = "会员号" if "会员号" in str(items[-1]) else f"question {number // 2}"
            return [function_call("find", {"query": query}, call_id=f"call-{number}")]
        return [assistant_message(f"answer {number}: " + "words to fill the room " * 12, item_id=f"m-{number}")]


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
    turns = 1_000 if request.config.getoption("--long") else 30
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
    @function_tool(failure_error_function=None)
    def look(place: str) -> str:
        """Look somewhere."""
        if place == "nowhere":
            raise RuntimeError("the lamp went out")
        return f"{place} is empty"

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


def test_tools_of_a_context_alone() -> None:
    ctx = quire.open("memory:")
    ctx.pages.create_detail_page("Seat", "", "靠窗", "mem-0")
    tools = {tool.name: cast(FunctionTool, tool) for tool in function_tools(ctx)}
    assert list(tools) == ctx.tools.names()
    assert [tool.name for tool in function_tools(ctx, "find")] == ["find"]
    answer = run(tools["read_page"].on_invoke_tool(cast(Any, None), json.dumps({"page": "mem-1"})))
    assert "靠窗" in answer
    assert run(tools["read_page"].on_invoke_tool(cast(Any, None), "{")).startswith("InvalidValue: ")
