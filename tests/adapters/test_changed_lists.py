"""A framework removes, edits or summarises messages: the model gets what the framework's list has, and nothing else."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("pydantic_ai")
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import quire
from quire.adapters.langchain import QuireMiddleware
from quire.adapters.pydantic_ai import QuireCapability
from tests.adapters.langchain_models import Scripted

pytestmark = pytest.mark.clients

SECRET = "my password is hunter2"
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Desk:
    """An agent of LangChain with quire as its last middleware, and what its model got."""

    def __init__(self, *before: Any, saver: Any = None) -> None:
        self.model = Scripted(play=lambda messages: AIMessage(f"answer {len(self.model.sent)}"))
        self.middleware = QuireMiddleware(quire.MemoryStorage(), tools=False)
        self.agent: Any = create_agent(self.model, middleware=[*before, self.middleware], checkpointer=saver)

    def ask(self, *messages: BaseMessage) -> list[str]:
        self.agent.invoke({"messages": list(messages)}, THREAD)
        return self.sent()

    def sent(self) -> list[str]:
        return [message.text for message in self.model.sent[-1] if message.type != "system"]

    def remembered(self) -> list[str]:
        return [message.text for message in self.middleware.context("t").messages(all=True)]


def test_a_message_removed_from_the_state_is_not_sent() -> None:
    desk = Desk(saver=InMemorySaver())
    desk.ask(HumanMessage(SECRET, id="s"))
    desk.agent.update_state(THREAD, {"messages": [RemoveMessage(id="s")]})
    begin = "[The conversation begins here.]"  # no list begins with the assistant
    assert desk.ask(HumanMessage("hello")) == [begin, "answer 1", "hello"]
    assert desk.ask(HumanMessage("again")) == [begin, "answer 1", "hello", "answer 2", "again"]
    assert SECRET in desk.remembered()


def test_an_edited_first_message_is_sent_once() -> None:
    desk = Desk(saver=InMemorySaver())
    desk.ask(HumanMessage(SECRET, id="s"))
    desk.ask(HumanMessage("and?"))
    desk.agent.update_state(THREAD, {"messages": [HumanMessage("my password is …", id="s")]})
    assert desk.ask(HumanMessage("go on")) == ["my password is …", "answer 1", "and?", "answer 2", "go on"]


def test_a_summary_of_langchain_before_quire_is_followed() -> None:
    summary = GenericFakeChatModel(messages=iter(AIMessage(f"summary {n}") for n in range(100)))
    desk = Desk(
        SummarizationMiddleware(model=summary, trigger=("messages", 6), keep=("messages", 2)), saver=InMemorySaver()
    )
    desk.ask(HumanMessage(SECRET))
    for turn in range(12):
        texts = desk.ask(HumanMessage(f"question {turn}"))
        state = desk.agent.get_state(THREAD).values["messages"]
        assert texts == [message.text for message in state[:-1]]
        assert len(texts) <= 6
    assert SECRET not in str(desk.sent())
    assert any("summary" in text for text in desk.sent())
    assert SECRET in desk.remembered()


class Clerk:
    """An agent of pydantic-ai with quire, and what its model got."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        capability = QuireCapability(quire.MemoryStorage(), tools=False)
        self.agent: Any = Agent(FunctionModel(self._answer), capabilities=[capability])

    def ask(self, text: str, history: list[ModelMessage] | None = None) -> list[ModelMessage]:
        done = asyncio.run(self.agent.run(text, message_history=history, conversation_id="c"))
        return list(done.all_messages())

    def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        shown = [part for message in messages for part in message.parts]
        self.sent.append([str(part.content) for part in shown if isinstance(part, UserPromptPart | TextPart)])
        return ModelResponse([TextPart(f"answer {len(self.sent)}")])


def test_what_a_history_of_pydantic_ai_loses_is_not_sent() -> None:
    clerk = Clerk()
    history = clerk.ask("two", clerk.ask(SECRET))
    history = clerk.ask("three", history[2:])
    assert clerk.sent[-1] == ["two", "answer 2", "three"]
    assert len(clerk.ask("four", history)) == 6
    assert clerk.sent[-1] == ["two", "answer 2", "three", "answer 3", "four"]


def test_a_history_of_pydantic_ai_that_was_summarised_is_followed() -> None:
    clerk = Clerk()
    history = clerk.ask("two", clerk.ask(SECRET))
    clerk.ask("three", [ModelRequest([UserPromptPart("a summary")])])
    assert clerk.sent[-1] == ["a summary", "three"]
    clerk.ask("four", history)
    assert clerk.sent[-1] == [SECRET, "answer 1", "two", "answer 2", "four"]


@pytest.mark.parametrize("id_", [None, "c1"])
@pytest.mark.parametrize("content", ["", "let me look", [{"type": "text", "text": "let me look"}]])
def test_an_invalid_call_leaves_no_orphan_result(id_: str | None, content: Any) -> None:
    desk = Desk()
    broken: Any = {"type": "invalid_tool_call", "id": id_, "name": "look", "args": "{broken", "error": None}
    asked = AIMessage(content, invalid_tool_calls=[broken])
    desk.ask(HumanMessage("look"), asked, HumanMessage("and?"))
    got = desk.model.sent[-1]
    calls = {call["id"] for message in got if isinstance(message, AIMessage) for call in message.invalid_tool_calls}
    assert {message.tool_call_id for message in got if isinstance(message, ToolMessage)} <= calls
    assert None not in calls
    assert "{broken" in str(got)
