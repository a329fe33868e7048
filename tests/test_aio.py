"""quire.aio: the loop never waits, calls keep their order, and a cancelled call was completed or not started."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cached_property, wraps
from pathlib import Path
from random import Random
from typing import Any

import pytest

import quire
from quire import InvalidOperation, InvalidValue, MemoryStorage, NoSuchContext, NoSuchPage, aio
from tests.seeds import SEED
from tests.talks import new_talk
from tests.twins import FILE, PARTS, SYNC, written

LONG = 30.0  # seconds until a test gives up waiting


def run_async(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test in a new event loop."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LONG):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


class Gated(MemoryStorage):
    """A storage with a gate: while it is closed, commits wait."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def commit(self, context: int, commit: Any) -> None:
        self.reached.set()
        assert self.gate.wait(LONG)
        super().commit(context, commit)


async def until(event: threading.Event) -> None:
    """Wait in the loop until another thread sets the event."""
    while not event.is_set():
        await asyncio.sleep(0.001)


# The classes

ADDED = {"has", "pages", "conversation", "actor"}  # `name in tools`; instance attributes of the synchronous class


def public_members(kind: type) -> dict[str, Any]:
    names = (name for name in dir(kind) if not name.startswith("_"))
    return {name: inspect.getattr_static(kind, name) for name in names}


@pytest.mark.parametrize("sync", [kind for kind in SYNC if kind not in PARTS])
def test_every_public_member_of_a_class_is_in_its_async_class(sync: type) -> None:
    wrapper = getattr(aio, sync.__name__)
    callables = {
        name: value
        for name, value in public_members(sync).items()
        if inspect.isfunction(value) or isinstance(value, property | cached_property)
    }
    assert callables.keys() ^ public_members(wrapper).keys() <= ADDED


def test_the_members_are_those_of_the_present_classes() -> None:
    assert written() == FILE.read_text("utf-8"), "run `python -m tests.twins`"


def test_an_async_context_has_every_name_of_an_open_context() -> None:
    for opened, wrapper in ((quire.open("memory:"), aio.Context), (quire.Library("memory:"), aio.Library)):
        with opened:
            names = {name for name in dir(opened) if not name.startswith("_")}
        assert names - set(dir(wrapper)) <= {"storage"}, opened  # the one that was given, or its URL


def test_attributes_can_be_read_from_the_class() -> None:
    assert hasattr(aio.Context, "pages")
    assert hasattr(aio.ContextSystem, "seq")


@run_async
async def test_a_whole_turn() -> None:
    async with aio.open(MemoryStorage(), "c", budget=4_000) as ctx:
        assert (ctx.name, ctx.budget) == ("c", 4_000)
        await ctx.system("You are careful.")
        assert await ctx.user("去西雅图") == 1
        await ctx.assistant(None, [{"id": "a", "function": {"name": "find", "arguments": '{"query": "西雅图"}'}}])
        for call in await ctx.pending_calls():
            assert await ctx.tools.has(call.name)
            await ctx.tool_result(call.id, await ctx.tools.call(call))
        view = await ctx.render()
        assert view.tokens <= 4_000
        assert [message.role for message in await ctx.messages()] == ["system", "user", "assistant", "tool"]
        assert [message.index async for message in ctx.messages()] == [0, 1, 2, 3]
        index = await ctx.pages.create_detail_page("note", "", "a text", "mem-0")
        assert await ctx.agent.read_page(index) == "a text"
        assert (await ctx.conversation.delete(1)).covered == (1,)
        await ctx.undo(await ctx.seq)
        assert [entry.operation async for entry in ctx.history()][-1] == "undo"
        assert list(await ctx.windows.list()) == []
        ctx.budget = 500
        assert ctx.budget == 500
        fork = await ctx.fork("fork")
        assert (fork.name, fork.budget) == ("fork", 500)
        bob = await ctx.tools_of(await ctx.as_agent("bob"))
        assert "find" in await bob.names()
        assert await ctx.check() == []


@run_async
async def test_what_is_raised_passes_through() -> None:
    ctx = await aio.open("memory:")
    with pytest.raises(NoSuchPage):
        await ctx.pages.detail("mem-99")
    with pytest.raises(TypeError):
        await ctx.user()  # type: ignore[call-arg]
    with pytest.raises(InvalidValue):
        await aio.open("memory:", "")
    with pytest.raises(InvalidValue):
        async for _ in ctx.history(operation=3):  # type: ignore[arg-type]
            pass

    def broken() -> Iterator[object]:
        yield {"role": "user", "content": "hello"}
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError):
        await ctx.import_messages(broken())
    assert await ctx.check() == []


@run_async
async def test_streams_are_read_as_they_are_needed() -> None:
    ctx = await aio.open("memory:")
    for number in range(600):
        await ctx.pages.create_detail_page(f"{number}", "", "", "mem-0")
    names = []
    async for page in ctx.pages.list_pages("mem"):
        names.append(page.name)
        if len(names) == 300:
            break
    assert names[-1] == "298"
    assert len(await ctx.pages.list_pages("mem")) == 601
    stream = ctx.pages.list_pages("mem")
    assert [page async for page in stream] == [page async for page in stream] == await stream


@run_async
async def test_a_temporary_block_is_gone_when_it_ends_however_it_ends() -> None:
    ctx = await aio.open("memory:")
    await ctx.user("kept")

    async def block() -> None:
        async with ctx.temporary():
            await ctx.user("gone")
            assert len(await ctx.messages()) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert [message.content for message in await ctx.messages()] == ["kept"]


@run_async
async def test_a_library(tmp_path: Path) -> None:
    async with aio.Library(tmp_path / "x.db") as library:
        async with library.open("a") as ctx:
            await ctx.user("hello")
        await library.create("b")
        assert await library.list() == ["a", "b"]
        assert [name async for name in library.list(prefix="b")] == ["b"]
        assert (await library.info("a")).messages == 1
        await library.export("a", tmp_path / "a.quire")
        assert await library.import_(tmp_path / "a.quire", "again") == "again"
        with pytest.raises(InvalidOperation):
            await library.create("a")
        await library.delete("a")
        assert not await library.exists("a")
    with pytest.raises(quire.StorageClosed):
        await library.exists("b")


# Loop, order, threads


@run_async
async def test_the_loop_goes_on_while_a_call_is_made_and_while_others_wait() -> None:
    storage = Gated()
    ctx = await aio.open(storage, "c")
    storage.gate.clear()
    storage.reached.clear()
    tasks = [asyncio.create_task(ctx.user(f"{number}")) for number in range(20)]
    await until(storage.reached)
    assert not any(task.done() for task in tasks)
    other = await aio.open("memory:")  # another context does not wait for this one
    assert await other.user("hello") == 0
    storage.gate.set()
    assert await asyncio.gather(*tasks) == list(range(20))


@run_async
async def test_calls_are_made_in_the_order_they_were_asked_for() -> None:
    ctx = await aio.open("memory:")
    numbers = await asyncio.gather(*(ctx.user(f"{number}") for number in range(100)))
    assert numbers == list(range(100))
    assert [message.content for message in await ctx.messages()] == [f"{number}" for number in range(100)]


@run_async
async def test_contexts_work_at_the_same_time() -> None:
    barrier = threading.Barrier(6)

    class Meeting(MemoryStorage):
        meets = False

        def commit(self, context: int, commit: Any) -> None:
            if self.meets:
                barrier.wait(LONG)  # passes when six commits are under way at once
            super().commit(context, commit)

    storage = Meeting()
    contexts = [await aio.open(storage, f"c{number}") for number in range(6)]
    storage.meets = True
    assert await asyncio.gather(*(ctx.user("now") for ctx in contexts)) == [0] * 6


def test_one_context_serves_several_loops() -> None:
    storage = MemoryStorage()
    ctx = asyncio.run(_open(storage))
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(_add_hello(ctx)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]


async def _open(storage: MemoryStorage) -> aio.Context:
    return await aio.open(storage, "c")


async def _add_hello(ctx: aio.Context) -> int:
    return await ctx.user("hello")


# Cancellation


@run_async
async def test_a_call_that_waits_is_not_made_when_it_is_cancelled_and_one_that_runs_is_finished() -> None:
    storage = Gated()
    ctx = await aio.open(storage, "c")
    storage.gate.clear()
    storage.reached.clear()
    running, waiting, third = (asyncio.create_task(ctx.user(text)) for text in ("runs", "waits", "third"))
    await until(storage.reached)
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    storage.gate.set()
    await third
    assert [message.content for message in await ctx.messages()] == ["runs", "third"]


@run_async
async def test_a_block_that_is_cancelled_leaves_nothing() -> None:
    storage = Gated()
    ctx = await aio.open(storage, "c")

    async def block() -> None:
        async with ctx.temporary():
            await ctx.user("inside")
            await asyncio.sleep(LONG)

    task = asyncio.create_task(block())
    while len(await ctx.messages()) == 0:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ctx.messages() == []
    assert await ctx.user("after") == 1  # the message inside keeps its number
    assert await ctx.check() == []


def test_cancelled_at_any_moment_every_operation_is_whole(request: pytest.FixtureRequest) -> None:
    rounds = 400 if request.config.getoption("--long") else 12
    asyncio.run(_storm(Random(SEED), rounds))


async def _storm(random: Random, rounds: int) -> None:
    storage = MemoryStorage()
    ctx = await aio.open(storage, "c", budget=2_000)
    added = 0

    async def talk() -> None:
        nonlocal added
        for _ in range(6):
            await ctx.user("a question " * 8)
            added += 1
            await ctx.render()
            async with ctx.temporary():
                await ctx.assistant("thinking " * 5)
            await ctx.conversation.modify(
                [{"operation": "insert", "data": {"role": "user", "content": text}} for text in ("one", "two")]
            )
            [entry async for entry in ctx.history()]

    for _ in range(rounds):
        task = asyncio.create_task(talk())
        for _ in range(random.randrange(60)):
            await asyncio.sleep(0 if random.random() < 0.9 else 0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await ctx.check() == []
        texts = [message.content for message in await ctx.messages()]
        assert texts.count("one") == texts.count("two")
        assert not any("thinking" in str(text) for text in texts)
        assert texts.count("a question " * 8) >= added
        assert new_talk(storage, "c").check() == []


def test_the_repr_names_the_class() -> None:
    assert repr(asyncio.run(_open(MemoryStorage()))) == "<quire.aio.Context>"


WHO_IMPORTS = """
import asyncio, sys, threading
import quire

seen = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        seen.append((threading.current_thread() is threading.main_thread(), name))

async def work():
    if "{way}" == "open":
        async with quire.aio.open("memory:") as ctx:
            await ctx.user("hello")
            await ctx.render()
            await ctx.tools.openai()
    else:
        async with quire.aio.Library("memory:") as library:
            assert [name async for name in library.list()] == []
            await (await library.open("a")).user("hello")

sys.meta_path.insert(0, Finder())
asyncio.run(work())
there = [name for at_loop, name in seen if at_loop and name.startswith(("quire", "apsw", "msgspec"))]
elsewhere = [name for at_loop, name in seen if not at_loop]
print(*there, "|", *elsewhere)
"""


@pytest.mark.parametrize("way", ["open", "library"])
def test_the_thread_of_the_loop_imports_next_to_nothing(way: str) -> None:
    script = WHO_IMPORTS.replace("{way}", way)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    there, _, elsewhere = done.stdout.partition("|")
    assert set(there.split()) <= {"quire.aio", "quire.aio.calls", "quire.errors"}
    assert {"quire.context", "apsw"} <= set(elsewhere.split())


@pytest.mark.slow
def test_a_library_can_be_used_without_a_block() -> None:
    script = "import asyncio, quire\nasync def work():\n    return await quire.aio.Library('memory:').exists('a')\n"
    script += "assert asyncio.run(work()) is False\nassert not hasattr(quire.aio.Library('memory:'), 'nothing')"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_there_is_no_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError):
        _ = aio.nothing  # type: ignore[attr-defined]


@run_async
async def test_opening_without_creating_is_awaited_too() -> None:
    with pytest.raises(NoSuchContext):
        await aio.open("memory:", "nowhere", create=False)
