"""An agent's change keeps the prefix until the next fold; a developer's change appears at once."""

from collections.abc import Callable

import pytest

import quire
from quire import Context, View
from tests.view_laws.laws import check_shown


def small_context() -> Context:
    ctx = quire.open("memory:", budget=2_000)
    ctx.system("Prompt.")
    ctx.pages.create_detail_page("Seat", "By the window", "He wants a seat by the window.", "mem-0")
    for turn in range(6):
        ctx.user(f"Question {turn}")
        ctx.assistant(f"Answer {turn}")
    ctx.pages.hide("usr-3")
    ctx.render()
    return ctx


def view_of_another_handle(ctx: Context) -> View:
    return quire.open(ctx.pages.storage, ctx.name).render(preview=True)


def fold(ctx: Context) -> View:
    ctx.user("And now? " + "word " * 1_900)
    view = ctx.render()
    assert view.fold is not None
    return view


CHANGES: dict[str, Callable[[Context], object]] = {
    "hide": lambda ctx: ctx.agent.hide_details("mem-1"),
    "archive": lambda ctx: ctx.agent.archive("mem-1"),
    "write": lambda ctx: ctx.agent.create_detail_page("Meal", "No fish", "He eats no fish.", "mem-0"),
    "edit": lambda ctx: ctx.agent.update_page("mem-1", name="Seating"),
    "move": lambda ctx: ctx.agent.move_page("mem-1", "win-0"),
    "remove": lambda ctx: ctx.agent.remove_page("mem-1"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_agents_change_waits_for_the_next_fold_and_a_rollback_forgets_it(what: str) -> None:
    ctx = small_context()
    before, seq = ctx.render(), ctx.seq
    CHANGES[what](ctx)
    ctx.rollback(seq)
    assert ctx.render().openai() == before.openai()
    CHANGES[what](ctx)
    after = ctx.render()
    assert after.shared_prefix == before.tokens
    assert (after.tokens > before.tokens) == (what == "write")  # a new page of an agent stands at the end
    assert view_of_another_handle(ctx).openai() == after.openai()
    view = fold(ctx)
    check_shown(ctx, view, 2_000)
    fresh = ctx.fork("other").render()
    assert [page.index for page in fresh.pages] == [page.index for page in view.pages]
    assert ctx.check() == []


def test_an_opened_page_stands_once_after_the_exchange_that_opened_it() -> None:
    ctx = small_context()
    before = ctx.render().openai()
    ctx.agent.expand_details("usr-3")
    opened = ctx.render()
    assert opened.openai()[:-1] == before
    assert "Question 1" in opened.openai()[-1]["content"]
    ctx.assistant("I see.")
    ctx.user("Go on.")
    later = ctx.render()
    assert later.openai()[: len(before) + 1] == opened.openai()
    assert view_of_another_handle(ctx).openai() == later.openai()
    assert ctx.why("usr-3").shown == "whole"
    assert str(later.openai()).count("User: Question 1") == 1
    check_shown(ctx, later, 2_000)
    check_shown(ctx, fold(ctx), 2_000)


EDITS: dict[str, Callable[[Context, str], object]] = {
    "changed": lambda ctx, page: ctx.pages.set_detail(page, "In the hills."),
    "removed": lambda ctx, page: ctx.pages.remove_page(page),
    "archived": lambda ctx, page: ctx.pages.archive(page, cold=True),
    "purged": lambda ctx, page: ctx.pages.purge(page),
}


@pytest.mark.parametrize("how", EDITS)
@pytest.mark.parametrize("is_opened", [True, False])
def test_a_developers_change_shows_at_once(how: str, is_opened: bool) -> None:
    ctx = small_context()
    folder = ctx.pages.create_contents_page("Trip", "", "mem-0")
    page = ctx.pages.create_detail_page("Hotel", "", "By the sea.", folder)
    if is_opened:
        ctx.pages.hide(folder)
        ctx.render()
        ctx.agent.expand_details(folder)
    assert "By the sea." in str(ctx.render().openai())
    EDITS[how](ctx, page)
    view = ctx.render()
    assert "By the sea." not in str(view.openai())
    assert view_of_another_handle(ctx).openai() == view.openai()
