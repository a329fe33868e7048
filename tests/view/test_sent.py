"""The last view that a model answered, as another process sees it."""

from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Context
from tests.windows.sample_apps import Counter

TOOL = {"type": "function", "function": {"name": "order_status", "description": "Status.", "parameters": {}}}


def talk(ctx: Context, turns: int, **options: Any) -> quire.View:
    """Run turns with a model that answers; return the last view."""
    view = None
    for turn in range(turns):
        ctx.user(f"Question {turn}: where is order HAT{turn}? " + "Please look. " * 10)
        view = ctx.render(**options)
        ctx.assistant(f"Order HAT{turn} is on its way. " * 5)
    assert view is not None
    return view


def agent(where: Any, **options: Any) -> Context:
    """Return the context of a program with a window and notes to recall."""
    ctx = quire.open(where, "agent", budget=8_000, **options)
    ctx.system("You are a support agent.")
    ctx.pages.create_detail_page("orders", "about HAT orders", "order HAT0 HAT1 HAT17 look. " * 60, "mem-0")
    ctx.pages.archive("mem-1")
    ctx.windows.register(Counter)
    ctx.windows.open("counter", padding=1_200)
    return ctx


def texts(view: quire.View) -> list[str]:
    return [message.text for message in view.messages]


def test_another_process_sees_the_windows_recalled_pages_and_tools_that_were_sent(tmp_path: Path) -> None:
    ctx = agent(tmp_path / "agent.db")
    talk(ctx, 3)
    ctx.windows.act("counter_1", "count")
    view = talk(ctx, 1, recall=0.3, tools=[TOOL], reserve=200)
    other = quire.open(tmp_path / "agent.db", "agent")  # it has no apps
    now = other.render(preview=True)
    sent = other.last_sent()
    assert sent is not None
    assert sent.view is not None
    assert sent.tokens == sent.view.tokens == view.tokens
    assert sent.is_exact
    assert texts(sent.view) == texts(view)
    assert sent.view.openai() == view.openai()
    assert sent.view.by_kind() == view.by_kind()
    assert {"window", "recalled"} <= sent.view.by_kind().keys()
    assert [(one.index, one.score, one.reason) for one in sent.view.recalled] == [
        (one.index, one.score, one.reason) for one in view.recalled
    ]
    assert sent.tools == {"order_status": quire.count_tools([TOOL]) - 12}
    assert (sent.budget, sent.reserved) == (8_000, 200 + quire.count_tools([TOOL]))
    assert sent.reply is not None
    assert other.messages()[sent.reply].role == "assistant"
    assert now.tokens != view.tokens


def test_a_plain_view_needs_no_tail() -> None:
    ctx = quire.open("memory:", budget=4_000)
    assert ctx.last_sent() is None
    view = talk(ctx, 4)
    ctx.user("One more.")
    sent = ctx.last_sent()
    assert sent is not None
    assert sent.view is not None
    assert sent.is_exact
    assert texts(sent.view) == texts(view)
    assert sent.tools == {}


def test_a_fold_after_the_view_does_not_change_what_was_sent() -> None:
    ctx = agent("memory:")
    view = talk(ctx, 2, recall=0.3)
    before = ctx.last_sent()
    assert before is not None
    assert before.is_exact
    ctx.budget = 2_000
    ctx.user("Now fold.")
    assert ctx.render().fold
    sent = ctx.last_sent()
    assert sent is not None
    assert sent.view is not None
    assert sent.is_exact
    assert texts(sent.view) == texts(view)


def test_every_view_of_a_long_talk_is_drawn_again_exactly() -> None:
    ctx = agent("memory:")
    ctx.budget = 2_000
    for turn in range(40):
        if turn % 7 == 3:
            ctx.windows.act("counter_1", "count")
        view = talk(ctx, 1, **({"recall": True} if turn % 2 else {}), **({"tools": [TOOL]} if turn > 20 else {}))
        sent = ctx.last_sent()
        assert sent is not None
        assert sent.view is not None
        assert (turn, sent.view.tokens, texts(sent.view)) == (turn, view.tokens, texts(view))
        assert set(sent.tools) == ({"order_status"} if turn > 20 else set())
    assert list(ctx.history(operation="fold"))


def test_a_view_of_a_handle_with_another_preamble_is_not_exact(tmp_path: Path) -> None:
    ctx = quire.open(tmp_path / "agent.db", "agent", budget=4_000, preamble="")
    view = talk(ctx, 2)
    sent = quire.open(tmp_path / "agent.db", "agent").last_sent()
    assert sent is not None
    assert sent.view is not None
    assert sent.tokens == view.tokens < sent.view.tokens
    assert not sent.is_exact


def test_figures_stay_when_the_journal_ends_after_the_view() -> None:
    ctx = quire.open("memory:", budget=4_000)
    view = talk(ctx, 2)
    ctx.conversation.delete([0])
    ctx.conversation.cleanup()
    sent = ctx.last_sent()
    assert sent is not None
    assert (sent.view, sent.is_exact, sent.tokens) == (None, False, view.tokens)


def test_a_purged_page_is_not_shown_again() -> None:
    ctx = agent("memory:")
    talk(ctx, 1, recall=0.3)
    ctx.pages.purge("mem-1")
    sent = ctx.last_sent()
    assert sent is not None
    assert sent.view is None or "HAT17" not in "".join(texts(sent.view))


def test_a_fork_and_a_store_of_an_older_version_have_figures_or_nothing() -> None:
    ctx = quire.open("memory:", budget=4_000)
    view = talk(ctx, 2)
    sent = ctx.fork("copy").last_sent()
    assert sent is not None
    assert sent.tokens == view.tokens


@pytest.mark.asyncio
async def test_the_async_context_has_it_too() -> None:
    async with quire.aio.open("memory:", budget=4_000) as ctx:
        await ctx.user("Hello")
        view = await ctx.render()
        await ctx.assistant("Hi.")
        sent = await ctx.last_sent()
        assert sent is not None
        assert sent.tokens == view.tokens


def test_recalled_pages_of_a_sent_view_are_new_if_they_were_recalled_for_its_message() -> None:
    ctx = quire.open("memory:", budget=900)
    for number in range(60):
        ctx.user(f"I booked flight HAT{number} to city{number} for person{number}.")
        ctx.render()
        ctx.assistant(f"Confirmed Q{number}.")
    for number in (7, 30):
        ctx.user(f"Where does flight HAT{number} go?")
        recalled = ctx.render(recall=0.2).recalled
        ctx.assistant("Answer.")
        sent = ctx.last_sent()
        assert sent is not None
        assert sent.view is not None
        assert any(page.is_new for page in recalled)
        assert [(page.index, page.is_new) for page in sent.view.recalled] == [(p.index, p.is_new) for p in recalled]
