"""What a view costs with the prompt cache, what broke its prefix, and how it differs from another view."""

from collections.abc import Callable

import pytest

import quire
from quire import Context, Price
from tests.books import WordCounter


def talking(budget: int = 100_000) -> Context:
    ctx = quire.open("memory:", budget=budget, counter=WordCounter())
    ctx.system("你要小心。")
    for turn in range(4):
        ctx.user(f"Question {turn}")
        ctx.assistant(f"Answer {turn}")
    return ctx


def test_the_first_view_is_paid_in_full() -> None:
    view = talking().render()
    plain, marked = view.bill(), view.bill(marked=True)
    assert (plain.read, plain.written, plain.plain, plain.cost) == (0, 0, view.tokens, view.tokens)
    assert (marked.read, marked.written, marked.plain) == (0, view.tokens, 0)
    assert marked.cost == pytest.approx(1.25 * view.tokens)


def test_later_views_are_read_from_the_cache() -> None:
    ctx = talking()
    before = ctx.render()
    same = ctx.render()
    assert same.shared_prefix == same.tokens
    assert same.bill().cost == same.cost() == pytest.approx(0.1 * same.tokens)
    ctx.user("One more")
    ctx.assistant("Yes")
    view = ctx.render()
    bill = view.bill(Price(read=0.5, write=2.0), marked=True)
    assert (bill.read, bill.written, bill.plain) == (before.tokens, view.tokens - before.tokens, 0)
    assert bill.cost == pytest.approx(0.5 * bill.read + 2.0 * bill.written)


EDITS: tuple[tuple[str, Callable[[Context], object]], ...] = (
    ("usr-3", lambda ctx: ctx.pages.hide("usr-3")),
    ("usr-3", lambda ctx: ctx.pages.expand("usr-3")),
    ("usr-2", lambda ctx: ctx.pages.archive("usr-2")),
    ("usr-2", lambda ctx: ctx.pages.restore("usr-2")),
    ("usr-3", lambda ctx: ctx.conversation.replace(3, {"role": "user", "content": "Question one, in other words"})),
    ("usr-5", lambda ctx: ctx.pages.move_page("usr-5", "usr-0", before="usr-1")),
    ("sys-", lambda ctx: ctx.system("你要大胆。")),
    ("mem-1", lambda ctx: ctx.pages.create_detail_page("Note", "", "eins", "mem-0")),
    ("mem-1", lambda ctx: ctx.pages.set_detail("mem-1", "zwei und noch viel mehr")),
)


def test_the_page_that_broke_the_prefix_is_named() -> None:
    ctx = talking()
    for page, edit in EDITS:
        before = ctx.render()
        edit(ctx)
        view = ctx.render()
        assert view.shared_prefix < before.tokens, page
        assert page in view.bill().why


def test_two_views_are_compared_page_by_page() -> None:
    ctx = talking()
    before = ctx.render()
    ctx.user("More")
    ctx.pages.hide("usr-1")
    after = ctx.render()
    assert {change.page for change in after.diff(before)} == {"usr-1", "usr-9"}
    assert {change.page for change in before.diff(after)} == {"usr-1", "usr-9"}
    assert list(after.diff(after)) == []
