"""OpenAI Agents SDK: turns with the SDK's own session, the same quire calls by hand, and both through QuireSession."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.memory import Session, SessionSettings
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

import quire
from quire.adapters.openai_agents import QuireSession, messages_of

BUDGET = 8_000
OWN_LIMIT, LIMIT = 80, 20
"""The limits of the SDK's own session and of QuireSession. With the first limit, the model gets about as many items as
a view of `BUDGET` tokens has. The second limit is the one that docs/adapters/openai-agents.md recommends."""
RIVAL = (
    "a turn with QuireSession, × a turn with SQLiteSession",
    1.3,
    f"both send up to about {OWN_LIMIT} items; the limits are {LIMIT} and {OWN_LIMIT}",
)
PROMPT = "You look things up."
_FOUND = "something long about it, " * 40


@function_tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {_FOUND}"


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for the turns: the SDK with its own session, quire by hand, and the SDK with QuireSession."""
    own = SQLiteSession("t", folder / "own.db", session_settings=SessionSettings(limit=OWN_LIMIT))
    alone = _talk(own, RunConfig(tracing_disabled=True), count)
    own.close()
    session = QuireSession("t", folder / "agents.db", session_settings=SessionSettings(limit=LIMIT), budget=BUDGET)
    both = _talk(session, session.run_config(tracing_disabled=True), count)
    session.close()
    with quire.open(folder / "hand.db", budget=BUDGET) as ctx:
        return alone, _timed(lambda: _by_hand(ctx, count)), both


def _talk(session: Session, config: RunConfig, count: int) -> float:
    model = ScriptedModel([ModelStep.respond(_answer)] * (2 * count))
    agent = Agent(name="Clerk", instructions=PROMPT, model=model, tools=[look])

    async def talk() -> None:
        for n in range(count):
            await Runner.run(agent, f"question {n}", session=session, run_config=config)
            model._calls.clear()  # otherwise every sent list would be stored, and copied again and again

    return _timed(lambda: asyncio.run(talk()))


def _answer(call: ModelCall) -> list[Any]:
    last = cast(dict[str, Any], call.input[-1])
    if last.get("type") == "function_call_output":
        return [assistant_message("So it is.", item_id=f"m-{time.monotonic_ns()}")]
    return [function_call("look", {"what": last["content"]}, call_id=f"c-{time.monotonic_ns()}")]


def _by_hand(ctx: quire.Context, count: int) -> None:
    for n in range(count):
        called = {"type": "function_call", "call_id": f"c-{n}", "name": "look", "arguments": "{}"}
        found = {"type": "function_call_output", "call_id": f"c-{n}", "output": f"question {n}: {_FOUND}"}
        said = {"role": "assistant", "content": "So it is."}
        ctx.refresh()
        ctx.conversation.newest(LIMIT)
        for items in ([{"role": "user", "content": f"question {n}"}], [called, found]):
            ctx.add(messages_of(items))
            ctx.render().responses()
        ctx.add(messages_of([said]))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
