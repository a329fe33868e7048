"""The contexts of an adapter: opened once, the newest kept open, and never blocking an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import quire
from quire.adapters import context_pool
from quire.adapters.context_pool import ContextPool
from quire.adapters.langchain import QuireMiddleware
from quire.adapters.pydantic_ai import QuireCapability
from tests.adapters.langchain_models import Scripted


def with_langchain(store: quire.MemoryStorage) -> Any:
    agent: Any = create_agent(Scripted(play=lambda _: AIMessage("ok")), middleware=[QuireMiddleware(store)])
    return agent.ainvoke({"messages": [HumanMessage("hi")]}, {"configurable": {"thread_id": "t"}})


def with_pydantic_ai(store: quire.MemoryStorage) -> Any:
    agent = Agent(TestModel(call_tools=[]), capabilities=[QuireCapability(store)])
    return agent.run("hi", conversation_id="t")


@pytest.mark.parametrize("run", [with_langchain, with_pydantic_ai])
def test_no_context_is_opened_in_the_thread_of_the_loop(
    run: Callable[[quire.MemoryStorage], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bool] = []

    class Watched(quire.Library):
        def open(self, *args: Any, **options: Any) -> quire.Context:
            opened.append(_runs_a_loop())
            return super().open(*args, **options)

    monkeypatch.setattr(context_pool, "Library", Watched)
    store = quire.MemoryStorage()

    async def work() -> None:
        await run(store)

    asyncio.run(work())
    assert opened == [False]
    assert list(quire.Library(store).list()) == ["t"]


def test_the_newest_used_stay_open_and_an_older_one_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_pool, "_OPEN", 2)
    kept = ContextPool[str](quire.MemoryStorage(), lambda item: [], lambda item, _: item.encode())
    first = kept.get("a")
    first.ctx.user("hello")
    second = kept.get("b")
    assert kept.get("a") is first
    kept.get("c")
    assert kept.get("a") is first
    assert kept.get("b") is not second
    assert kept.get("a").ctx.messages()[-1].text == "hello"
    kept.close()


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
