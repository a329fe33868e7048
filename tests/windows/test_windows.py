"""Windows of a context: opening, acting, refreshing, closing; in the tree; undo, restarts, other writers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import quire
from quire import App, Context, InvalidOperation, InvalidValue, Permission, action
from quire.errors import NoSuchAction, NoSuchApp, NoSuchWindow
from quire.windows.apps import Todo
from tests.windows.sample_apps import Counter, frames, numbers, opened


@pytest.fixture
def ctx() -> Iterator[Context]:
    with opened() as ctx:
        yield ctx


# Opening


def test_a_window_is_called_after_its_app_and_its_page(ctx: Context) -> None:
    first, second = ctx.windows.open("counter"), ctx.windows.open("counter", start=5)
    assert (first.id, first.page) == ("counter_1", "win-1")
    assert (second.id, second.content) == ("counter_2", "#counter_2=5#")
    assert ctx.windows.open("counter", {"start": 3}).content == "#counter_3=3#"
    assert ctx.pages.get_page("win-2").name == "counter_2"
    assert [window.id for window in ctx.windows.list()] == ["counter_1", "counter_2", "counter_3"]
    assert len(ctx.windows) == 3


def test_a_window_reads_as_the_contract_prints_it(ctx: Context) -> None:
    ctx.user("创建一个待办列表")
    ctx.windows.open("todo", window_id="todo_12345")
    ctx.windows.act("todo_12345", "add", text="买菜")
    last = ctx.render().messages[-1]
    assert last.role == "user"
    window = ElementTree.fromstring(last.text)
    assert (window.tag, window.attrib) == ("Window", {"id": "todo_12345", "key": "kestrel"})
    assert [part.tag for part in window] == ["Description", "Content", "Actions"]
    assert [(item.get("id"), item.text) for item in window.findall("Content/item")] == [("1", "买菜")]
    assert ('<action id="add" params="text:string">') in last.text
    assert ('<action id="close" params="summary:string?">') in last.text
    shown = ctx.windows.get("todo_12345")
    assert (shown.id, shown.content) == ("todo_12345", (("1", "买菜"),))
    assert [each.name for each in shown.actions] == [str(each.get("id")) for each in window.findall("Actions/action")]


@pytest.mark.parametrize("window_id", ["", "a b", 'a"b', "<w>", "x" * 65, 5, "a\nb"])
def test_an_id_that_cannot_be_one_is_refused(ctx: Context, window_id: Any) -> None:
    with pytest.raises(InvalidValue):
        ctx.windows.open("todo", window_id=window_id)


# Acting, refreshing, closing


class Odd(App):
    saved: Any = None

    @action
    def number(self) -> Any:
        return 5

    @action
    def bytes(self) -> Any:
        self.saved = b"x"

    def save(self) -> Any:
        return self.saved


def test_an_action_changes_what_is_shown_and_a_failed_one_changes_nothing(ctx: Context) -> None:
    ctx.windows.open("counter")
    assert ctx.windows.act("counter_1", "count", by=2) == "2 now"
    assert ctx.windows.act("counter_1", "count", {"by": 3}) == "5 now"
    ctx.windows.register(Odd)
    ctx.windows.open("odd")
    seq = ctx.seq
    wrong: tuple[tuple[type[Exception], Callable[[], object]], ...] = (
        (NoSuchApp, lambda: ctx.windows.open("notes")),
        (InvalidValue, lambda: ctx.windows.open("counter", start="3")),
        (NoSuchWindow, lambda: ctx.windows.act("counter_9", "count")),
        (NoSuchAction, lambda: ctx.windows.act("counter_1", "divide")),
        (InvalidValue, lambda: ctx.windows.act("counter_1", "count", by="1")),
        (InvalidOperation, lambda: ctx.windows.act("counter_1", "fail")),
        (InvalidOperation, lambda: ctx.windows.act("odd_2", "number")),  # it returns a number
        (InvalidOperation, lambda: ctx.windows.act("odd_2", "bytes")),  # it saves bytes
    )
    for error, attempt in wrong:
        with pytest.raises(error):
            attempt()
    assert ctx.seq == seq
    assert numbers(ctx)[0] == "counter_1=5"


def test_an_action_can_refresh_or_close_its_window(ctx: Context) -> None:
    ctx.windows.open("counter")
    assert ctx.windows.act("counter_1", "renew") == "renewed"
    assert numbers(ctx) == ["counter_1=1"]
    assert ctx.windows.act("counter_1", "finish") == "finished"
    assert numbers(ctx) == []
    assert ctx.windows.get("counter_1").content == "counted to 1"
    for attempt in (lambda: ctx.windows.act("counter_1", "count"), lambda: ctx.windows.refresh("counter_1")):
        with pytest.raises(InvalidOperation):
            attempt()


def test_a_closed_window_is_obsolete_and_its_summary_stays(ctx: Context) -> None:
    told: list[str] = []

    class Told(Counter):
        def closed(self) -> None:
            told.append(self.id)
            raise RuntimeError("nobody minds")

    ctx.windows.register(Told, name="told")
    window = ctx.windows.open("told")
    ctx.windows.close(window.id, "All three\nwere done: 买菜")
    seq = ctx.seq
    ctx.windows.close(window.id, "second")  # changes nothing
    assert (ctx.seq, told) == (seq, [window.id])
    page = ctx.pages.get_page("win-1")
    assert page.description == "All three were done: 买菜"
    assert ctx.pages.detail("win-1") == "All three\nwere done: 买菜"
    assert [hit.index for hit in ctx.find("买菜")] == ["win-1"]
    assert [item.obsolete for item in ctx.items()] == [True]
    assert list(ctx.items(active=True)) == []
    assert frames(ctx) == []
    (shown,) = frames(ctx, include_obsolete=True)
    assert ElementTree.fromstring(shown).get("obsolete") == "true"
    answer = ctx.tools.call("expand_details", {"page": "win-1"})
    assert answer.startswith("InvalidOperation")  # an agent cannot open it again
    ctx.render()
    assert ctx.why("win-1").call == f"undo({seq})"
    assert ctx.check() == []


def test_a_pinned_window_is_not_closed(ctx: Context) -> None:
    ctx.windows.open("todo", pinned=True)
    for attempt in (lambda: ctx.windows.close("todo_1"), lambda: ctx.windows.act("todo_1", "close")):
        with pytest.raises(InvalidOperation):
            attempt()
    ctx.pages.unpin("win-1")
    ctx.windows.close("todo_1")
    assert ctx.check() == []


# In the tree


def test_a_window_is_a_page_that_its_app_keeps(ctx: Context) -> None:
    ctx.windows.open("counter")
    for change in (
        lambda: ctx.pages.set_detail("win-1", "{}"),
        lambda: ctx.pages.update_page("win-1", meta={}),
        lambda: ctx.pages.move_page("win-1", "mem-0"),
    ):
        with pytest.raises(InvalidOperation):
            change()
    ctx.pages.update_page("win-1", name="My counter", description="Mine")
    ctx.windows.act("counter_1", "count")
    assert numbers(ctx) == ["counter_1=1"]


def test_what_is_done_to_the_page_is_done_to_the_window(ctx: Context) -> None:
    pages = ctx.pages
    ctx.windows.open("counter")
    steps: tuple[tuple[Callable[[], object], list[str]], ...] = (
        (lambda: pages.hide("win-1"), [""]),
        (lambda: pages.expand("win-1"), ["counter_1=0"]),
        (lambda: pages.archive("win-1"), []),
        (lambda: pages.restore("win-1"), ["counter_1=0"]),
        (lambda: pages.archive("win-1", cold=True), []),
        (lambda: pages.recall("win-1"), ["counter_1=0"]),
        (lambda: pages.create_contents_page("More", "", "win-0", ["win-1"]), ["counter_1=0"]),
        (lambda: pages.hide("win-2"), []),
        (lambda: pages.expand("win-2"), ["counter_1=0"]),
        (lambda: pages.set_segment_permission("win", Permission.PRIVATE), []),
        (lambda: pages.set_segment_permission("win", Permission.READ_WRITE), ["counter_1=0"]),
        (lambda: pages.remove_page("win-1"), []),
    )
    for number, (step, shown) in enumerate(steps):
        step()
        assert numbers(ctx) == shown, number
    with pytest.raises(NoSuchWindow):
        ctx.windows.get("counter_1")
    assert ctx.check() == []


def test_undo_rollback_and_forks_take_windows_with_them(ctx: Context) -> None:
    ctx.windows.open("counter", start=4)
    ctx.undo(ctx.seq)
    assert frames(ctx) == []
    ctx.undo(ctx.seq)
    assert numbers(ctx) == ["counter_1=4"]
    ctx.windows.act("counter_1", "count", by=5)
    ctx.checkpoint("nine")
    ctx.windows.act("counter_1", "count", by=2)
    ctx.undo(ctx.seq)
    assert numbers(ctx) == ["counter_1=9"]
    fork = ctx.fork("other")
    fork.windows.act("counter_1", "count", by=50)
    ctx.windows.act("counter_1", "count")
    assert (numbers(ctx), numbers(fork)) == (["counter_1=10"], ["counter_1=59"])
    ctx.windows.open("counter")
    ctx.windows.close("counter_1")
    ctx.rollback("nine")
    assert numbers(ctx) == ["counter_1=9"]
    other = opened()
    other.pages.unmarshal(ctx.pages.marshal())
    assert numbers(other) == ["counter_1=9"]


def test_windows_come_back_when_their_apps_are_registered_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path) as ctx:
        ctx.windows.open("counter", start=3, important=True)
        ctx.windows.act("counter_1", "count")
        ctx.windows.open("todo", pinned=True)
        before = frames(ctx)
    with quire.open(path, budget=8_000) as ctx:
        assert frames(ctx) == []  # their apps are not registered
        assert ctx.windows.get("counter_1").error
        with pytest.raises(NoSuchApp):
            ctx.windows.act("counter_1", "count")
        ctx.windows.register(Counter)
        ctx.windows.register(Todo)
        assert frames(ctx) == before
        window = ctx.windows.get("counter_1")
        assert (window.important, window.content) == (True, "#counter_1=4#")
