"""Windows of a context: opening, acting, refreshing, closing; undo, restarts, forks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import App, Context, InvalidOperation, InvalidValue, Segment, SegmentType, action
from quire.errors import NoSuchAction, NoSuchApp, NoSuchWindow
from quire.model.pages import Form
from quire.windows.apps import Todo
from tests.windows.contexts import frames, numbers, opened
from tests.windows.sample_apps import Counter


@pytest.fixture
def ctx() -> Iterator[Context]:
    with opened() as ctx:
        yield ctx


# Opening


def test_a_window_is_called_after_its_app_and_its_page(ctx: Context) -> None:
    first, second = ctx.windows.open("counter"), ctx.windows.open("counter", start=5)
    assert (first.id, first.page) == ("counter_1", "win-1")
    assert (second.id, second.content) == ("counter_2", "#counter_2=5#")
    assert ctx.pages.get_page("win-2").name == "counter_2"
    page = ctx.pages.get_page("win-2")
    assert isinstance(page, quire.DetailPage)
    assert page.form is Form.WINDOW
    assert [window.id for window in ctx.windows.list()] == ["counter_1", "counter_2"]
    assert len(ctx.windows) == 2


def test_arguments_come_by_name_or_as_a_mapping(ctx: Context) -> None:
    assert ctx.windows.open("counter", {"start": 3}).content == "#counter_1=3#"
    for bad, error in (({"start": "3"}, "a whole number is needed"), ({"begin": 3}, "start:int")):
        with pytest.raises(InvalidValue, match=error):
            ctx.windows.open("counter", bad)
    assert len(ctx.windows) == 1


def test_an_unknown_app_is_answered_with_those_there_are(ctx: Context) -> None:
    with pytest.raises(NoSuchApp, match=r"No app 'notes'. Apps: .*counter\(start:int\?, padding:int\?\), todo\(\)"):
        ctx.windows.open("notes")


@pytest.mark.parametrize("window_id", ["", "a b", 'a"b', "<w>", "x" * 65, 5, "a\nb"])
def test_an_id_that_cannot_be_one_is_refused(ctx: Context, window_id: Any) -> None:
    with pytest.raises(InvalidValue, match="window_id"):
        ctx.windows.open("todo", window_id=window_id)


def test_an_id_is_used_once(ctx: Context) -> None:
    ctx.windows.open("todo", window_id="列表-1")
    with pytest.raises(InvalidOperation, match="列表-1"):
        ctx.windows.open("counter", window_id="列表-1")
    ctx.windows.close("列表-1")
    with pytest.raises(InvalidOperation, match="列表-1"):
        ctx.windows.open("counter", window_id="列表-1")


@pytest.mark.parametrize("option", ["important", "pinned", "append"])
def test_options_are_as_the_app_has_them_unless_given(ctx: Context, option: str) -> None:
    kind = type("Kind", (Counter,), {option: True})
    ctx.windows.register(kind, name="kind")
    assert getattr(ctx.windows.open("kind"), option) is True
    no: dict[str, Any] = {option: False}
    assert getattr(ctx.windows.open("kind", **no), option) is False
    odd: dict[str, Any] = {option: 1}
    with pytest.raises(InvalidValue, match=option):
        ctx.windows.open("kind", **odd)


@pytest.mark.parametrize("app", [Counter(), int, None, "counter", App.content])
def test_only_a_class_of_apps_can_be_registered(ctx: Context, app: Any) -> None:
    with pytest.raises(InvalidValue, match=r"quire\.App"):
        ctx.windows.register(app)
    with pytest.raises(InvalidValue, match="name"):
        ctx.windows.register(Counter, name="a b")


def test_two_apps_of_one_class_have_two_names(ctx: Context, tmp_path: Path) -> None:
    from parts.file_viewer import Files

    (tmp_path / "docs").mkdir()
    ctx.windows.register(Files, tmp_path, name="all")
    ctx.windows.register(Files, root=tmp_path / "docs", name="docs")
    assert ctx.windows.open("all").content == ".: 1 entries\ndocs/"
    assert ctx.windows.open("docs").content == ".: 0 entries"


def test_a_context_without_a_place_for_windows_says_what_to_add() -> None:
    segments = [Segment(id="usr", type=SegmentType.USER)]
    ctx = opened(segments=segments)
    with pytest.raises(InvalidOperation, match="TOOL"):
        ctx.windows.open("todo")
    assert ctx.windows.list() == []
    ctx.render()
    ctx.pages.add_segment(Segment(id="apps", type=SegmentType.TOOL))
    assert ctx.windows.open("todo").page == "apps-1"
    assert len(frames(ctx)) == 1


# Acting


def test_an_action_changes_what_is_shown_and_what_is_kept(ctx: Context) -> None:
    ctx.windows.open("counter")
    assert ctx.windows.act("counter_1", "count", by=2) == "2 now"
    assert ctx.windows.act("counter_1", "count", {"by": 3}) == "5 now"
    assert numbers(ctx) == ["counter_1=5"]
    assert '"number": 5' in ctx.pages.detail("win-1")
    assert [entry.operation for entry in ctx.history()][-2:] == ["window_act", "window_act"]


def test_wrong_windows_actions_and_arguments_are_named(ctx: Context) -> None:
    ctx.windows.open("counter")
    with pytest.raises(NoSuchWindow, match=r"No window 'counter_9'. Open windows: counter_1"):
        ctx.windows.act("counter_9", "count")
    with pytest.raises(NoSuchAction, match=r"count\(by:int\?\)"):
        ctx.windows.act("counter_1", "divide")
    with pytest.raises(InvalidValue, match="a whole number is needed"):
        ctx.windows.act("counter_1", "count", by="1")
    assert numbers(ctx) == ["counter_1=0"]


def test_an_action_that_fails_changes_nothing(ctx: Context) -> None:
    ctx.windows.open("counter", start=7)
    seq = ctx.seq
    with pytest.raises(InvalidOperation, match="Action 'fail' of 'counter_1' failed: RuntimeError: counted too far"):
        ctx.windows.act("counter_1", "fail")
    assert ctx.seq == seq
    assert numbers(ctx) == ["counter_1=7"]


def test_an_action_can_refresh_or_close_its_window(ctx: Context) -> None:
    ctx.windows.open("counter")
    assert ctx.windows.act("counter_1", "renew") == "renewed"
    assert numbers(ctx) == ["counter_1=1"]
    assert ctx.windows.act("counter_1", "finish") == "finished"
    assert numbers(ctx) == []
    assert ctx.windows.get("counter_1").content == "counted to 1"
    with pytest.raises(InvalidOperation, match="is closed"):
        ctx.windows.act("counter_1", "count")
    with pytest.raises(InvalidOperation, match="is closed"):
        ctx.windows.refresh("counter_1")


class Odd(App):
    @action
    def number(self) -> Any:
        return 5

    @action
    def bytes(self) -> Any:
        self.saved = b"x"
        return "ok"

    def save(self) -> Any:
        return getattr(self, "saved", None)


def test_what_an_app_may_not_return_or_save_is_named(ctx: Context) -> None:
    ctx.windows.register(Odd)
    ctx.windows.open("odd")
    with pytest.raises(InvalidOperation, match=r"returned 5;.*None.*Refresh.*Close"):
        ctx.windows.act("odd_1", "number")
    with pytest.raises(InvalidOperation, match="saved b'x'"):
        ctx.windows.act("odd_1", "bytes")


# Refreshing


def test_a_window_that_appends_takes_a_new_place_and_is_shown_once(ctx: Context) -> None:
    ctx.user("one")
    ctx.windows.open("counter", append=True)
    ctx.windows.open("counter")
    ctx.user("two")
    first = ctx.windows.get("counter_1").seq
    assert numbers(ctx) == ["counter_1=0", "counter_2=0"]
    ctx.windows.act("counter_1", "count")
    assert numbers(ctx) == ["counter_1=1", "counter_2=0"]  # no refresh was requested
    ctx.windows.act("counter_1", "renew")
    assert numbers(ctx) == ["counter_2=0", "counter_1=2"]
    assert ctx.windows.get("counter_1").seq == ctx.seq > first
    inline = [message.text[:24] for message in ctx.render(windows="inline").messages][1:]
    assert inline == ["one", '<Window id="counter_2" k', "two", '<Window id="counter_1" k']
    items = [(item.content, item.seq) for item in ctx.items() if item.type == "Window"]
    assert [content for content, _ in items] == ["counter_2", "counter_1"]
    assert ctx.windows.refresh("counter_2", append=True).seq == ctx.seq
    assert numbers(ctx) == ["counter_1=2", "counter_2=0"]


def test_refreshing_in_place_keeps_what_the_app_would_save_now(ctx: Context) -> None:
    ctx.windows.open("counter")
    before = ctx.seq
    ctx.windows.refresh("counter_1")
    assert ctx.seq == before  # nothing changed
    assert ctx.windows.get("counter_1").seq == before


# Closing


def test_a_summary_stays_and_can_be_found(ctx: Context) -> None:
    ctx.windows.open("todo")
    ctx.windows.close("todo_1", "All three\nwere done: 买菜")
    page = ctx.pages.get_page("win-1")
    assert page.description == "All three were done: 买菜"
    assert ctx.pages.detail("win-1") == "All three\nwere done: 买菜"
    assert [hit.index for hit in ctx.find("买菜")] == ["win-1"]
    assert frames(ctx) == []
    assert ctx.why("win-1").call == f"undo({ctx.seq})"
    assert ctx.check() == []


def test_closing_twice_is_closing_once(ctx: Context) -> None:
    ctx.windows.open("todo")
    ctx.windows.close("todo_1", "first")
    seq = ctx.seq
    ctx.windows.close("todo_1", "second")
    assert ctx.seq == seq
    assert ctx.windows.get("todo_1").content == "first"
    with pytest.raises(NoSuchWindow):
        ctx.windows.close("todo_2")
    with pytest.raises(InvalidValue, match="summary"):
        ctx.windows.close("todo_1", 5)  # type: ignore[arg-type]


def test_a_pinned_window_is_not_closed(ctx: Context) -> None:
    ctx.windows.open("todo", pinned=True)
    for attempt in (lambda: ctx.windows.close("todo_1"), lambda: ctx.windows.act("todo_1", "close")):
        with pytest.raises(InvalidOperation, match=r"'win-1'.*pinned.*unpin"):
            attempt()
    ctx.pages.unpin("win-1")
    ctx.windows.close("todo_1")
    assert ctx.check() == []


def test_an_app_is_told_that_its_window_was_closed(ctx: Context) -> None:
    closed: list[str] = []

    class Told(App):
        def closed(self) -> None:
            closed.append(self.id)
            raise RuntimeError("nobody minds")

    ctx.windows.register(Told)
    ctx.windows.open("told")
    ctx.windows.close("told_1")
    assert closed == ["told_1"]


# In the tree


def test_a_window_is_a_page_that_its_app_keeps(ctx: Context) -> None:
    ctx.windows.open("todo")
    for change in (
        lambda: ctx.pages.set_detail("win-1", "{}"),
        lambda: ctx.pages.update_page("win-1", meta={}),
        lambda: ctx.pages.move_page("win-1", "mem-0"),
    ):
        with pytest.raises(InvalidOperation, match="it is a window"):
            change()
    ctx.pages.update_page("win-1", name="My list", description="Mine")
    ctx.windows.act("todo_1", "add", text="still there")
    assert "still there" in frames(ctx)[0]


def test_what_is_done_to_the_page_is_done_to_the_window(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.pages.hide("win-1")
    assert "not shown" in frames(ctx)[0]
    assert numbers(ctx) == [""]
    ctx.pages.expand("win-1")
    assert numbers(ctx) == ["counter_1=0"]
    ctx.pages.archive("win-1")
    assert frames(ctx) == []
    ctx.pages.restore("win-1")
    ctx.pages.archive("win-1", cold=True)
    assert frames(ctx) == []
    with pytest.raises(InvalidOperation, match="recall"):
        ctx.windows.act("counter_1", "count")
    ctx.pages.recall("win-1")
    folder = ctx.pages.create_contents_page("More", "", "win-0", ["win-1"])
    assert numbers(ctx) == ["counter_1=0"]
    ctx.pages.hide(folder)
    assert frames(ctx) == []
    ctx.pages.expand(folder)
    ctx.pages.remove_page("win-1")
    assert frames(ctx) == []
    with pytest.raises(NoSuchWindow):
        ctx.windows.get("counter_1")
    assert ctx.check() == []


def test_an_agent_cannot_open_a_closed_window_again(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.windows.close("counter_1", "Counted to 3.")
    before = ctx.seq
    answer = ctx.tools.call("expand_details", {"page": "win-1"})
    assert answer.startswith("InvalidOperation: Cannot open 'win-1': window 'counter_1' is closed. Call read_page")
    assert ctx.seq == before
    assert ctx.tools.call("read_page", {"page": "win-1"}) == " Counted to 3."
    assert ctx.why("win-1").call == f"undo({before})"
    why = ctx.why("win-1", ctx.render(include_obsolete=True))
    assert (why.shown, why.rule, why.call) == ("whole", "a closed window: include_obsolete shows it", "")


def test_windows_of_a_private_segment_are_never_drawn(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.pages.set_segment_permission("win", quire.Permission.PRIVATE)
    assert frames(ctx) == []
    assert frames(ctx, include_obsolete=True) == []
    ctx.pages.set_segment_permission("win", quire.Permission.READ_WRITE)
    assert len(frames(ctx)) == 1


def test_undo_takes_back_what_was_done_in_a_window(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.windows.act("counter_1", "count", by=5)
    ctx.windows.act("counter_1", "count", by=2)
    ctx.undo(ctx.seq)
    assert numbers(ctx) == ["counter_1=5"]
    ctx.windows.act("counter_1", "count")
    assert numbers(ctx) == ["counter_1=6"]
    ctx.windows.close("counter_1", "done")
    ctx.undo(ctx.seq)
    assert numbers(ctx) == ["counter_1=6"]


def test_undo_of_opening_takes_the_window_away_and_redo_brings_it_back(ctx: Context) -> None:
    ctx.windows.open("counter", start=4)
    ctx.undo(ctx.seq)
    assert frames(ctx) == []
    ctx.undo(ctx.seq)
    assert numbers(ctx) == ["counter_1=4"]


def test_rollback_brings_windows_back_as_they_were(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.windows.act("counter_1", "count")
    ctx.checkpoint("one")
    ctx.windows.act("counter_1", "count")
    ctx.windows.open("counter")
    ctx.windows.close("counter_1")
    ctx.rollback("one")
    assert numbers(ctx) == ["counter_1=1"]


def test_a_temporary_block_takes_back_what_was_said_and_not_what_was_done(ctx: Context) -> None:
    ctx.windows.open("counter")
    with ctx.temporary():
        ctx.windows.act("counter_1", "count", by=9)
        ctx.windows.open("counter")
        ctx.user("in between")
        assert numbers(ctx) == ["counter_1=9", "counter_2=0"]
    assert numbers(ctx) == ["counter_1=9", "counter_2=0"]
    assert all(message.text != "in between" for message in ctx.render().messages)


def test_a_window_opened_in_a_temporary_block_is_not_lost_to_another_writer(tmp_path: Path) -> None:
    def work(one: Context, two: Context) -> None:
        with one.temporary():
            one.windows.open("counter")
            two.refresh()
            two.user("meanwhile")

    with (
        opened(tmp_path / "a.db") as one,
        opened(tmp_path / "a.db") as two,
        pytest.raises(quire.Conflict, match="win-1"),
    ):
        work(one, two)


def test_windows_come_back_when_their_apps_are_registered_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with opened(path) as ctx:
        ctx.windows.open("counter", start=3, important=True)
        ctx.windows.act("counter_1", "count")
        ctx.windows.open("todo", pinned=True)
        before = frames(ctx)
    with quire.open(path, budget=8_000) as ctx:
        assert frames(ctx) == []  # their apps are not registered
        assert ctx.windows.get("counter_1").error == "App 'counter' is not registered."
        with pytest.raises(NoSuchApp):
            ctx.windows.act("counter_1", "count")
        ctx.windows.register(Counter)
        assert frames(ctx) == before[:1]
        ctx.windows.register(Todo)
        assert frames(ctx) == before
        window = ctx.windows.get("counter_1")
        assert (window.important, window.content) == (True, "#counter_1=4#")


def test_another_writer_of_the_same_context_is_followed(tmp_path: Path) -> None:
    with opened(tmp_path / "a.db") as one, opened(tmp_path / "a.db") as two:
        one.windows.open("counter")
        two.refresh()
        two.windows.act("counter_1", "count", by=4)
        with pytest.raises(quire.Conflict):
            one.windows.act("counter_1", "count", by=100)
        one.refresh()
        assert numbers(one) == ["counter_1=4"]
        two.windows.close("counter_1")
        one.refresh()
        assert frames(one) == []


def test_a_fork_has_windows_of_its_own(ctx: Context) -> None:
    ctx.windows.open("counter")
    fork = ctx.fork("other")
    fork.windows.act("counter_1", "count", by=5)
    ctx.windows.act("counter_1", "count", by=1)
    assert (numbers(ctx), numbers(fork)) == (["counter_1=1"], ["counter_1=5"])


def test_windows_are_in_the_document(ctx: Context) -> None:
    ctx.windows.open("counter", start=2)
    ctx.windows.open("counter")
    ctx.windows.close("counter_2", "summed up")
    other = opened()
    other.pages.unmarshal(ctx.pages.marshal())
    assert numbers(other) == ["counter_1=2"]
    assert other.windows.get("counter_2").content == "summed up"
    assert other.check() == []
