"""Kill an agent in the middle of its turns and let it continue. `test_killed.py` runs this as a separate program.

The program forks. Each child continues from the framework's own record, and reports the model's input through a pipe.
Then it is killed, and the parent checks the store.
"""

import asyncio
import json
import os
import pickle
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, cast

import quire
from proof.mortal import killed
from tests.strict_provider import Body, Call, Reply, State, StrictProvider

Tell = Callable[[str, Sequence[object]], None]
"""Reports a question, and the errors in the list that the model got."""

LONGEST_LIFE = 0.12
BUDGET = 900
SDK_BUDGET = 4_000


def openai(folder: Path, tell: Tell) -> None:
    """Turns with chat completions, each with a call of quire's tools and one of the test's."""
    from openai import OpenAI

    from quire.adapters.openai import complete

    endpoint = StrictProvider(State(limit=SDK_BUDGET))

    def script(body: Body) -> Reply:
        number = time.monotonic_ns()
        if body["messages"][-1]["role"] == "tool":
            return Reply("some words " * 30)
        return Reply("", (Call(f"a{number}", "find", {"query": "question"}), Call(f"b{number}", "add", {"a": 1})))

    endpoint.script = script
    ctx = quire.open(folder / "a.db", "book", budget=SDK_BUDGET)
    client = OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0)
    go_on(ctx, tell, lambda: complete(client, ctx, model="m", functions={"add": lambda a: a + 1}))


def anthropic(folder: Path, tell: Tell) -> None:
    """Turns with Anthropic's messages, each with a note in a memory file."""
    from anthropic import Anthropic

    from quire.adapters.anthropic import QuireMemoryTool, complete

    endpoint = StrictProvider(State(limit=SDK_BUDGET))
    ctx = quire.open(folder / "a.db", "book", budget=SDK_BUDGET)
    memory = QuireMemoryTool(ctx)

    def script(body: Body) -> Reply:
        if "tool_result" in str(body["messages"][-1]):
            return Reply("some words " * 30)
        asked = [message.text for message in ctx.messages() if message.role == "user"][-1]
        create = {"command": "create", "path": f"/memories/轮次/{asked}.md", "file_text": asked}
        return Reply("", (Call(f"c{time.monotonic_ns()}", "memory", create),))

    def remembered(asked: str, wrong: Sequence[object]) -> None:
        names = {page.name for page in ctx.pages.list_pages("mem")}
        tell(asked, wrong if f"{asked}.md" in names else ["a memory file is lost"])

    endpoint.script = script
    client = Anthropic(base_url=endpoint.url, api_key="none", max_retries=0)
    go_on(ctx, remembered, lambda: complete(client, ctx, model="m", max_tokens=9, tools=[memory]))


def go_on(ctx: quire.Context, tell: Tell, ask: Callable[[], object]) -> None:
    """Finish the interrupted turn first, then run one turn after the other."""
    last = ctx.conversation.newest(1)
    if (last and last[0].role != "assistant") or ctx.pending_calls():
        ask()
    n = 0
    while True:
        n += 1
        asked = f"question {os.getpid()} {n}"
        ctx.user(asked)
        ask()
        tell(asked, [])


def agents(folder: Path, tell: Tell) -> None:
    """Turns of the Agents SDK with a session."""
    from agents import Agent, Runner
    from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

    from quire.adapters.openai_agents import QuireSession

    session = QuireSession("book", folder / "a.db", budget=SDK_BUDGET)
    model = ScriptedModel()

    def answer(call: ModelCall) -> list[Any]:
        items = cast(list[Body], call.input)
        if wrong := quire.check_legal(items, "responses"):
            tell("", wrong)
        number = time.monotonic_ns()
        if items[-1].get("type") != "function_call_output":
            return [function_call("find", {"query": "会员号"}, call_id=f"c{number}")]
        return [assistant_message("some words " * 30, item_id=f"m{number}")]

    async def work() -> None:
        agent = Agent(name="a", model=model, tools=session.tools("find"))
        config = session.run_config(tracing_disabled=True)
        n = 0
        while True:
            n += 1
            asked = f"question {os.getpid()} {n}"
            model.extend([ModelStep.respond(answer)] * 2)
            await Runner.run(agent, asked, session=session, run_config=config)
            tell(asked, [])

    asyncio.run(work())


def langchain(folder: Path, tell: Tell) -> None:
    """An agent with a checkpointer on disk."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
    from langgraph.checkpoint.memory import InMemorySaver

    from quire.adapters.langchain import QuireMiddleware
    from tests.adapters.langchain_models import Scripted, look, looks_then_answers, problems

    class Saver(InMemorySaver):
        """Keeps every checkpoint in a file, as a database would."""

        kept = folder / "checkpoints"

        def load(self) -> None:
            if self.kept.exists():
                storage, writes, blobs = pickle.loads(self.kept.read_bytes())
                for thread, spaces in storage.items():
                    self.storage[thread].update(spaces)
                self.writes.update(writes)
                self.blobs.update(blobs)

        def put(self, *args: Any, **kwargs: Any) -> Any:
            done = super().put(*args, **kwargs)
            storage = {thread: dict(spaces) for thread, spaces in self.storage.items()}
            fresh = self.kept.with_suffix(".new")
            fresh.write_bytes(pickle.dumps((storage, dict(self.writes), dict(self.blobs))))
            fresh.replace(self.kept)
            return done

    def play(messages: list[BaseMessage]) -> AIMessage:
        asked = [message.text for message in messages if message.type == "human"][-1]
        tell(asked, problems(messages))
        return looks_then_answers(messages)

    saver = Saver()
    saver.load()
    middleware = QuireMiddleware(folder / "a.db", budget=BUDGET)
    agent: Any = create_agent(Scripted(play=play), [look], middleware=[middleware], checkpointer=saver)
    config = {"configurable": {"thread_id": "book"}}
    while True:
        n = len(agent.get_state(config).values.get("messages", ()))
        agent.invoke({"messages": [HumanMessage(f"question {os.getpid()} {n}")]}, config)


def history(folder: Path, tell: Tell) -> None:
    """A chat history that grows."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from quire.adapters.langchain import QuireChatMessageHistory
    from tests.adapters.langchain_models import problems

    kept = QuireChatMessageHistory("book", folder / "a.db", budget=BUDGET)
    n = 0
    while True:
        n += 1
        asked = f"question {os.getpid()} {n}"
        call: Any = {"name": "look", "args": {}, "id": asked}
        kept.add_messages([HumanMessage(asked), AIMessage("", tool_calls=[call])])
        kept.add_messages([ToolMessage("found " * 20, tool_call_id=asked), AIMessage("so it is")])
        tell(asked, problems(kept.view()))


def store(folder: Path, tell: Tell) -> None:
    """A store that gets new items."""
    from quire.adapters.langgraph import QuireStore

    kept = QuireStore(folder / "a.db", context="book")
    n = 0
    while True:
        n += 1
        kept.put(("pids", str(os.getpid())), str(n), {"text": f"question {os.getpid()} {n}"})
        found = kept.get(("pids", str(os.getpid())), str(n))
        tell(f"question {os.getpid()} {n}", [] if found else ["not there"])


def pydantic_ai(folder: Path, tell: Tell) -> None:
    """An agent with a history that its application stores in a file."""
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, UserPromptPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from quire.adapters.pydantic_ai import QuireCapability
    from tests.adapters.test_pydantic_ai import Scripted, agent_of, problems

    script, record = Scripted(), folder / "history.json"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
        tell(str(said[-1].content), problems(messages))
        return script.answer(messages, info)

    agent = agent_of(FunctionModel(answer), QuireCapability(folder / "a.db", budget=BUDGET))

    async def talk() -> None:
        while True:
            begun = ModelMessagesTypeAdapter.validate_json(record.read_bytes()) if record.exists() else []
            asked = f"question {os.getpid()} {len(begun)}"
            result = await agent.run(asked, message_history=begun, conversation_id="book")
            fresh = record.with_suffix(".new")
            fresh.write_bytes(result.all_messages_json())
            fresh.replace(record)

    asyncio.run(talk())


KINDS: dict[str, tuple[Callable[[Path, Tell], None], str]] = {
    "openai": (openai, "openai"),
    "anthropic": (anthropic, "anthropic"),
    "agents": (agents, "agents.testing"),
    "langchain": (langchain, "tests.adapters.langchain_models"),
    "history": (history, "tests.adapters.langchain_models"),
    "store": (store, "quire.adapters.langgraph"),
    "pydantic_ai": (pydantic_ai, "tests.adapters.test_pydantic_ai"),
}
"""What each child does, and what every child would import."""


def lived(kind: str, folder: Path, random: Random) -> list[str]:
    """Let a child run for a moment after its first report. Return its reports."""

    def work(say: Callable[[str], None]) -> None:
        def tell(asked: str, wrong: Sequence[object]) -> None:
            if wrong:
                raise AssertionError(f"The model was sent what no model takes: {wrong}")
            say(asked)

        KINDS[kind][0](folder, tell)

    return killed(work, random.uniform(0, LONGEST_LIFE), 60)


def compare(folder: Path, told: set[str]) -> None:
    """Check that everything reported is stored, that the store is sound, and that the next request is legal."""
    with quire.open(folder / "a.db", "book", create=False) as ctx:
        assert ctx.check() == [], ctx.check()
        stored = {message.text for message in ctx.messages(all=True)}
        stored |= {page.name for page in ctx.pages.list_pages("mem")}
        if any(segment.id == "store" for segment in ctx.pages.list_segments()):
            leaves = (page.index for page in ctx.pages.list_pages("store") if page.meta.get("key"))
            stored |= {json.loads(ctx.pages.detail(index))["text"] for index in leaves}
        assert told <= stored, f"lost: {sorted(told - stored)}"
        asked = Counter(message.text for message in ctx.messages() if message.role == "user")
        assert asked.total() == len(asked), "a message is there twice"
        if ctx.messages():
            assert quire.check_legal(ctx.render(preview=True).openai(), "openai") == []


def main(kind: str, folder: str, kills: str, seed: str) -> None:
    """Kill a child and check the store, again and again. Print how many questions were reported."""
    with quire.open(quire.MemoryStorage()) as ctx:  # import once what every child would import
        ctx.user("a word")
        ctx.render().openai()
        ctx.find("word")
    import_module(KINDS[kind][1])
    random, heard = Random(int(seed)), set[str]()
    for _ in range(int(kills)):
        heard |= set(lived(kind, Path(folder), random))
        compare(Path(folder), heard)
    sys.stdout.write(json.dumps(len(heard)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
