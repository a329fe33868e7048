"""The last view that a model answered, as another process sees it."""

from pathlib import Path
from typing import Any

import quire
from quire import Context, View
from tests.windows.sample_apps import Counter

TOOL = {"type": "function", "function": {"name": "order_status", "description": "Status.", "parameters": {}}}


def opened(where: Any = "memory:", budget: int = 8_000, **options: Any) -> Context:
    """Return the context of a program with a window and notes to recall."""
    ctx = quire.open(where, "agent", budget=budget, **options)
    ctx.system("You are a support agent.")
    ctx.pages.create_detail_page("orders", "about HAT orders", "order HAT0 HAT1 HAT17 look. " * 60, "mem-0")
    ctx.pages.archive("mem-1")
    ctx.windows.register(Counter)
    ctx.windows.open("counter", padding=budget // 10)
    return ctx


def talk(ctx: Context, turns: int, **options: Any) -> View:
    """Run turns with a model that answers; return the last view."""
    for turn in range(turns):
        ctx.user(f"Question {turn}: where is order HAT{turn}? " + "Please look. " * 10)
        view = ctx.render(**options)
        ctx.assistant(f"Order HAT{turn} is on its way. " * 5)
    return view


def sent_view(ctx: Context) -> View:
    """Return the view that was sent; it is exact."""
    sent = ctx.last_sent()
    assert sent is not None
    assert sent.view is not None
    assert sent.is_exact
    assert sent.tokens == sent.view.tokens
    return sent.view


def test_another_process_sees_the_windows_recalled_pages_and_tools_that_were_sent(tmp_path: Path) -> None:
    ctx = opened(tmp_path / "agent.db")
    assert ctx.last_sent() is None
    talk(ctx, 3)
    ctx.windows.act("counter_1", "count")
    view = talk(ctx, 1, recall=0.3, tools=[TOOL], reserve=200)
    other = quire.open(tmp_path / "agent.db", "agent")  # it has no apps
    again, sent = sent_view(other), other.last_sent()
    assert again.openai() == view.openai()
    assert {"window", "recalled"} <= again.by_kind().keys()
    assert [one.index for one in again.recalled] == [one.index for one in view.recalled]
    assert sent is not None
    assert set(sent.tools) == {"order_status"}
    assert (sent.budget, sent.reserved) == (8_000, 200 + quire.count_tools([TOOL]))
    assert sent.reply == len(other.messages()) - 1


def test_every_view_of_a_long_talk_is_drawn_again_exactly() -> None:
    ctx = opened(budget=2_000)
    for turn in range(30):
        if turn % 7 == 3:
            ctx.windows.act("counter_1", "count")
        view = talk(ctx, 1, **({"recall": True} if turn % 2 else {}))
        assert sent_view(ctx).openai() == view.openai()
    assert list(ctx.history(operation="fold"))
    ctx.budget = 1_000
    ctx.user("Now fold.")
    assert ctx.render().fold
    assert sent_view(ctx).openai() == view.openai()


def test_a_fold_between_a_view_and_its_reply_changes_nothing_of_that_view() -> None:
    ctx = opened(budget=2_000)
    for turn in range(5):
        talk(ctx, 1, recall=bool(turn % 2))
    ctx.user("Now answer late.")
    view = ctx.render()
    ctx.budget = 1_000
    assert ctx.render().fold
    ctx.budget = 2_000
    ctx.assistant("Late.", view=view)
    assert sent_view(ctx).openai() == view.openai()


def test_what_was_removed_for_good_is_not_shown_again() -> None:
    ctx = opened()
    talk(ctx, 1, recall=0.3)
    ctx.pages.purge("mem-1")
    sent = ctx.last_sent()
    assert sent is None or sent.view is None or "HAT17" not in str(sent.view.openai())
    view = talk(ctx, 1)
    ctx.conversation.delete([2])
    ctx.conversation.cleanup()
    sent = ctx.last_sent()
    assert sent is not None
    assert (sent.view, sent.is_exact, sent.tokens) == (None, False, view.tokens)
