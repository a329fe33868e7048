"""The window tool of a model: it checks permissions, and its answers name the next step."""

from collections.abc import Iterator

import pytest

import quire
from quire import Context, Permission, Quota
from tests.windows.sample_apps import Counter, frames, opened


@pytest.fixture
def ctx() -> Iterator[Context]:
    with opened() as ctx:
        ctx.user("count for me")
        yield ctx


def window(ctx: Context, do: str, name: str, **more: object) -> str:
    return ctx.tools.call("window", {"do": do, "id": name, **more})


def test_a_model_opens_uses_and_closes_a_window(ctx: Context) -> None:
    assert "counter_1" in window(ctx, "create", "counter", arguments={"start": 3})
    assert window(ctx, "action", "counter_1", action="count", arguments={"by": 2}) == "5 now"
    assert "#counter_1=5#" in ctx.render().messages[-1].text
    assert "counter_1" in window(ctx, "close", "counter_1", arguments={"summary": "数到五"})
    assert ctx.windows.get("counter_1").content == "数到五"
    assert [(entry.operation, entry.actor) for entry in ctx.history()][-3:] == [
        ("window_open", "agent"),
        ("window_act", "agent"),
        ("window_close", "agent"),
    ]


def test_a_model_without_apps_has_no_tool_for_windows() -> None:
    ctx = quire.open("memory:")
    assert "window" not in ctx.tools
    ctx.windows.register(Counter)
    assert "window" in ctx.tools


def test_the_gate_decides_and_the_launcher_is_no_way_around_it(ctx: Context) -> None:
    window(ctx, "create", "counter")
    launcher = ctx.windows.launcher().id
    ctx.pages.pin("win-1")
    for do in ("action", "close"):
        assert window(ctx, do, "counter_1", action="count").startswith("PermissionDenied")
    ctx.pages.set_segment_permission("win", Permission.READ_ONLY)
    assert window(ctx, "create", "counter").startswith("PermissionDenied")
    said = window(ctx, "action", launcher, action="launch", arguments={"app": "counter"})
    assert said.startswith("PermissionDenied")
    ctx.pages.set_segment_permission("win", Permission.PRIVATE)
    assert "window" not in ctx.tools
    assert "counter_1" not in window(ctx, "action", "nothing", action="count")
    assert len(ctx.windows) == 2


def test_an_agent_sees_a_windows_page_once_and_closes_it_by_removing_it(ctx: Context) -> None:
    window(ctx, "create", "counter")
    ctx.agent.hide_details("win-1")
    ctx.agent.expand_details("win-1")
    assert sum("counter_1" in message.text for message in ctx.render().messages) == 1
    assert ctx.agent.remove_page("win-1") == 1
    assert ctx.windows.get("counter_1").obsolete
    assert frames(ctx) == []
    assert ctx.check() == []


def test_windows_count_for_what_an_agent_may_add(ctx: Context) -> None:
    tools = ctx.tools_of(ctx.as_agent("worker", quota=Quota(pages=2)))
    said = [tools.call("window", {"do": "create", "id": "counter"}) for _ in range(3)]
    assert [answer.startswith("QuotaExceeded") for answer in said] == [False, False, True]
    assert len(ctx.windows) == 2
