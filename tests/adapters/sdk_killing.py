"""Kill a process in the middle of turns, again and again, and continue with the same store.

`test_sdks_killed.py` runs this as a separate program, which has no threads and so can fork. Each child continues the
conversation and acknowledges every turn through a pipe until it is killed. Then the parent checks the store. The
program prints its counts as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

from agents import Agent, Runner
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from anthropic import Anthropic
from openai import OpenAI

import quire
from proof.mortal import killed
from quire.adapters.anthropic import QuireMemoryTool
from quire.adapters.anthropic import complete as ask_anthropic
from quire.adapters.openai import complete as ask_openai
from quire.adapters.openai_agents import QuireSession
from tests.strict_provider import Body, Call, Reply, StrictProvider

BUDGET = 4_000
WORDS = "一些 words to fill the room " * 12
LONGEST_LIFE = 0.3
Told = Callable[[int], None]


def with_agents(path: str, tell: Told) -> None:
    """Run turns of the Agents SDK. Every third time, replace the history, as the compaction of the SDK does."""
    session = QuireSession("talk", path, budget=BUDGET)
    model = ScriptedModel()

    def answer(call: ModelCall) -> list[Any]:
        items = cast(list[Body], call.input)
        assert quire.check_legal(items, "responses") == []
        number = time.monotonic_ns()
        if items[-1].get("type") != "function_call_output":
            return [function_call("find", {"query": "会员号"}, call_id=f"c{number}")]
        return [assistant_message(WORDS, item_id=f"m{number}")]

    async def work() -> None:
        agent = Agent(name="a", model=model, tools=session.tools("find"))
        config = session.run_config(tracing_disabled=True)
        number = newest(session.context) + 1
        while True:
            model.extend([ModelStep.respond(answer)] * 2)
            await Runner.run(agent, f"turn {number} {WORDS}", session=session, run_config=config)
            tell(number)
            if number % 3 == 0:
                number += 1
                await session._atomic_replace_items([{"role": "user", "content": f"turn {number} begins anew"}])
                tell(number)
            number += 1

    asyncio.run(work())


def with_openai(path: str, tell: Told) -> None:
    """Run turns with chat completions, each with a call of quire's tools and one of the test's."""
    endpoint = StrictProvider()

    def script(body: Body) -> Reply:
        assert quire.check_legal(body["messages"], "openai") == []
        number = time.monotonic_ns()
        if body["messages"][-1]["role"] == "tool":
            return Reply(WORDS)
        return Reply("", (Call(f"a{number}", "find", {"query": "turn"}), Call(f"b{number}", "add", {"a": 1, "b": 2})))

    endpoint.script = script
    ctx = quire.open(path, "talk", budget=BUDGET)
    client = OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0)
    go_on(ctx, tell, lambda _: ask_openai(client, ctx, model="m", functions={"add": lambda a, b: a + b}))


def with_anthropic(path: str, tell: Told) -> None:
    """Run turns with Anthropic's messages, each with a note in a memory file."""
    endpoint = StrictProvider()
    ctx = quire.open(path, "talk", budget=BUDGET)
    memory = QuireMemoryTool(ctx)

    def script(body: Body) -> Reply:
        assert quire.check_legal(body["messages"], "anthropic") == []
        if "tool_result" in str(body["messages"][-1]):
            return Reply(WORDS)
        number = newest(ctx)
        create = {"command": "create", "path": f"/memories/轮次/{number}.md", "file_text": f"turn {number}"}
        return Reply("", (Call(f"c{time.monotonic_ns()}", "memory", create),))

    endpoint.script = script
    client = Anthropic(base_url=endpoint.url, api_key="none", max_retries=0)
    go_on(ctx, tell, lambda _: ask_anthropic(client, ctx, model="m", max_tokens=9, tools=[memory]))


def go_on(ctx: quire.Context, tell: Told, ask: Callable[[int], object]) -> None:
    """Finish the interrupted turn first, then run one turn after the other."""
    last = ctx.conversation.newest(1)
    number = newest(ctx)
    if (last and last[0].role != "assistant") or ctx.pending_calls():
        ask(number)
        tell(number)
    while True:
        number += 1
        ctx.user(f"turn {number} {WORDS}")
        ask(number)
        tell(number)


def newest(ctx: quire.Context) -> int:
    """Return the number of the last turn that was started."""
    return max((int(message.text.split()[1]) for message in ctx.messages() if message.role == "user"), default=0)


WORKS = {"agents": with_agents, "openai": with_openai, "anthropic": with_anthropic}


def lived(kind: str, path: str, random: Random) -> list[int]:
    """Let a child run for a while, kill it, and return the turns that it acknowledged."""
    told = killed(lambda tell: WORKS[kind](path, lambda number: tell(str(number))), random.uniform(0, LONGEST_LIFE), 20)
    return [int(line) for line in told]


def compare(kind: str, path: str, told: int) -> int:
    """Check that everything acknowledged is stored and legal in every form. Return the number of turns."""
    with quire.open(path, "talk", budget=BUDGET) as ctx:
        assert ctx.check() == [], ctx.check()
        turns = [int(message.text.split()[1]) for message in ctx.messages() if message.role == "user"]
        assert turns, "the history is gone"
        assert turns == list(range(turns[0], turns[0] + len(turns))), turns
        assert turns[-1] in (told, told + 1), f"acknowledged {told}, found {turns[-1]}"
        assert turns[0] == 1 if kind != "agents" else turns[0] % 3 == 1 and turns[0] <= told + 1, turns
        every = {int(m.text.split()[1]) for m in ctx.messages(all=True) if m.role == "user"}
        assert every >= set(range(1, told + 1)), "a message is lost for good"
        view = ctx.render()
        assert view.tokens <= BUDGET
        for name, shown in (
            ("openai", view.openai()),
            ("responses", view.responses()),
            ("anthropic", view.anthropic()["messages"]),
        ):
            assert quire.check_legal(list(shown), name) == []
        if kind == "anthropic":
            names = {page.name for page in ctx.pages.list_pages("mem")}
            assert names >= {f"{number}.md" for number in range(1, told + 1)}, "a memory file is lost"
        return turns[-1]


def main(kind: str, folder: str, kills: str, seed: str) -> None:
    random = Random(int(seed))
    path = str(Path(folder) / f"{kind}.db")
    told = turns = 0
    for _ in range(int(kills)):
        heard = lived(kind, path, random)
        told = max([told, *heard])
        turns = compare(kind, path, told)
        told = max(told, turns - 1)
    sys.stdout.write(json.dumps({"turns": turns}))


if __name__ == "__main__":
    for each in sys.argv[1].split(","):
        main(each, *sys.argv[2:])
