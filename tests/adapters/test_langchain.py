"""LangChain: messages come back unchanged, and an agent works far beyond its budget."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langchain_tests")
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

pytestmark = pytest.mark.clients

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


def test_messages_of_every_kind_come_back_equal(tmp_path: Path) -> None:
    with QuireChatMessageHistory("s", tmp_path / "a.db") as history:
        history.add_messages(EVERY_KIND)
        assert history.messages == EVERY_KIND
    with QuireChatMessageHistory("s", tmp_path / "a.db") as history:
        assert history.messages == EVERY_KIND
        assert [type(message) for message in history.messages] == [type(message) for message in EVERY_KIND]
        assert quire.check_legal(history.ctx.render().openai(), "openai") == []
        assert history.ctx.check() == []


def test_a_bounded_history_gives_what_fits() -> None:
    history = QuireChatMessageHistory("s", quire.MemoryStorage(), bounded=True, budget=600)
    for n in range(60):
        history.add_messages([HumanMessage(f"question {n} about cats " * 4, id=str(n)), AIMessage(f"answer {n}")])
    assert tokens(history.messages) <= 600
    assert problems(history.messages) == []
    assert history.messages[-2:] == [HumanMessage("question 59 about cats " * 4, id="59"), AIMessage("answer 59")]
    assert len(history.whole()) == 120


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


def agent_on(where: Any, model: Scripted, **options: Any) -> tuple[QuireMiddleware, Any]:
    saver = options.pop("checkpointer", None)
    middleware = QuireMiddleware(where, **options)
    agent = create_agent(
        model, [look], system_prompt="You look things up.", middleware=[middleware], checkpointer=saver
    )
    return middleware, agent


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


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
    with pytest.raises(quire.InvalidOperation):
        agent.invoke({"messages": [HumanMessage("whose?")]})


def test_many_turns_far_past_the_budget(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    turns = 220 if request.config.getoption("--long") else 30
    model = Scripted(play=looks_then_answers)
    middleware, agent = agent_on(tmp_path / "a.db", model, budget=BUDGET, checkpointer=InMemorySaver())

    async def talk() -> None:
        for n in range(turns):
            if n % 2:
                await agent.ainvoke({"messages": [question(n)]}, thread("t"))
            else:
                async for _ in agent.astream({"messages": [question(n)]}, thread("t"), stream_mode="messages"):
                    pass

    asyncio.run(talk())
    state = agent.get_state(thread("t")).values["messages"]
    assert len(state) == 4 * turns
    assert len(model.sent) == 2 * turns
    assert all(problems(sent) == [] for sent in model.sent)
    assert max(map(tokens, model.sent[::9])) <= BUDGET
    ctx = middleware.context("t")
    assert [message.text for message in ctx.messages()][1:] == [message.text for message in state]
    assert "KESTREL-4711" in middleware.tools[0].invoke({"query": "vault code"}, thread("t"))
    [usage] = ctx.stats().usage.values()
    assert usage.reports == 2 * turns
    assert ctx.check() == []
    middleware.close()


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


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:.*is not an async function")  # half of the tests are not async
class TestFindIntegration(_Tools, ToolsIntegrationTests):
    name, arguments = "find", {"query": "key"}


class TestWritePageUnit(_Tools, ToolsUnitTests):
    name, arguments = "write_page", {"name": "note", "text": "under the mat"}
