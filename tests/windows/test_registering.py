"""Apps with a limit of open windows (`most`) or with one window for each value of a parameter (`one_per`)."""

from threading import Thread
from typing import Any

import pytest

import quire
from quire import App, Context, InvalidOperation, InvalidValue, action
from tests.windows.sample_apps import Counter


class Orders(App):
    """Shows one order."""

    name = "order"
    description = "One order"
    ended: list[str] = []  # noqa: RUF012 - shared by all objects on purpose

    def __init__(self) -> None:
        self.order_id, self.note, self.looks = 0, "", 0

    def open(self, order_id: int = 1, note: str = "") -> None:
        self.order_id, self.note = order_id, note

    def content(self) -> str:
        return f"Order {self.order_id}: {self.looks} looks\n{self.note}"

    @action
    def look(self) -> str:
        self.looks += 1
        return "seen"

    def closed(self) -> None:
        Orders.ended.append(self.id)

    def save(self) -> list[Any]:
        return [self.order_id, self.note, self.looks]

    def restore(self, saved: Any) -> None:
        self.order_id, self.note, self.looks = saved


@pytest.fixture
def ctx() -> Context:
    Orders.ended.clear()
    return quire.open("memory:", budget=8_000, key="kestrel")


def ids(ctx: Context) -> list[str]:
    return [window.id for window in ctx.windows.list()]


def test_one_window_more_closes_the_least_recently_used(ctx: Context) -> None:
    ctx.windows.register(Orders, most=3)
    events: list[tuple[str, str]] = []
    for number in range(1, 4):
        ctx.windows.open("order", order_id=number)
    ctx.windows.act("order_1", "look")
    ctx.windows.on(lambda event: events.append((event.kind, event.window)))
    seq = ctx.seq
    ctx.windows.open("order", order_id=4)
    assert ctx.seq == seq + 1  # one entry
    assert ids(ctx) == ["order_1", "order_3", "order_4"]
    assert events == [("closed", "order_2"), ("opened", "order_4")]
    assert Orders.ended == ["order_2"]
    closed = ctx.windows.get("order_2")
    assert (closed.obsolete, closed.summary) == (True, "Order 2: 0 looks")
    assert [hit.index for hit in ctx.find("order 2 looks")][:1] == [closed.page]
    assert ctx.check() == []
    ctx.undo(seq + 1)
    assert ids(ctx) == ["order_1", "order_2", "order_3"]
    assert ctx.windows.get("order_2").content == "Order 2: 0 looks\n"


def test_the_app_gives_the_summary_of_a_window_that_is_closed_for_another(ctx: Context) -> None:
    class Own(Orders):
        async def summary(self) -> str:
            return f"{self.order_id} was fine"

    class Fails(Orders):
        def summary(self) -> str:
            raise RuntimeError("no")

    for name, kind, summary in (("own", Own, "7 was fine"), ("fails", Fails, "")):
        ctx.windows.register(kind, name=name, most=1)
        first = ctx.windows.open(name, order_id=7)
        ctx.windows.open(name, order_id=8)
        assert ctx.windows.get(first.id).summary == summary


def test_other_apps_and_closed_windows_do_not_count(ctx: Context) -> None:
    ctx.windows.register(Orders, most=2)
    ctx.windows.register(Counter)
    ctx.windows.open("order", window_id="a")
    ctx.windows.open("order", window_id="b")
    ctx.windows.close("a")
    for _ in range(3):
        ctx.windows.open("counter")
    ctx.windows.open("order", window_id="c")
    assert ids(ctx) == ["b", "counter_3", "counter_4", "counter_5", "c"]


def test_a_limit_that_was_lowered_closes_the_surplus_at_the_next_opening(ctx: Context) -> None:
    ctx.windows.register(Orders)
    for number in range(5):
        ctx.windows.open("order", order_id=number)
    ctx.windows.register(Orders, most=2)
    assert len(ctx.windows) == 5
    ctx.windows.open("order", order_id=9)
    assert ids(ctx) == ["order_5", "order_6"]


def test_pinned_windows_are_not_closed(ctx: Context) -> None:
    ctx.windows.register(Orders, most=2)
    ctx.windows.open("order", window_id="a", pinned=True)
    ctx.windows.open("order", window_id="b")
    ctx.windows.open("order", window_id="c", pinned=True)
    assert ids(ctx) == ["a", "c"]
    seq = ctx.seq
    with pytest.raises(InvalidOperation, match="may have 2 open windows, and all of them are pinned") as caught:
        ctx.windows.open("order")
    assert [hint.page for hint in caught.value.hints] == ["win-1"]
    assert ctx.seq == seq
    assert ids(ctx) == ["a", "c"]


def test_the_window_with_the_same_value_is_shown_again(ctx: Context) -> None:
    ctx.windows.register(Orders, one_per="order_id", most=2)
    first = ctx.windows.open("order", order_id=7, note="from the list")
    ctx.windows.act(first.id, "look")
    ctx.windows.open("order", order_id=8)
    events: list[tuple[str, str]] = []
    ctx.windows.on(lambda event: events.append((event.kind, event.window)))
    again = ctx.windows.open("order", order_id=7.0, note="from a link")  # the value as the method gets it
    assert (again.id, again.content) == (first.id, "Order 7: 1 looks\nfrom the list")
    assert events == [("refreshed", first.id)]
    ctx.windows.open("order", order_id=9)  # 8 is the least recently used
    assert ids(ctx) == ["order_1", "order_3"]
    assert ctx.tools.call("window", {"do": "create", "id": "order", "arguments": {"order_id": 9}}) == "Opened order_3."
    default = ctx.windows.open("order")
    assert ctx.windows.open("order", order_id=1).id == default.id


def test_a_hidden_window_is_open_again_and_one_with_append_moves(ctx: Context) -> None:
    ctx.windows.register(Orders, one_per="order_id")
    first = ctx.windows.open("order", order_id=7, append=True)
    ctx.windows.open("order", order_id=8)
    ctx.pages.hide(first.page)
    ctx.windows.open("order", order_id=7)
    assert ids(ctx) == ["order_2", "order_1"]
    assert "Order 7" in ctx.render().tail[-1].messages[0].text
    seq = ctx.seq
    ctx.windows.open("order", order_id=8)
    ctx.windows.open("order", order_id=8)
    assert ctx.seq == seq + 1


def test_values_are_compared_after_a_restart_and_closed_windows_are_not_reused(ctx: Context) -> None:
    storage = quire.MemoryStorage()
    long = "x" * 100_000
    for _ in range(2):
        again = quire.open(storage, budget=8_000)
        again.windows.register(Orders, one_per="note")
        again.windows.open("order", note=long)
        again.windows.open("order", note="short")
        assert len(again.windows) == 2
    again.windows.close("order_1")
    assert again.windows.open("order", note=long).id == "order_3"


def test_another_id_for_the_same_value_is_refused(ctx: Context) -> None:
    ctx.windows.register(Orders, one_per="order_id")
    ctx.windows.open("order", order_id=7, window_id="seven")
    assert ctx.windows.open("order", order_id=7, window_id="seven").id == "seven"
    with pytest.raises(InvalidOperation, match="'seven' is open with order_id=7; it cannot get the id 'other'"):
        ctx.windows.open("order", order_id=7, window_id="other")


def test_threads_open_one_window(ctx: Context) -> None:
    ctx.windows.register(Orders, one_per="order_id")
    threads = [Thread(target=lambda: ctx.windows.open("order", order_id=7)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ctx.windows) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most": 0}, "most is 0; a whole number from 1 is needed."),
        ({"most": True}, "most is True; a whole number from 1 is needed."),
        ({"most": "5"}, "most is '5'; a whole number from 1 is needed."),
        ({"one_per": "order"}, "one_per is 'order'; one of order_id, note is needed."),
        ({"one_per": 5}, "one_per is 5; one of order_id, note is needed."),
    ],
)
def test_wrong_limits_name_what_is_accepted(ctx: Context, options: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        ctx.windows.register(Orders, **options)
    assert str(caught.value) == message
    assert "order" not in ctx.windows.apps()


def test_an_app_without_parameters_has_no_value(ctx: Context) -> None:
    class Plain(App):
        """Nothing to choose."""

    with pytest.raises(InvalidValue, match="one_per is 'x'; the app opens without parameters"):
        ctx.windows.register(Plain, one_per="x")
