"""The window tool of a model: it checks permissions, and its answers name the next step."""

from collections.abc import Iterator

import pytest

import quire
from quire import Context, Permission, Quota
from tests.windows.sample_apps import Counter


@pytest.fixture
def ctx() -> Iterator[Context]:
    with quire.open("memory:", budget=8_000, key="kestrel") as ctx:
        ctx.windows.register(Counter)
        ctx.user("count for me")
        yield ctx


def window(ctx: Context, do: str, name: str, **more: object) -> str:
    return ctx.tools.call("window", {"do": do, "id": name, **more})


def test_a_model_opens_uses_and_closes_a_window(ctx: Context) -> None:
    assert window(ctx, "create", "counter", arguments={"start": 3}) == "Opened counter_1."
    assert window(ctx, "action", "counter_1", action="count", arguments={"by": 2}) == "5 now"
    assert "#counter_1=5#" in ctx.render().messages[-1].text
    assert window(ctx, "close", "counter_1", arguments={"summary": "数到五"}) == "Closed counter_1: 数到五"
    assert ctx.windows.get("counter_1").content == "数到五"
    assert [(entry.operation, entry.actor) for entry in ctx.history()][-3:] == [
        ("window_open", "agent"),
        ("window_act", "agent"),
        ("window_close", "agent"),
    ]


def test_what_a_model_gets_wrong_is_answered_with_what_would_do(ctx: Context) -> None:
    window(ctx, "create", "counter")
    for said, answer in (
        (
            window(ctx, "create", "notes"),
            "NoSuchApp: No app 'notes'. Apps: launcher(), counter(start:int?, padding:int?).",
        ),
        (
            window(ctx, "action", "counter_1", action="fly"),
            "NoSuchAction: No action 'fly' here. Actions: count(by:int?)",
        ),
        (
            window(ctx, "action", "counter_7", action="count"),
            "NoSuchWindow: No window 'counter_7'. Open windows: counter_1.",
        ),
        (
            window(ctx, "action", "counter_1", action="count", arguments={"by": "two"}),
            "InvalidValue: Argument 'by' of 'count' is 'two'; a whole number is needed.",
        ),
        (
            window(ctx, "action", "counter_1", action="fail"),
            "InvalidOperation: Action 'fail' of 'counter_1' failed: RuntimeError: counted too far",
        ),
    ):
        assert said.startswith(answer)
    assert len(ctx.windows) == 1


def test_a_model_without_apps_has_no_tool_for_windows() -> None:
    ctx = quire.open("memory:")
    assert "window" not in ctx.tools
    ctx.windows.register(Counter)
    assert "window" in ctx.tools


def test_the_gate_decides(ctx: Context) -> None:
    window(ctx, "create", "counter")
    ctx.pages.pin("win-1")
    for do in ("action", "close"):
        said = window(ctx, do, "counter_1", action="count")
        assert said.startswith("PermissionDenied: operation 'window' on win-1 ")
    ctx.pages.set_segment_permission("win", Permission.READ_ONLY)
    assert window(ctx, "create", "counter").startswith("PermissionDenied: operation 'window' on win-0 needs READ_WRITE")
    ctx.pages.set_segment_permission("win", Permission.PRIVATE)
    assert "window" not in ctx.tools
    assert "counter_1" not in window(ctx, "action", "nothing", action="count")


def test_an_agent_that_removes_a_window_closes_it(ctx: Context) -> None:
    window(ctx, "create", "counter")
    assert ctx.agent.remove_page("win-1") == 1
    assert ctx.windows.get("counter_1").obsolete
    assert all("<Window" not in message.text for message in ctx.render().messages)
    assert ctx.check() == []


def test_an_agent_that_opens_a_windows_page_sees_the_window_once(ctx: Context) -> None:
    window(ctx, "create", "counter")
    ctx.agent.hide_details("win-1")
    ctx.agent.expand_details("win-1")
    texts = [message.text for message in ctx.render().messages]
    assert sum("counter_1" in text for text in texts) == 1


def test_windows_count_for_what_an_agent_may_add(ctx: Context) -> None:
    agent = ctx.as_agent("worker", quota=Quota(pages=2))
    tools = ctx.tools_of(agent)
    said = [tools.call("window", {"do": "create", "id": "counter"}) for _ in range(3)]
    assert said[:2] == ["Opened counter_1.", "Opened counter_2."]
    assert said[2].startswith("QuotaExceeded")
    assert len(ctx.windows) == 2


def test_the_launcher_is_no_way_around_the_gate(ctx: Context) -> None:
    launcher = ctx.windows.launcher().id
    ctx.pages.pin("win-0")
    assert window(ctx, "create", "counter").startswith("PermissionDenied")
    said = window(ctx, "action", launcher, action="launch", arguments={"app": "counter"})
    assert said.startswith("PermissionDenied")
    assert [shown.id for shown in ctx.windows.list()] == [launcher]
