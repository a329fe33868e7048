"""Apps with a limit of open windows (`most`) or with one window for each value of a parameter (`one_per`)."""

from typing import Any

import pytest

import quire
from quire import App, Context, InvalidOperation, action
from tests.windows.sample_apps import Counter


class Orders(App):
    """Shows one order."""

    name = "order"

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

    def save(self) -> list[Any]:
        return [self.order_id, self.note, self.looks]

    def restore(self, saved: Any) -> None:
        self.order_id, self.note, self.looks = saved


@pytest.fixture
def ctx() -> Context:
    return quire.open("memory:", budget=8_000)


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
    closed = ctx.windows.get("order_2")
    assert (closed.obsolete, closed.summary) == (True, "Order 2: 0 looks")
    assert [hit.index for hit in ctx.find("order 2 looks")][:1] == [closed.page]
    assert ctx.check() == []
    ctx.undo(seq + 1)
    assert ids(ctx) == ["order_1", "order_2", "order_3"]


def test_only_open_windows_of_the_app_count_and_pinned_ones_stay(ctx: Context) -> None:
    ctx.windows.register(Orders)
    ctx.windows.register(Counter)
    ctx.windows.open("order", window_id="a", pinned=True)
    ctx.windows.open("counter", window_id="b")
    for window in ("c", "d", "e"):
        ctx.windows.open("order", window_id=window)
    ctx.windows.close("c")
    ctx.windows.register(Orders, most=2)
    assert ids(ctx) == ["a", "b", "d", "e"]  # the limit holds from the next opening on
    ctx.windows.open("order", window_id="f", pinned=True)
    assert ids(ctx) == ["a", "b", "f"]
    seq = ctx.seq
    with pytest.raises(InvalidOperation) as caught:
        ctx.windows.open("order")
    assert [hint.page for hint in caught.value.hints] == ["win-1"]
    assert (ctx.seq, ids(ctx)) == (seq, ["a", "b", "f"])


def test_the_window_with_the_same_value_is_shown_again(ctx: Context) -> None:
    ctx.windows.register(Orders, one_per="order_id", most=2)
    first = ctx.windows.open("order", order_id=7, note="from the list")
    ctx.windows.act(first.id, "look")
    ctx.windows.open("order", order_id=8)
    ctx.pages.hide(first.page)
    again = ctx.windows.open("order", order_id=7.0, note="from a link")  # the value as the method gets it
    assert (again.id, again.content) == (first.id, "Order 7: 1 looks\nfrom the list")
    assert "from the list" in str(ctx.render().openai())
    ctx.windows.open("order", order_id=9)  # 8 is the least recently used
    assert ids(ctx) == ["order_1", "order_3"]
    assert ctx.tools.call("window", {"do": "create", "id": "order", "arguments": {"order_id": 9}}) == "Opened order_3."
    assert ctx.windows.open("order").id == ctx.windows.open("order", order_id=1).id
    with pytest.raises(InvalidOperation):
        ctx.windows.open("order", order_id=1, window_id="other")
