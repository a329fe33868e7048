"""The Agents SDK's session: it returns its items, is cleared and filled in one commit, and drawn within a budget."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
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
    set_tracing_disabled,
)
from agents.extensions.memory import EncryptedSession
from agents.memory import Session, SessionSettings
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

import quire
from quire.adapters.openai_agents import QuireSession, count_unsaved, function_tools, messages_of
from quire.model.messages import count_message_tokens

set_tracing_disabled(True)
Item = dict[str, Any]
BUDGET = 3_000
FACT = "我的会员号是 QX-4471-Z"


def run(work: Any) -> Any:
    return asyncio.run(work)


async def items_of(session: QuireSession, limit: int | None = None) -> list[Any]:
    return list(await session.get_items(limit))


async def add(session: QuireSession, *items: Item) -> None:
    await session.add_items(cast(Any, list(items)))


def said(text: str, role: str = "user") -> Item:
    return {"role": role, "content": text}


def answer(text: str, number: int = 0) -> Item:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}


def called(call: str, **arguments: Any) -> Item:
    return {"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": "look", "arguments": str(arguments)}


def result(call: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": call, "output": text}


def thought(number: int) -> Item:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA" * 30}


HISTORY: list[Item] = [
    {"role": "developer", "content": "Speak plainly."},
    said("你好"),
    thought(1),
    called("c1", to="SEA"),
    called("c2", to="上海"),
    result("c2", "雨"),
    result("c1", "HAT136"),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    answer("It rains.", 1),
    {"role": "user", "content": [{"type": "input_text", "text": "And"}, {"type": "input_image", "image_url": "u"}]},
    {"type": "custom_tool_call", "call_id": "c3", "name": "sh", "input": "ls -l"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "a\nb"},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "zzz"},
    answer("Two files.", 2),
]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[QuireSession]:
    made = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
    yield made
    made.close()


def test_it_is_a_session_of_the_sdk(session: QuireSession) -> None:
    kept: Session = session
    assert isinstance(kept, Session)
    assert session.session_settings == SessionSettings()


def test_items_go_back_as_they_came(session: QuireSession, tmp_path: Path) -> None:
    async def work() -> None:
        for item in HISTORY:
            await add(session, item)
        assert await items_of(session) == HISTORY
        await session.clear_session()
        await add(session, *HISTORY)
        assert await items_of(session) == HISTORY
        for limit in range(1, len(HISTORY) + 2):
            assert await items_of(session, limit) == HISTORY[-limit:]
        assert await items_of(session, 0) == []
        again = QuireSession("s", tmp_path / "a.db")
        assert await items_of(again) == HISTORY
        again.close()

    run(work())


def test_items_are_popped_one_by_one(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        for left in range(len(HISTORY) - 1, -1, -1):
            assert await session.pop_item() == HISTORY[left]
            assert await items_of(session) == HISTORY[:left]
            assert session.context.check() == []
        assert await session.pop_item() is None

    run(work())


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_list_that_it_stands_for(seed: int, tmp_path: Path) -> None:
    """Any calls in any order, compared with a plain list; sometimes through another object, or after a restart."""
    random, kept = Random(seed), list[Item]()

    async def work() -> None:
        session = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
        for step in range(40):
            match random.randrange(8):
                case 0:
                    popped = await session.pop_item()
                    assert popped == (kept.pop() if kept else None)
                case 1 if step > 20:
                    await session.clear_session()
                    kept.clear()
                case 2:
                    session.close()
                    session = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
                case 3:
                    session.context.render()
                case _:
                    fresh = _turn(random, step)
                    await add(session, *fresh)
                    kept.extend(fresh)
            limit = random.choice([None, 1, 2, 5, 30])
            assert await items_of(session, limit) == (kept if limit is None else kept[-limit:]), f"seed {seed}"
        session.close()

    run(work())


def _turn(random: Random, step: int) -> list[Item]:
    call = f"call-{step}"
    return random.choice(
        [
            [said(f"question {step}")],
            [thought(step), called(call), result(call, "结果 " * random.randrange(40))],
            [thought(step), answer(f"answer {step} " * random.randrange(1, 60), step)],
            [said(f"q {step}"), answer("a", step)],
            [called(call), called(f"{call}b"), result(f"{call}b", "2"), result(call, "1")],
            [random.choice(ANY_SHAPE)],
            [called(call), random.choice(ANY_SHAPE[:5]), result(call, "1")],
        ]
    )


def test_the_newest_items_are_those_of_the_settings(tmp_path: Path) -> None:
    async def work() -> None:
        session = QuireSession("s", tmp_path / "a.db", session_settings=SessionSettings(limit=3))
        await add(session, *HISTORY)
        assert await items_of(session) == HISTORY[-3:]
        assert await items_of(session, 5) == HISTORY[-5:]
        session.close()

    run(work())


def test_a_clear_is_stored_when_it_returns(session: QuireSession, tmp_path: Path) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        before = session.context.seq
        await session.clear_session()
        with quire.open(tmp_path / "a.db", "s") as other:
            assert len(other.messages()) == 0
            assert other.seq == before + 1
        session.context.undo(session.context.seq)
        assert await items_of(session) == HISTORY
        await session.clear_session()
        before = session.context.seq
        await session.clear_session()  # there is nothing to clear
        assert session.context.seq == before

    run(work())


ANY_SHAPE: list[Item] = [
    {"a": 1},
    {"a": 2},
    {},
    {"type": 7},
    {"type": None},
    {"type": "message", "content": "no role"},
    {"type": "new_in_2027", "x": [1]},
    {"id": "msg_7"},
    {"role": "nobody", "content": 5},
    {"role": "user", "content": {"x": [1, None]}},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": [{"type": "new"}]},
    {"type": "function_call"},
    {"type": "function_call", "call_id": 5, "name": ["x"], "arguments": {}},
    {"type": "function_call_output"},
    {"type": "function_call_output", "call_id": "unknown", "output": "42"},
    {"type": "local_shell_call_output", "call_id": "unknown"},
    {"type": "local_shell_call_output", "id": "unknown", "output": "x"},
    {"__enc__": 1, "v": 1, "kid": "k", "payload": "gAAA" * 50},
]


@pytest.mark.parametrize("at_once", [True, False])
def test_items_of_any_shape_go_back_as_they_came(session: QuireSession, tmp_path: Path, at_once: bool) -> None:
    async def work() -> None:
        for items in [ANY_SHAPE] if at_once else [[item] for item in ANY_SHAPE]:
            await add(session, *items)
        assert await items_of(session) == ANY_SHAPE
        for limit in range(len(ANY_SHAPE) + 2):
            assert await items_of(session, limit) == (ANY_SHAPE[-limit:] if limit else [])
        again = QuireSession("s", tmp_path / "a.db")
        for left in range(len(ANY_SHAPE) - 1, 5, -1):
            assert await again.pop_item() == ANY_SHAPE[left]
            assert await items_of(again) == ANY_SHAPE[:left]
        sent = again.context.render().responses()
        assert {"a": 1} not in sent
        assert quire.check_legal(sent, "responses") == []
        assert again.context.check() == []
        await again.clear_session()
        assert await items_of(again) == []
        again.close()

    run(work())


def test_a_session_can_be_encrypted(session: QuireSession) -> None:
    async def work() -> None:
        encrypted = EncryptedSession("s", cast(Any, session), encryption_key="a key of some length")
        for item in HISTORY:
            await encrypted.add_items([cast(Any, item)])
        assert await encrypted.get_items() == HISTORY
        assert await encrypted.pop_item() == HISTORY[-1]
        assert await encrypted.get_items(3) == HISTORY[-4:-1]
        assert "HAT136" not in str(await items_of(session))
        assert "payload" not in str(session.context.render().responses())

    run(work())


def test_the_output_of_a_local_shell_belongs_to_its_call(session: QuireSession) -> None:
    call = {"type": "local_shell_call", "id": "l1", "call_id": "c1", "action": {"type": "exec"}, "status": "completed"}
    output = {"type": "local_shell_call_output", "call_id": "c1", "output": "a.txt"}

    async def work() -> None:
        await add(session, said("list it"), call, output)
        assert await items_of(session) == [said("list it"), call, output]
        assert [message.role for message in session.context.messages()] == ["user", "assistant", "tool"]
        assert session.context.render().responses()[-2:] == [call, output]

    run(work())


def test_the_work_for_an_item_does_not_grow_with_the_list() -> None:
    def calls_for(number: int) -> int:
        session = QuireSession(f"of {number}", "memory:")
        talk = [{"role": role, "content": f"{n}"} for n in range(number // 2) for role in ("user", "assistant")]
        session._add([{"role": "user", "content": "Hello"}])
        found = 0

        def count(*_: Any) -> None:
            nonlocal found
            found += 1

        sys.setprofile(count)
        try:
            session._add(talk)
        finally:
            sys.setprofile(None)
        return found

    assert calls_for(800) < 10 * calls_for(100)


def test_the_same_result_twice_stays_twice(session: QuireSession) -> None:
    items = [said("look"), called("c1"), result("c1", "x"), result("c1", "x"), result("c1", "y")]

    async def work() -> None:
        await add(session, *items)
        assert await items_of(session) == items
        assert quire.check_legal(session.context.render().responses(), "responses") == []

    run(work())


def test_a_replacement_with_a_wrong_item_changes_nothing(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        before = session.context.seq
        for wrong in ("no item", 5, None, {"x": object()}):
            with pytest.raises(quire.InvalidValue, match=r"items\[1\]"):
                await session._atomic_replace_items(cast(Any, [said("fine"), wrong]))
            with pytest.raises(quire.InvalidValue, match=r"items\[1\]"):
                await add(session, said("fine"), cast(Item, wrong))
        assert await items_of(session) == HISTORY
        assert session.context.seq == before
        await session._atomic_replace_items([])
        assert await items_of(session) == []

    run(work())


def test_a_broken_list_is_taken_in_and_shown_legally(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, said("hello"), result("lost", "42"), called("c1"), said("and?"), result("c1", "late"))
        assert [item.get("content") for item in await items_of(session) if "role" in item] == ["hello", "and?"]
        assert result("lost", "42") in await items_of(session)
        assert quire.check_legal(session.context.render().responses(), "responses") == []
        assert "42" in [message.text for message in session.context.messages(all=True)]

    run(work())


def test_the_developers_prompt_is_no_item(session: QuireSession) -> None:
    async def work() -> None:
        session.context.system("You are careful.")
        await add(session, said("hello"))
        assert await items_of(session) == [said("hello")]
        await session.clear_session()
        session.close()
        assert [message.text for message in session.context.messages()] == ["You are careful."]
        assert await session.pop_item() is None

    run(work())


def test_sessions_at_one_place_share_its_connection(tmp_path: Path) -> None:
    sessions = [QuireSession(f"user-{n}", tmp_path / "a.db") for n in range(50)]

    async def work() -> None:
        await asyncio.gather(*(add(one, said(one.session_id)) for one in sessions))
        assert len({id(one.context.pages.storage) for one in sessions}) == 1
        assert [await items_of(one) for one in sessions] == [[said(f"user-{n}")] for n in range(50)]

    run(work())
    storage = sessions[0].context.pages.storage
    for one in sessions:
        one.close()
    with pytest.raises(quire.StorageClosed):
        storage.head("user-1")
    assert run(items_of(sessions[3])) == [said("user-3")]  # opened again
    sessions[3].close()


def test_a_context_or_a_storage_can_be_given() -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage, "s")
    session = QuireSession("s", ctx)
    run(add(session, said("hello")))
    assert session.context is ctx
    assert run(items_of(QuireSession("s", storage))) == [said("hello")]
    with pytest.raises(quire.InvalidValue, match="budget"):
        QuireSession("s", ctx, budget=7)
    with pytest.raises(quire.InvalidValue, match="Context name"):
        QuireSession("", storage)


# Runs of the SDK


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


def test_a_run_that_breaks_off_is_gone_on_with(session: QuireSession) -> None:
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
