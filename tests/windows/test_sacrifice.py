"""The order in which a view gives way: old exchanges, windows, the last three turns; and the share of windows."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import App, CompressionConfig, Context, View
from tests.marks import broad
from tests.view_laws.laws import Forms, check_legality, check_size
from tests.windows.sample_apps import Counter


def opened(where: Any = "memory:", budget: int | None = 8_000, **options: Any) -> Context:
    ctx = quire.open(where, budget=budget, key="kestrel", **options)
    ctx.windows.register(Counter)
    return ctx


def forms(view: View) -> dict[str, str]:
    """Return how each page is shown."""
    return {shown.index: shown.granularity for shown in view.pages}


def last_turns(ctx: Context, turns: int = 3) -> list[str]:
    """Return the pages of the last turns that fit half the budget."""
    pages: list[str] = []
    tokens = 0
    for message in reversed(list(ctx.messages())):
        page = ctx.conversation.page_of(message.index)
        assert page is not None
        tokens += ctx.pages.get_page(page).tokens
        if tokens > ctx.budget // 2 or not turns:
            break
        pages.append(page)
        turns -= message.role == "user"
    return pages


def take_turn(ctx: Context, n: int, words: int = 120) -> None:
    ctx.user(f"question {n} " + "alpha beta gamma " * words)
    ctx.assistant(f"answer {n} " + "delta epsilon zeta " * words)


def check(ctx: Context, view: View) -> None:
    check_size(view, Forms(view), ctx.budget)
    check_legality(Forms(view))


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(("words", "padding"), [(60, 300), (120, 300), (120, 1_500), (200, 500), (400, 100)])
def test_no_window_is_whole_while_one_of_the_last_turns_is_folded(words: int, padding: int, enabled: bool) -> None:
    ctx = opened(compression=CompressionConfig(enabled=enabled))
    ctx.windows.open("counter", padding=padding)
    ctx.windows.open("counter", padding=100, important=True)
    folds = 0
    for n in range(40 if enabled else 8_000 // (6 * words) + 4):
        take_turn(ctx, n, words)
        if not enabled and n < 8_000 // (6 * words) - 3:
            continue
        view = ctx.render()
        check(ctx, view)
        shown = forms(view)
        is_folded = any(shown.get(page) != "whole" for page in last_turns(ctx))
        is_open = any(shown[page] != "line" for page in ("win-1", "win-2"))
        if enabled and view.fold is None:
            continue
        assert not (is_folded and is_open), n
        assert shown["win-1"] == "line" or shown["win-2"] != "line"  # the unimportant one first
        folds += "folded" in view.by_kind()
    assert folds >= 2


def test_windows_stay_lines_until_the_next_fold_in_every_process(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    ctx = opened(store)
    ctx.windows.open("counter", padding=500)
    n = 0
    while (view := ctx.render()).fold is None:
        take_turn(ctx, n)
        n += 1
    assert forms(view)["win-1"] == "line"
    assert '<Window id="counter_1" key="kestrel">A counter [… not shown: expand_details("win-1") …]</Window>' in [
        message.text for message in view.messages
    ]
    why = ctx.why("win-1")
    assert (why.shown, why.call) == ("line", "expand('win-1')")
    assert f"one line since the fold of entry {ctx.seq}" in why.rule
    for _ in range(3):
        take_turn(ctx, n)
        n += 1
        view = ctx.render()
        assert view.fold is None
        assert forms(view)["win-1"] == "line"
        other = opened(store, budget=None)
        assert other.render(preview=True).openai() == view.openai()
        assert other.render().openai() == view.openai()
        other.close()
        ctx.refresh()
    assert forms(ctx.render(max_tokens=30_000))["win-1"] == "whole"


@pytest.mark.parametrize("how", ["act", "refresh", "expand", "expand_details"])
def test_a_window_that_is_used_is_whole_again(how: str) -> None:
    ctx = opened()
    ctx.windows.open("counter", padding=500)
    n = 0
    while ctx.render().fold is None:
        take_turn(ctx, n)
        n += 1
    assert forms(ctx.render())["win-1"] == "line"
    uses: dict[str, Callable[[], object]] = {
        "act": lambda: ctx.windows.act("counter_1", "count"),
        "refresh": lambda: ctx.windows.refresh("counter_1"),
        "expand": lambda: ctx.pages.expand("win-1"),
        "expand_details": lambda: ctx.tools.call("expand_details", {"page": "win-1"}),
    }
    uses[how]()
    assert forms(ctx.render())["win-1"] == "whole"
    seq = ctx.seq
    if how != "act":
        uses[how]()
        assert ctx.seq == seq  # it is the window used last already
    assert ctx.check() == []


def test_a_turn_with_windows_writes_no_more_than_without() -> None:
    """A fold that would save little is not made: windows give way for that view alone, and nothing is written."""
    ctx = opened(budget=1_500)
    ctx.windows.open("counter", padding=200)
    for n in range(30):
        ctx.user(f"question {n} " + "alpha " * 60)
        seq = ctx.seq
        view = ctx.render()
        check(ctx, view)
        assert ctx.seq - seq == (view.fold is not None)
        ctx.assistant("yes")


# The share of windows


def test_sixty_windows_leave_three_quarters_of_the_view() -> None:
    ctx = opened()
    for _ in range(60):
        ctx.windows.open("counter", padding=60)
    for n in range(40):
        take_turn(ctx, n, 30)
        view = ctx.render()
        check(ctx, view)
        assert view.by_kind()["window"] <= 2_000
    assert view.by_kind()["exchange"] > 1_500
    texts = [part.messages[0].text for part in view.parts if part.kind == "window"]
    more = next(text for text in texts if " more windows" in text)
    assert more.startswith("[kestrel] ")
    assert 'read_page("win-0") lists them, expand_details(page) opens one.' in more
    assert "counter_1 (win-1) … " in more
    shown = [forms(view)[f"win-{n}"] for n in range(1, 61)]
    assert shown == sorted(shown)  # lines, then whole ones: the last opened
    assert shown.count("whole") >= 8
    assert (ctx.why("win-1").shown, ctx.why("win-60").shown) == ("line", "whole")
    assert "were used later have the room first" in ctx.why("win-1").rule
    assert "[win-1 0] counter_1: A counter" in ctx.tools.call("read_page", {"page": "win-0"})
    ctx.tools.call("expand_details", {"page": "win-1"})
    assert forms(ctx.render())["win-1"] == "whole"
    assert forms(ctx.render())["win-60"] == "whole"


def test_least_recently_used_is_by_opening_action_refresh_and_change() -> None:
    ctx = opened()
    for _ in range(12):
        ctx.windows.open("counter", padding=300)
    assert forms(ctx.render())["win-1"] == "line"
    ctx.windows.act("counter_1", "count")
    ctx.windows.refresh("counter_2")
    ctx.pages.update_page("win-3", description="The third")
    shown = forms(ctx.render())
    assert [shown[f"win-{n}"] for n in (1, 2, 3)] == ["whole"] * 3
    assert [n for n in range(4, 13) if shown[f"win-{n}"] == "whole"] == [12]


def test_a_capacity_replaces_the_share() -> None:
    ctx = opened()
    for _ in range(10):
        ctx.windows.open("counter", padding=300)
    assert ctx.render().by_kind()["window"] <= 2_000
    ctx.pages.update_segment("win", max_capacity=5_000)
    assert 3_000 < ctx.render().by_kind()["window"] <= 5_000
    ctx.pages.update_segment("win", max_capacity=600)
    assert ctx.render().by_kind()["window"] <= 600
    ctx.pages.create_detail_page("Note", "", "about all windows " * 100, "win-0")
    assert ctx.render().by_kind()["window"] <= 300  # the capacity counts everything in the segment


def test_one_large_window_is_clipped_to_the_share() -> None:
    ctx = opened()
    ctx.windows.open("counter", padding=3_000)
    view = ctx.render()
    assert forms(view)["win-1"] == "clipped"
    assert 1_600 < view.by_kind()["window"] <= 2_000


def test_inline_windows_have_the_same_share() -> None:
    ctx = opened()
    for n in range(30):
        take_turn(ctx, n, 5)
        ctx.windows.open("counter", padding=200)
    view = ctx.render(windows="inline")
    check(ctx, view)
    assert view.by_kind()["window"] <= 2_000
    assert len([part for part in view.parts if len(part.pages) > 1 and part.kind == "window"]) == 1


@pytest.mark.parametrize("seed", [0, 1, *broad(2, 3)])
def test_the_order_holds_while_tails_stay_before_their_replies(tmp_path: Path, seed: int) -> None:
    """A model answers every view, windows change and are opened; another process draws the same bytes."""
    chance = random.Random(seed)
    ctx = opened(tmp_path / "agent.db", budget=4_000)
    ctx.windows.register(Counter, name="limited", most=3)
    folds = 0
    for n in range(40):
        ctx.user(f"question {n} " + "alpha beta gamma " * chance.choice((10, 40, 90)))
        for _ in range(chance.randint(1, 3)):
            view = ctx.render()
            check(ctx, view)
            tail = [part for part in view.tail if part.kind == "window"]
            assert sum(part.tokens for part in tail) <= ctx.budget // 4
            if view.fold is not None:
                folds += 1
                shown = forms(view)
                is_folded = any(shown.get(page) != "whole" for page in last_turns(ctx))
                is_open = any(page.granularity != "line" for part in tail for page in part.pages)
                assert not (is_folded and is_open), (seed, n)
            if chance.random() < 0.1:
                with opened(tmp_path / "agent.db", budget=None) as other:
                    other.windows.register(Counter, name="limited", most=3)
                    assert other.render().openai() == view.openai(), (seed, n)
            ctx.assistant(f"step {n} " + "delta epsilon " * chance.choice((5, 60)))
            open_ids = [window.id for window in ctx.windows.list()]
            if open_ids and chance.random() < 0.5:
                ctx.windows.act(chance.choice(open_ids), "count")
            if len(open_ids) < 9 and chance.random() < 0.4:
                ctx.windows.open(chance.choice(("counter", "limited")), padding=chance.choice((20, 150, 600)))
    assert folds > 3
    assert ctx.check() == []


def test_the_last_used_window_is_whole_if_it_fits_with_the_line_of_all_others() -> None:
    ctx = quire.open("memory:", budget=600)
    ctx.windows.register(Order)
    ctx.user("Hello")
    for number in range(60):
        ctx.windows.open("order", order_id=number)
    view = ctx.render()
    assert view.by_kind()["window"] <= 150
    assert ctx.why("win-60").shown == "whole"
    assert "Order 59" in str(view.openai())
    assert ctx.tools.call("read_page", {"page": "win-0"}).startswith("[win-1…win-32 32p] order_1 … order_32")
    ctx.budget = 2_000
    ctx.render()
    ctx.tools.call("expand_details", {"page": "win-3"})
    ctx.render()
    why = ctx.why("win-3")
    assert (why.shown, why.call) == ("whole", "windows.close('order_3')")
    assert why.rule == "an open window: whole in the last view"
    close = {"do": "close", "id": "order_3"}
    assert ctx.tools.call("window", close) == "Closed order_3."
    assert ctx.tools.call("window", close) == "order_3 is closed already."


class Order(App):
    """An order with a little text."""

    name = "order"

    def open(self, order_id: int) -> None:
        self.order_id = order_id

    def content(self) -> str:
        return f"Order {self.order_id}: paid, " + "shipped soon " * 5
