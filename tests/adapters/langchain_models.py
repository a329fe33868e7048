"""Scripted models for LangChain that record their input."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from pydantic import Field

import quire
from quire.providers.legal import IllegalMessage


class Scripted(BaseChatModel):
    """Answers with the result of `play` for the messages."""

    play: Callable[[list[BaseMessage]], AIMessage]
    sent: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        self.sent.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.play(messages))])


def looks_then_answers(messages: list[BaseMessage]) -> AIMessage:
    """Call a tool for every question, then answer with its result."""
    last = messages[-1]
    usage: Any = {"input_tokens": 500, "output_tokens": 5, "total_tokens": 505}
    if isinstance(last, ToolMessage):
        return AIMessage(f"It says: {last.text[:40]}", usage_metadata=usage)
    call: Any = {"name": "look", "args": {"what": last.text}, "id": f"call-{last.text[:24]}"}
    return AIMessage("", tool_calls=[call], usage_metadata=usage)


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what} 的记录: " + "something long about it, " * 12


def question(n: int) -> HumanMessage:
    told = " The code of the vault is KESTREL-4711." if n == 2 else ""
    return HumanMessage(f"{n}: what about item {n}?{told}")


def problems(messages: Sequence[BaseMessage]) -> list[IllegalMessage]:
    """Return the broken rules of a list that a model got."""
    return quire.check_legal(convert_to_openai_messages(list(messages)), "openai")


def tokens(messages: Sequence[BaseMessage]) -> int:
    """Return the tokens of a list, counted again."""
    ctx = quire.open(quire.MemoryStorage(), budget=10_000_000, preamble="")
    ctx.import_messages(convert_to_openai_messages(list(messages)))
    return ctx.render(preview=True).tokens
