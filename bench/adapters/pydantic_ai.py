"""pydantic-ai: an agent's turns without quire, the same quire calls by hand, and both through the capability."""

import asyncio
import time
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import UserPromptPart as Asked
from pydantic_ai.models.function import AgentInfo, FunctionModel

import quire
import quire.aio
from quire.adapters.pydantic_ai import QuireCapability, parse

BUDGET = 8_000
PROMPT = "You look things up."
_FOUND = "something long about it, " * 40


def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {_FOUND}"


def _looking(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart("So it is.")])
    return ModelResponse(parts=[ToolCallPart("look", {"what": "it"})])


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for the turns: the framework alone, quire by hand, and the framework with the capability."""
    capability = QuireCapability(folder / "agent.db", budget=BUDGET)
    alone = asyncio.run(_talk(Agent(FunctionModel(_looking), instructions=PROMPT, tools=[look]), count))
    agent = Agent(FunctionModel(_looking), instructions=PROMPT, tools=[look], capabilities=[capability])
    both = asyncio.run(_talk(agent, count))
    capability.close()
    return alone, asyncio.run(_by_hand(folder / "hand.db", count)), both


async def _talk(agent: Agent[None, str], count: int) -> float:
    history: list[ModelMessage] = []
    start = time.perf_counter()
    for n in range(count):
        result = await agent.run(f"question {n}", message_history=history, conversation_id="c")
        history = result.all_messages()
    return time.perf_counter() - start


async def _by_hand(where: Path, count: int) -> float:
    start = time.perf_counter()
    async with await quire.aio.open(where, budget=BUDGET) as ctx:
        for n in range(count):
            steps: list[tuple[ModelMessage, ModelMessage]] = [
                (
                    ModelRequest(parts=[Asked(f"question {n}")]),
                    ModelResponse(parts=[ToolCallPart("look", {"what": "it"}, f"call {n}")]),
                ),
                (
                    ModelRequest(parts=[ToolReturnPart("look", look("it"), f"call {n}")]),
                    ModelResponse(parts=[TextPart("So it is.")]),
                ),
            ]
            for heard, said in steps:
                await ctx.refresh()
                await ctx.system(PROMPT)
                await ctx.add(parse(heard))
                (await ctx.render()).openai()
                await ctx.add(parse(said))
    return time.perf_counter() - start
