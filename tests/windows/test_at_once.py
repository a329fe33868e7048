"""Windows with concurrency: async apps, events, the launcher, threads."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import App, Close, Context, InvalidOperation, InvalidValue, Refresh, StorageFailure, action
from quire.errors import NoSuchApp
from quire.windows.app import WindowEvent
from quire.windows.apps import Scratch, Todo
from tests.windows.contexts import frames, numbers, opened


@pytest.fixture
def ctx() -> Iterator[Context]:
    with opened() as ctx:
        yield ctx


# Async


class Slow(App):
    """An app with only async methods."""

    def __init__(self) -> None:
        self.text = ""

    async def open(self, text: str = "begun") -> None:
        await asyncio.sleep(0)
        self.text = text

    async def content(self) -> str:
        await asyncio.sleep(0)
        return self.text

    @action
    async def say(self, text: str) -> Refresh:
        await asyncio.sleep(0)
        self.text = text
        return Refresh("said")

    @action
    async def end(self) -> Close:
        return Close("ended")

    async def save(self) -> Any:
        await asyncio.sleep(0)
        return [self.text]

    async def restore(self, saved: Any) -> None:
        await asyncio.sleep(0)
        self.text = saved[0]


def test_an_app_may_be_async_in_everything(tmp_path: Path) -> None:
    async def inside() -> None:  # the caller may be async too
        with opened(tmp_path / "a.db") as ctx:
            ctx.windows.register(Slow)
            assert ctx.windows.open("slow").content == "begun"
            assert ctx.windows.act("slow_1", "say", text="好") == "said"
            assert "<Content>好</Content>" in frames(ctx)[0]

    asyncio.run(inside())
    with opened(tmp_path / "a.db") as ctx:
        ctx.windows.register(Slow)
        assert "<Content>好</Content>" in frames(ctx)[0]
        ctx.windows.act("slow_1", "end")
        assert ctx.windows.get("slow_1").content == "ended"


# Events


def test_listeners_are_told_what_happens_and_who_did_it(ctx: Context) -> None:
    heard: list[WindowEvent] = []
    stop = ctx.windows.on(heard.append)
    closed: list[WindowEvent] = []
    ctx.windows.on(closed.append, "closed")
    ctx.windows.open("counter")
    ctx.windows.acting_as("agent").act("counter_1", "count")
    ctx.windows.act("counter_1", "renew")
    ctx.windows.refresh("counter_1")
    ctx.windows.act("counter_1", "finish", summary="all done")
    told = [(event.kind, event.action, event.text, event.actor) for event in heard]
    assert told == [
        ("opened", "", "", "developer"),
        ("acted", "count", "1 now", "agent"),
        ("acted", "renew", "renewed", "developer"),
        ("refreshed", "", "", "developer"),
        ("refreshed", "", "", "developer"),
        ("acted", "finish", "finished", "developer"),
        ("closed", "", "all done", "developer"),
    ]
    assert {(event.window, event.app, event.page) for event in heard} == {("counter_1", "counter", "win-1")}
    assert [event.kind for event in closed] == ["closed"]
    stop()
    ctx.windows.open("counter")
    assert len(heard) == len(told)
    with pytest.raises(InvalidValue, match="listener"):
        ctx.windows.on(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"^kinds .*openned.*opened, refreshed, acted, closed"):
        ctx.windows.on(print, "opened", "openned")  # type: ignore[arg-type]


def test_a_failed_action_is_no_event(ctx: Context) -> None:
    ctx.windows.open("counter")
    heard: list[WindowEvent] = []
    ctx.windows.on(heard.append)
    with pytest.raises(InvalidOperation):
        ctx.windows.act("counter_1", "fail")
    assert heard == []


# The launcher


def test_the_launcher_lists_apps_and_opens_them_in_the_name_of_who_acts(ctx: Context) -> None:
    ctx.windows.register(Scratch)
    launcher = ctx.windows.launcher()
    assert launcher.content == (
        ("counter", "A counter (start:int?, padding:int?)"),
        ("todo", "A todo list"),
        ("scratch", "A scratch pad (text:string?)"),
    )
    assert ctx.windows.launcher().id == launcher.id
    said = ctx.windows.acting_as("agent").act(launcher.id, "launch", app="counter", arguments='{"start": 8}')
    assert said == "Opened counter_2."
    assert ctx.pages.get_page("win-2").author == "agent"
    assert "counter_2=8" in numbers(ctx)
    for arguments, error in (("[", "not JSON"), ("[]", "an object"), ('{"x": 1}', "start:int")):
        with pytest.raises(InvalidValue, match=error):
            ctx.windows.act(launcher.id, "launch", app="counter", arguments=arguments)
    with pytest.raises(NoSuchApp):
        ctx.windows.act(launcher.id, "launch", app="nothing")


def test_limits_are_seconds(ctx: Context) -> None:
    ctx.windows.set_limits(drawing=0.5, action=1)
    for value in (0, -1, "1", 4_000, float("nan"), True):
        with pytest.raises(InvalidValue, match="seconds"):
            ctx.windows.set_limits(drawing=value)  # type: ignore[arg-type]


def test_an_app_is_closed_if_its_window_cannot_be_stored(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class File(App):
        def open(self) -> None:
            calls.append("open")

        def content(self) -> str:
            return ""

        def closed(self) -> None:
            calls.append("closed")

    def refuse(*_: object) -> None:
        raise StorageFailure("the disk is full")

    ctx.windows.register(File)
    with monkeypatch.context() as patch:
        patch.setattr(ctx.pages.storage, "commit", refuse)
        with pytest.raises(StorageFailure):
            ctx.windows.open("file")
    assert calls == ["open", "closed"]
    ctx.windows.open("file")
    assert calls == ["open", "closed", "open"]


# Threads


def test_threads_act_and_draw_at_the_same_time(ctx: Context) -> None:
    import threading

    ids = [ctx.windows.open("counter").id for _ in range(3)]
    shared = ctx.windows.open("counter").id
    errors: list[BaseException] = []

    def work(window: str) -> None:
        try:
            for _ in range(20):
                ctx.windows.act(window, "count")
                ctx.windows.act(shared, "count")
                view = ctx.render()
                assert len({message.text.partition(" key")[0] for part in view.tail for message in part.messages}) == 4
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(window,)) for window in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert numbers(ctx) == [*(f"{window}=20" for window in ids), f"{shared}=60"]
    assert ctx.check() == []


def test_what_was_saved_later_is_kept_whoever_comes_first(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    ctx.windows.open("counter")
    keep, first, go_on = type(ctx.windows)._save, threading.Event(), threading.Event()

    def slow(self: Any, operation: str, *args: Any, **options: Any) -> Any:
        if not first.is_set():
            first.set()
            go_on.wait(10)
        return keep(self, operation, *args, **options)

    monkeypatch.setattr(type(ctx.windows), "_save", slow)
    thread = threading.Thread(target=lambda: ctx.windows.act("counter_1", "count", by=1))
    thread.start()
    assert first.wait(10)
    ctx.windows.act("counter_1", "count", by=10)
    go_on.set()
    thread.join()
    assert numbers(ctx) == ["counter_1=11"]
    assert '"number": 11' in ctx.pages.detail("win-1")


def test_an_action_that_changes_nothing_is_an_entry_that_can_be_undone(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.windows.act("counter_1", "count", by=0)
    assert list(ctx.history())[-1].operation == "window_act"
    ctx.undo(ctx.seq)
    assert numbers(ctx) == ["counter_1=0"]


def test_a_listener_that_fails_costs_nothing_that_was_done(ctx: Context) -> None:
    def failing(event: WindowEvent) -> None:
        raise KeyError(event.window)

    heard: list[WindowEvent] = []
    ctx.windows.register(Todo)
    ctx.windows.on(failing)
    ctx.windows.on(heard.append)
    assert ctx.tools.call("window", {"do": "create", "id": "todo"}) == "Opened todo_1."
    assert ctx.windows.act("todo_1", "add", text="茶") == "Added as 1."
    ctx.windows.close("todo_1")
    assert [event.kind for event in heard] == ["opened", "acted", "closed"]


def test_a_context_that_is_closed_leaves_no_thread_of_its_windows(ctx: Context) -> None:
    class Where(quire.App):
        thread: Any = None

        def content(self) -> str:
            Where.thread = threading.current_thread()
            return ""

    ctx.windows.register(Where)
    ctx.windows.open("where")
    ctx.close()
    Where.thread.join(10)
    assert not Where.thread.is_alive()
