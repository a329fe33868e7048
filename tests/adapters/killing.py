"""Kill an agent in the middle of its turns and let it continue. `test_killed.py` runs this as a separate program.

The program forks. Each child continues from the framework's own record, and reports the model's input through a pipe.
Then it is killed, and the parent checks the store.
"""

import asyncio
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import quire
from proof.mortal import killed

Tell = Callable[[str, Sequence[object]], None]
"""Reports a question, and the errors in the list that the model got."""

LONGEST_LIFE = 0.12
BUDGET = 900


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


KINDS: dict[str, Callable[[Path, Tell], None]] = {
    "langchain": langchain,
    "history": history,
    "store": store,
    "pydantic_ai": pydantic_ai,
}


def lived(kind: str, folder: Path, random: Random) -> list[str]:
    """Let a child run for a moment after its first report. Return its reports."""

    def work(say: Callable[[str], None]) -> None:
        def tell(asked: str, wrong: Sequence[object]) -> None:
            if wrong:
                raise AssertionError(f"The model was sent what no model takes: {wrong}")
            say(asked)

        KINDS[kind](folder, tell)

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
        if ctx.messages():
            assert quire.check_legal(ctx.render(preview=True).openai(), "openai") == []


def main(kinds: str, folder: str, kills: str, seed: str) -> None:
    random, told = Random(int(seed)), dict[str, int]()
    for kind in kinds.split(","):
        place, heard = Path(folder) / kind, set[str]()
        place.mkdir()
        for _ in range(int(kills)):
            heard |= set(lived(kind, place, random))
            compare(place, heard)
        told[kind] = len(heard)
    sys.stdout.write(json.dumps(told))


def warm_up(module: str) -> None:
    """Import once what every child would import."""
    __import__(module)
    with quire.open(quire.MemoryStorage()) as ctx:
        ctx.user("a word")
        ctx.render().openai()
        ctx.find("word")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    warm_up("tests.adapters.test_pydantic_ai" if sys.argv[1] == "pydantic_ai" else "tests.adapters.langchain_models")
    main(*sys.argv[1:])
