"""Windows in the tail of a view or inline: what breaks no prefix, their share, what gives way first, random use."""

import random
from typing import Any

import pytest

import quire
from quire import Context, View
from tests.seeds import SEED
from tests.view_laws.laws import check_shown
from tests.windows.sample_apps import frames, opened


def forms(view: View) -> dict[str, str]:
    """Return how each page is shown."""
    return {shown.index: shown.granularity for shown in view.pages}


def take_turn(ctx: Context, number: int, words: int = 120) -> None:
    ctx.user(f"question {number} " + "alpha beta gamma " * words)
    ctx.assistant(f"answer {number} " + "delta epsilon zeta " * words)


# The tail


def test_a_window_that_changes_stays_where_it_was_sent_and_breaks_no_prefix() -> None:
    ctx = opened()
    ctx.user("hello")
    ctx.windows.open("counter", padding=50)
    before, folds = ctx.render(), 0
    for number in range(40):
        ctx.assistant(f"answer {number}")
        ctx.windows.act("counter_1", "count")
        ctx.user(f"question {number} " + "please " * 50)
        view = ctx.render()
        (window,) = view.tail
        assert f"={number + 1}#" in window.messages[0].text
        assert frames(ctx)[-1] == window.messages[0].text
        if view.fold is None:
            assert view.shared_prefix == before.tokens  # the tail of the view before is in it
        else:
            folds += 1
            assert len(frames(ctx)) == 1  # the fold drops the earlier ones
        before = view
    assert folds


def test_a_tail_holds_only_what_changed_and_another_handle_draws_the_same() -> None:
    ctx = opened()
    ctx.user("hello")
    ctx.windows.open("counter")
    (window,) = ctx.render().tail
    reply = ctx.assistant("I see it.")
    ctx.user("go on")
    view = ctx.render()
    assert view.tail == ()
    assert frames(ctx) == [window.messages[0].text] == ctx.conversation.prelude(reply)
    assert ctx.why("win-1").shown == "whole"
    other = quire.open(ctx.pages.storage, budget=8_000)  # it has no apps
    assert other.render(preview=True).openai() == view.openai()
    ctx.windows.close("counter_1")
    (closed,) = ctx.render().tail
    assert 'closed="true"' in closed.messages[0].text
    ctx.assistant("It is closed.")
    ctx.user("good")
    assert ctx.render().tail == ()


# Shares


def test_sixty_windows_leave_three_quarters_of_the_view() -> None:
    ctx = opened()
    for _ in range(60):
        ctx.windows.open("counter", padding=60)
    for number in range(25):
        take_turn(ctx, number, 30)
        view = ctx.render()
        check_shown(ctx, view, 8_000)
        assert view.by_kind()["window"] <= 2_000
    shown = [forms(view)[f"win-{number}"] for number in range(1, 61)]
    assert shown == sorted(shown)  # lines, then whole ones: the last opened
    assert 0 < shown.count("whole") < 60
    assert "counter_1" in ctx.tools.call("read_page", {"page": "win-0"})
    ctx.tools.call("expand_details", {"page": "win-1"})
    ctx.windows.act("counter_2", "count")
    ctx.windows.refresh("counter_3")
    assert [forms(ctx.render())[f"win-{number}"] for number in (1, 2, 3)] == ["whole"] * 3
    assert ctx.render(windows="inline").by_kind()["window"] <= 2_000


def test_a_capacity_replaces_the_share_and_one_large_window_is_clipped_to_it() -> None:
    ctx = opened()
    ctx.windows.open("counter", padding=3_000)
    view = ctx.render()
    assert forms(view)["win-1"] == "clipped"
    assert view.by_kind()["window"] <= 2_000
    for _ in range(9):
        ctx.windows.open("counter", padding=300)
    for capacity in (5_000, 600):
        ctx.pages.update_segment("win", max_capacity=capacity)
        assert ctx.render().by_kind()["window"] <= capacity


def crowded(budget: int) -> Context:
    """Return old exchanges, three kinds of windows that may go, a pinned one, three last turns, and a question."""
    ctx = opened(budget=budget)
    ctx.pages.update_segment("win", max_capacity=budget)
    ctx.system("Prompt.")
    for number in range(12):
        take_turn(ctx, number, 25)
    for name in ("gone", "plain", "important", "pinned"):
        options: dict[str, Any] = {name: True} if name in ("important", "pinned") else {}
        ctx.windows.open("counter", window_id=name, padding=150, **options)
    ctx.windows.close("gone", "obsolete " * 50)
    for number in range(3):
        ctx.user(f"last question {number}")
        ctx.assistant(f"last answer {number}")
    ctx.user("now")
    return ctx


def kept(ctx: Context) -> list[bool]:
    """Return whether these are all whole: the obsolete window, old exchanges, windows, the last two turns."""
    view = ctx.render(include_obsolete=True)
    check_shown(ctx, view, ctx.budget)
    shown = forms(view)
    assert shown["win-4"] != "line"  # it is pinned
    assert "Prompt." in [message.text for message in view.messages]
    pages = [shown.get(str(ctx.conversation.page_of(message.index))) == "whole" for message in ctx.messages()][1:]
    gone = any('id="gone"' in message.text for message in view.messages)
    return [gone, all(pages[:24]), shown.get("win-2") == "whole", shown.get("win-3") == "whole", all(pages[26:])]


def test_what_goes_first_when_space_is_short() -> None:
    """Obsolete windows, old exchanges, unimportant windows, important ones, the last turns."""
    found = [kept(crowded(budget)) for budget in (6_000, 4_000, 2_000, 1_500, 1_200, 900, 700)]
    assert all(row == sorted(row) for row in found), found
    assert [sum(row) for row in found] == sorted((sum(row) for row in found), reverse=True)
    assert (found[0], any(found[-1][:3])) == ([True] * 5, False)


def test_any_order_of_use_shows_the_open_windows_once_and_as_they_are(request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    for number in range(100 if long else 2):
        walk(random.Random(SEED + number), 60 if long else 30)


def walk(chance: random.Random, steps: int) -> None:
    """Do random things with windows and draw a view after each: it has the open ones, if there is room all of them."""
    ctx, counts, places = opened(budget=1_600), dict[str, int](), list[str]()
    for step in range(steps):
        what, window = chance.choice(("open", "act", "renew", "refresh", "close", "say")), chance.choice(places or [""])
        if what == "open":
            window = ctx.windows.open("counter", padding=chance.choice((0, 20, 200)), append=chance.random() < 0.5).id
            counts[window] = 0
            places.append(window)
        elif what == "say":
            ctx.user(f"question {step} " + "please " * chance.choice((5, 60, 400)))
            ctx.assistant("answer " * chance.choice((5, 60)))
        elif window:
            appends = ctx.windows.get(window).append
            getattr(ctx.windows, what)(window) if what in ("refresh", "close") else ctx.windows.act(
                window, "count" if what == "act" else what
            )
            counts[window] += what in ("act", "renew")
            if what == "close" or (appends and what in ("renew", "refresh")):
                places.remove(window)
            if appends and what in ("renew", "refresh"):
                places.append(window)
        check_shown(ctx, ctx.render(), 1_600)
        texts = frames(ctx, max_tokens=1_000_000, windows="inline")
        assert [text.partition("#")[2].partition("#")[0] for text in texts] == [f"{w}={counts[w]}" for w in places]
    assert ctx.check() == []
