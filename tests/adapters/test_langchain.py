"""LangChain: messages come back unchanged, and an agent works far beyond its budget."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.checkpoint.memory import InMemorySaver

import quire
from quire.adapters.langchain import QuireChatMessageHistory, QuireMiddleware, tools_of
from tests.adapters.langchain_models import Scripted, look, looks_then_answers, problems, question, tokens

BUDGET = 1_500

EVERY_KIND: list[BaseMessage] = [
    SystemMessage("Be kind."),
    HumanMessage("hi 你好", id="7", name="bob", weight=1.5),
    AIMessage(
        [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
        ],
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "1"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m", "logprobs": None},
    ),
    ToolMessage(
        "x",
        tool_call_id="1",
        status="error",
        artifact={"pair": (1, 2), "found": [Document(page_content="hi", metadata={"p": 1})], "bytes": b"x", 3: 4},
        additional_kwargs={"at": datetime(2026, 5, 20, tzinfo=UTC)},
    ),
    ToolMessage("x", tool_call_id="1"),
    ToolMessage("nobody asked", tool_call_id="9"),
    HumanMessage(
        [
            {"type": "text", "text": "看"},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
            {"type": "weird", "q": 1, "$quire": "no tag of ours"},
            "s",
        ]
    ),
    AIMessage(""),
    ChatMessage(role="critic", content="no"),
    FunctionMessage(name="f", content="x"),
    AIMessage(
        "", invalid_tool_calls=[{"name": "f", "args": "{", "id": "q", "error": "e", "type": "invalid_tool_call"}]
    ),
    SystemMessage("late"),
    AIMessageChunk(content="chunk"),
]


# The history


def test_messages_of_every_kind_come_back_equal(tmp_path: Path) -> None:
    with QuireChatMessageHistory("s", tmp_path / "a.db") as history:
        history.add_messages(EVERY_KIND)
        assert history.messages == EVERY_KIND
    with QuireChatMessageHistory("s", tmp_path / "a.db") as history:
        assert history.messages == EVERY_KIND
        assert [type(message) for message in history.messages] == [type(message) for message in EVERY_KIND]
        assert quire.check_legal(history.ctx.render().openai(), "openai") == []
        assert history.ctx.check() == []


def test_clear_takes_all_out_in_one_step_that_can_be_undone() -> None:
    history = QuireChatMessageHistory("s", quire.MemoryStorage())
    history.add_messages(EVERY_KIND)
    seq = history.ctx.seq
    history.clear()
    assert (history.messages, history.ctx.seq) == ([], seq + 1)
    history.add_user_message("anew")
    assert history.messages == [HumanMessage("anew")]
    history.clear()
    history.clear()
    assert history.messages == []
    assert history.ctx.check() == []


def test_a_session_has_its_own_messages_and_another_writer_is_seen() -> None:
    store = quire.MemoryStorage()
    one, same, other = (QuireChatMessageHistory(name, store) for name in ("one", "one", "other"))
    one.add_user_message("hi")
    same.add_ai_message("hello")
    one.add_user_message("and?")
    assert one.messages == same.messages == [HumanMessage("hi"), AIMessage("hello"), HumanMessage("and?")]
    assert other.messages == []


def test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_added() -> None:
    history = QuireChatMessageHistory("s", quire.MemoryStorage())
    with pytest.raises(quire.InvalidValue, match=r"ToolMessage\.artifact\.it is <object object"):
        history.add_messages([HumanMessage("a"), ToolMessage("x", tool_call_id="1", artifact={"it": object()})])
    assert history.messages == []


def test_a_bounded_history_gives_what_fits() -> None:
    history = QuireChatMessageHistory("s", quire.MemoryStorage(), bounded=True, budget=600)
    for n in range(60):
        history.add_messages([HumanMessage(f"question {n} about cats " * 4, id=str(n)), AIMessage(f"answer {n}")])
    assert tokens(history.messages) <= 600
    assert problems(history.messages) == []
    assert history.messages[-2:] == [HumanMessage("question 59 about cats " * 4, id="59"), AIMessage("answer 59")]
    assert len(history.whole()) == 120


def test_the_async_forms_do_the_same() -> None:
    async def use() -> list[BaseMessage]:
        history = QuireChatMessageHistory("s", quire.MemoryStorage())
        await asyncio.gather(*(history.aadd_messages([HumanMessage(f"{n}")]) for n in range(9)))
        found = await history.aget_messages()
        await history.aclear()
        assert await history.aget_messages() == []
        return found

    assert asyncio.run(use()) == [HumanMessage(f"{n}") for n in range(9)]


def test_runnables_with_message_history_go_on_where_they_were(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core.runnables.history")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangChain warns that there is a newer way
        from langchain_core.runnables.history import RunnableWithMessageHistory

        model = Scripted(play=lambda messages: AIMessage(f"{len(messages)} messages"))
        store = quire.open_storage(f"sqlite:{tmp_path}/a.db")
        chain = RunnableWithMessageHistory(model, lambda session_id: QuireChatMessageHistory(session_id, store))
        said = [
            chain.invoke([HumanMessage(f"{n}")], {"configurable": {"session_id": name}}).text
            for n in range(3)
            for name in ("a", "b")
        ]
    assert said == ["1 messages"] * 2 + ["3 messages"] * 2 + ["5 messages"] * 2
    assert [message.text for message in QuireChatMessageHistory("a", store).messages] == [
        "0", "1 messages", "1", "3 messages", "2", "5 messages",
    ]  # fmt: skip
    store.close()


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CALLS: Any = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True).map(
    lambda ids: [{"name": "f", "args": {"of": one}, "id": one} for one in ids]
)
MESSAGES: Any = st.one_of(
    st.builds(HumanMessage, st.text(), additional_kwargs=st.dictionaries(st.text(max_size=4), JSON, max_size=2)),
    st.builds(AIMessage, st.text(), tool_calls=CALLS, response_metadata=st.dictionaries(st.text(max_size=4), JSON)),
    st.builds(ToolMessage, st.text(), tool_call_id=st.sampled_from(["a", "b", "c"]), artifact=JSON),
    st.builds(SystemMessage, st.text()),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(MESSAGES, max_size=4), max_size=5))
def test_whatever_is_added_comes_back_and_the_view_is_legal(batches: list[list[BaseMessage]]) -> None:
    history = QuireChatMessageHistory("s", quire.MemoryStorage())
    for batch in batches:
        history.add_messages(batch)
    added = [message for batch in batches for message in batch]
    assert history.messages == added
    if any(message.type == "human" and message.text.strip() for message in added):
        assert problems(history.view()) == []


# The middleware


def agent_on(where: Any, model: Scripted, **options: Any) -> tuple[QuireMiddleware, Any]:
    saver = options.pop("checkpointer", None)
    middleware = QuireMiddleware(where, **options)
    agent = create_agent(
        model, [look], system_prompt="You look things up.", middleware=[middleware], checkpointer=saver
    )
    return middleware, agent


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def earlier(count: int) -> list[BaseMessage]:
    """Return turns like those of `turns`, without an agent."""
    messages: list[BaseMessage] = []
    for n in range(count):
        messages.append(question(n))
        messages.append(looks_then_answers(messages))
        call = messages[-1].tool_calls[0]  # type: ignore[attr-defined]
        messages.append(ToolMessage(look.invoke(call["args"]), tool_call_id=call["id"], name="look"))
        messages.append(looks_then_answers(messages))
    return messages


def turns(agent: Any, count: int, config: Any, begun: Sequence[BaseMessage] = ()) -> list[BaseMessage]:
    """Ask many questions. Return the final state."""
    messages = list(begun)
    for n in range(len(begun) // 4, count):
        messages = agent.invoke({"messages": [*messages, question(n)]}, config)["messages"]
    return messages


@pytest.mark.parametrize("before", [170, pytest.param(0, marks=pytest.mark.slow)])
def test_two_hundred_turns_far_past_the_budget(tmp_path: Path, before: int) -> None:
    model = Scripted(play=looks_then_answers)
    middleware, agent = agent_on(tmp_path / "a.db", model, budget=BUDGET)
    state = turns(agent, 210, thread("42"), earlier(before))
    assert len(state) == 840
    assert len(model.sent) == 2 * (210 - before)
    assert all(problems(sent) == [] for sent in model.sent)
    assert max(map(tokens, model.sent[::23])) <= BUDGET
    ctx = middleware.context("42")
    assert [message.text for message in ctx.messages()][1:] == [message.text for message in state]
    assert ctx.check() == []
    found = middleware.tools[0].invoke({"query": "vault code"}, thread("42"))
    assert "KESTREL-4711" in found
    last = model.sent[-1]
    assert isinstance(last[0], SystemMessage)
    assert last[0].text.startswith("You look things up.")
    assert last[-3] is state[-4]
    assert last[-1].content == state[-2].content
    middleware.close()


def test_the_model_gets_the_frameworks_own_messages_where_they_are_whole() -> None:
    ctx = quire.open(quire.MemoryStorage())
    model = Scripted(play=lambda messages: AIMessage("ok"))
    _, agent = agent_on(ctx, model)
    said = HumanMessage([{"type": "text", "text": "看"}, {"type": "weird", "q": 1}], id="1", mood="good")
    agent.invoke({"messages": [said]})
    [[system, sent]] = model.sent
    assert sent == said
    assert system.text.startswith("You look things up.\n\nContext key: ")


@pytest.mark.parametrize(
    "thought",
    [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2ln"},
        {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "c2ln"}},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"},
    ],
)
def test_thinking_is_sent_back_until_what_came_before_it_changes(thought: dict[str, Any]) -> None:
    ctx = quire.open(quire.MemoryStorage())
    model = Scripted(play=lambda messages: AIMessage([thought, {"type": "text", "text": "ok"}]))
    _, agent = agent_on(ctx, model)
    state = agent.invoke({"messages": [HumanMessage("a")]})
    state = agent.invoke({"messages": [*state["messages"], HumanMessage("b")]})
    assert model.sent[-1][-2] == state["messages"][1]
    assert thought in model.sent[-1][-2].content
    ctx.system("Other words.", name="more")
    agent.invoke({"messages": [*state["messages"], HumanMessage("c")]})
    bare = [{"type": "text", "text": "ok"}]
    assert [message.content for message in model.sent[-1] if isinstance(message, AIMessage)] == [bare, bare]


def test_a_clipped_result_keeps_what_else_its_message_says() -> None:
    ctx = quire.open(quire.MemoryStorage(), budget=1_000)
    model = Scripted(play=lambda messages: AIMessage("ok"))
    _, agent = agent_on(ctx, model)
    call: Any = {"name": "look", "args": {}, "id": "1"}
    result = ToolMessage("much " * 4_000, tool_call_id="1", name="look", status="error", id="t")
    agent.invoke({"messages": [HumanMessage("go"), AIMessage("", tool_calls=[call], id="a"), result]})
    sent = model.sent[0][-1]
    assert isinstance(sent, ToolMessage)
    assert (sent.status, sent.name, sent.id, sent.tool_call_id) == ("error", "look", "t", "1")
    assert len(sent.text) < 5_000
    assert tokens(model.sent[0]) <= 1_000


def test_a_prompt_in_blocks_stays_in_blocks() -> None:
    model = Scripted(play=lambda messages: AIMessage("ok"))
    blocks: list[Any] = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    agent = create_agent(
        model, [], system_prompt=SystemMessage(blocks), middleware=[QuireMiddleware(quire.open(quire.MemoryStorage()))]
    )
    agent.invoke({"messages": [SystemMessage("And short."), HumanMessage("hi")]})
    system = model.sent[0][0]
    assert system.content[:2] == [*blocks, {"type": "text", "text": "And short."}]
    assert [message.type for message in model.sent[0]] == ["system", "human"]


def test_the_model_can_use_quires_tools_and_hears_of_its_mistakes() -> None:
    def play(messages: list[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return AIMessage(last.text)
        name, _, argument = last.text.partition(" ")
        call: Any = {"name": name, "args": {"query": argument} if name == "find" else {"index": argument}, "id": name}
        return AIMessage("", tool_calls=[call])

    ctx = quire.open(quire.MemoryStorage())
    _, agent = agent_on(ctx, Scripted(play=play), tools=["find", "read_page"])
    ctx.pages.create_detail_page("vault", "", "The code is KESTREL-4711.", "mem-0")
    assert "KESTREL-4711" in agent.invoke({"messages": [HumanMessage("find vault")]})["messages"][-1].text
    assert "InvalidValue" in agent.invoke({"messages": [HumanMessage("read_page nowhere")]})["messages"][-1].text


def test_every_thread_has_its_own_context_and_a_run_without_one_is_told() -> None:
    store = quire.MemoryStorage()
    model = Scripted(play=lambda messages: AIMessage("ok"))
    middleware, agent = agent_on(store, model)
    agent.invoke({"messages": [HumanMessage("mine")]}, thread("a"))
    agent.invoke({"messages": [HumanMessage("yours")]}, thread("b"))
    assert sorted(quire.Library(store).list()) == ["a", "b"]
    assert [message.text for message in middleware.context("b").messages()][1:] == ["yours", "ok"]
    with pytest.raises(quire.InvalidOperation, match="thread_id"):
        agent.invoke({"messages": [HumanMessage("whose?")]})


def test_usage_is_learned_from() -> None:
    ctx = quire.open(quire.MemoryStorage())
    _, agent = agent_on(ctx, Scripted(play=looks_then_answers), tools=False)
    agent.invoke({"messages": [question(1)]})
    [usage] = ctx.stats().usage.values()
    assert (usage.billed, usage.reports) == (500, 2)


@pytest.mark.parametrize("length", [25, pytest.param(220, marks=pytest.mark.slow)])
def test_async_and_streaming_with_a_checkpointer(length: int) -> None:
    model = Scripted(play=looks_then_answers)
    _, agent = agent_on(quire.MemoryStorage(), model, budget=BUDGET, checkpointer=InMemorySaver())

    async def talk() -> None:
        for n in range(length):
            if n % 2:
                await agent.ainvoke({"messages": [question(n)]}, thread("t"))
            else:
                async for _ in agent.astream({"messages": [question(n)]}, thread("t"), stream_mode="messages"):
                    pass

    asyncio.run(talk())
    assert len(agent.get_state(thread("t")).values["messages"]) == 4 * length
    assert all(problems(sent) == [] for sent in model.sent)
    assert max(map(tokens, model.sent[-4:])) <= BUDGET


def test_time_travel_follows_the_other_branch_and_loses_nothing() -> None:
    model = Scripted(play=looks_then_answers)
    middleware, agent = agent_on(quire.MemoryStorage(), model, checkpointer=InMemorySaver())
    for n in range(4):
        agent.invoke({"messages": [question(n)]}, thread("t"))
    ctx = middleware.context("t")
    earlier = next(state for state in agent.get_state_history(thread("t")) if len(state.values["messages"]) == 8)
    agent.invoke({"messages": [HumanMessage("another way")]}, earlier.config)
    state = agent.get_state(thread("t")).values["messages"]
    assert len(state) == 12
    assert [message.text for message in ctx.messages()][1:] == [message.text for message in state]
    assert all(problems(sent) == [] for sent in model.sent)
    assert any("item 3" in message.text for message in ctx.messages(all=True))
    assert not any("item 3" in message.text for message in model.sent[-1])
    assert ctx.check() == []


def test_many_runs_at_once_on_one_middleware(tmp_path: Path) -> None:
    model = Scripted(play=looks_then_answers)
    middleware, agent = agent_on(tmp_path / "a.db", model, budget=BUDGET)

    async def talk(name: str) -> None:
        messages: list[BaseMessage] = []
        for n in range(5):
            messages = (await agent.ainvoke({"messages": [*messages, question(n)]}, thread(name)))["messages"]
        assert len(middleware.context(name).messages()) == 21

    async def all_of_them() -> None:
        await asyncio.gather(*(talk(f"t{n}") for n in range(6)))

    asyncio.run(all_of_them())
    assert all(problems(sent) == [] for sent in model.sent)
    middleware.close()


# The tools, in LangChain's own suites


class _Tools:
    arguments: dict[str, Any]
    name: str

    @property
    def tool_constructor(self) -> BaseTool:
        ctx = quire.open(quire.MemoryStorage())
        ctx.user("Where is the key?")
        return next(one for one in tools_of(ctx) if one.name == self.name)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return self.arguments


class TestFindUnit(_Tools, ToolsUnitTests):
    name, arguments = "find", {"query": "key"}


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:.*is not an async function")  # half of the tests are not async
class TestFindIntegration(_Tools, ToolsIntegrationTests):
    name, arguments = "find", {"query": "key"}


class TestWritePageUnit(_Tools, ToolsUnitTests):
    name, arguments = "write_page", {"name": "note", "text": "under the mat"}


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:.*is not an async function")  # half of the tests are not async
class TestWritePageIntegration(_Tools, ToolsIntegrationTests):
    name, arguments = "write_page", {"name": "note", "text": "under the mat"}


def test_every_tool_is_offered_with_its_schema() -> None:
    ctx = quire.open(quire.MemoryStorage())
    offered = {tool.name: tool for tool in tools_of(ctx)}
    assert list(offered) == ctx.tools.names()
    for schema in ctx.tools.openai():
        function = schema["function"]
        assert offered[function["name"]].description == function["description"]
        assert offered[function["name"]].args_schema == function["parameters"]
    assert [tool.name for tool in tools_of(ctx, ctx.tools.only("find"))] == ["find"]
