"""LangChain: an agent's turns without quire, the same quire calls by hand, and both through the middleware."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool

import quire
from quire.adapters.langchain import QuireMiddleware, parse

BUDGET = 8_000
PROMPT = "You look things up."
_FOUND = "something long about it, " * 40


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {_FOUND}"


class _Looking(BaseChatModel):
    """Makes a lookup for every question, then answers."""

    @property
    def _llm_type(self) -> str:
        return "looking"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        last = messages[-1]
        call: Any = {"name": "look", "args": {"what": last.text}, "id": f"call {last.text[:20]}"}
        said = AIMessage("So it is.") if isinstance(last, ToolMessage) else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for the turns: the framework alone, quire by hand, and the framework with the middleware."""
    middleware = QuireMiddleware(folder / "agent.db", budget=BUDGET)
    alone = _talk(create_agent(_Looking(), [look], system_prompt=PROMPT), count)
    both = _talk(create_agent(_Looking(), [look], system_prompt=PROMPT, middleware=[middleware]), count)
    middleware.close()
    with quire.open(folder / "hand.db", budget=BUDGET) as ctx:
        return alone, _timed(lambda: _by_hand(ctx, count)), both


def _talk(agent: Any, count: int) -> float:
    def talk() -> None:
        messages: list[BaseMessage] = []
        for n in range(count):
            asked = [*messages, HumanMessage(f"question {n}")]
            messages = agent.invoke({"messages": asked}, {"configurable": {"thread_id": "t"}})["messages"]

    return _timed(talk)


def _by_hand(ctx: quire.Context, count: int) -> None:
    for n in range(count):
        call: Any = {"name": "look", "args": {"what": f"question {n}"}, "id": f"call {n}"}
        steps: list[tuple[BaseMessage, BaseMessage]] = [
            (HumanMessage(f"question {n}"), AIMessage("", tool_calls=[call])),
            (ToolMessage(f"question {n}: {_FOUND}", tool_call_id=f"call {n}"), AIMessage("So it is.")),
        ]
        for heard, said in steps:
            ctx.refresh()
            ctx.system(PROMPT)
            ctx.add(parse(heard))
            ctx.render().openai()
            ctx.add(parse(said))


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
