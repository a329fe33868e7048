"""Windows with concurrency: async apps, events, the launcher, storage that fails, threads."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import App, Close, Context, InvalidOperation, InvalidValue, Refresh, action
from quire.errors import NoSuchApp
from quire.windows.app import WindowEvent
from tests.windows.sample_apps import frames, numbers, opened


@pytest.fixture
def ctx() -> Iterator[Context]:
    with opened() as ctx:
        yield ctx


class Slow(App):
    """An app with only async methods."""

    text = ""

    async def open(self, text: str = "begun") -> None:
        await asyncio.sleep(0)
        self.text = text

    async def content(self) -> str:
        await asyncio.sleep(0)
        return self.text

    @action
    async def say(self, text: str) -> Refresh:
        self.text = text
        return Refresh("said")

    @action
    async def end(self) -> Close:
        return Close("ended")

    async def save(self) -> Any:
        return [self.text]

    async def restore(self, saved: Any) -> None:
        self.text = saved[0]


def test_an_app_may_be_async_in_everything(tmp_path: Path) -> None:
    async def inside() -> None:  # the caller may be async too
        with opened(tmp_path / "a.db") as ctx:
            ctx.windows.register(Slow)
            assert ctx.windows.open("slow").content == "begun"
            assert ctx.windows.act("slow_1", "say", text="好") == "said"

    asyncio.run(inside())
    with opened(tmp_path / "a.db") as ctx:
        ctx.windows.register(Slow)
        assert "<Content>好</Content>" in frames(ctx)[0]
        ctx.windows.act("slow_1", "end")
        assert ctx.windows.get("slow_1").content == "ended"


def test_listeners_are_told_what_happens_and_one_that_fails_costs_nothing(ctx: Context) -> None:
    def failing(event: WindowEvent) -> None:
        raise KeyError(event.window)

    heard: list[WindowEvent] = []
    closed: list[WindowEvent] = []
    ctx.windows.on(failing)
    stop = ctx.windows.on(heard.append)
    ctx.windows.on(closed.append, "closed")
    ctx.windows.open("counter")
    ctx.windows.acting_as("agent").act("counter_1", "count")
    with pytest.raises(InvalidOperation):
        ctx.windows.act("counter_1", "fail")
    ctx.windows.refresh("counter_1")
    ctx.windows.act("counter_1", "finish", summary="all done")
    assert [(event.kind, event.action, event.text, event.actor) for event in heard] == [
        ("opened", "", "", "developer"),
        ("acted", "count", "1 now", "agent"),
        ("refreshed", "", "", "developer"),
        ("acted", "finish", "finished", "developer"),
        ("closed", "", "all done", "developer"),
    ]
    assert {(event.window, event.app, event.page) for event in heard} == {("counter_1", "counter", "win-1")}
    assert [event.kind for event in closed] == ["closed"]
    stop()
    ctx.windows.open("counter")
    assert len(heard) == 5
    for wrong in ((5,), (print, "opened", "openned")):
        with pytest.raises(InvalidValue):
            ctx.windows.on(*wrong)


def test_the_launcher_lists_apps_and_opens_them_in_the_name_of_who_acts(ctx: Context) -> None:
    launcher = ctx.windows.launcher()
    assert [entry[0] for entry in launcher.content] == ["counter", "todo"]
    assert ctx.windows.launcher().id == launcher.id
    ctx.windows.acting_as("agent").act(launcher.id, "launch", app="counter", arguments='{"start": 8}')
    assert ctx.pages.get_page("win-2").author == "agent"
    assert "counter_2=8" in numbers(ctx)
    for arguments in ("[", "[]", '{"x": 1}'):
        with pytest.raises(InvalidValue):
            ctx.windows.act(launcher.id, "launch", app="counter", arguments=arguments)
    with pytest.raises(NoSuchApp):
        ctx.windows.act(launcher.id, "launch", app="nothing")
    for value in (0, -1, "1", 4_000, float("nan"), True):
        with pytest.raises(InvalidValue):
            ctx.windows.set_limits(drawing=value)  # type: ignore[arg-type]


def test_threads_act_and_draw_at_the_same_time(ctx: Context) -> None:
    ids = [ctx.windows.open("counter").id for _ in range(3)]
    shared = ctx.windows.open("counter").id
    errors: list[BaseException] = []

    def work(window: str) -> None:
        try:
            for _ in range(20):
                ctx.windows.act(window, "count")
                ctx.windows.act(shared, "count")
                assert len(frames(ctx)) == 4
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
