"""The cost of a view with the prompt cache, and the cause of a changed prefix."""

import pytest

import quire
from quire import Price
from quire.view.cost import Bill


def talking(budget: int = 100_000) -> quire.Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("你要小心。")
    for turn in range(4):
        ctx.user(f"Question {turn}")
        ctx.assistant(f"Answer {turn}")
    return ctx


def why(ctx: quire.Context) -> str:
    return ctx.render().bill().why


def test_the_first_view_is_paid_in_full() -> None:
    view = talking().render()
    tokens = view.tokens
    first = "It is the first view: there was none to share a beginning with."
    assert view.bill() == Bill(read=0, written=0, plain=tokens, cost=tokens, why=first)
    assert view.bill(marked=True) == Bill(read=0, written=tokens, plain=0, cost=1.25 * tokens, why=first)


def test_later_views_are_read_from_the_cache() -> None:
    ctx = talking()
    before = ctx.render()
    same = ctx.render()
    assert same.bill().why == "Nothing changed."
    assert same.bill().cost == pytest.approx(0.1 * same.tokens)
    ctx.user("One more")
    ctx.assistant("Yes")
    view = ctx.render()
    bill = view.bill(Price(read=0.5, write=2.0), marked=True)
    assert (bill.read, bill.written, bill.plain) == (before.tokens, view.tokens - before.tokens, 0)
    assert bill.cost == pytest.approx(0.5 * bill.read + 2.0 * bill.written)
    assert bill.why == "Only 2 new messages at the end."
    assert view.cost() == view.bill().cost


def test_the_page_that_broke_the_prefix_is_named() -> None:
    ctx = talking()
    ctx.render()
    ctx.pages.hide("usr-3")
    assert why(ctx) == "Page usr-3 was hidden: it is one line now."
    ctx.pages.expand("usr-3")
    assert why(ctx) == "Page usr-3 was opened."
    ctx.pages.archive("usr-2")
    assert why(ctx) == "Page usr-2 is gone from the view."
    ctx.pages.restore("usr-2")
    assert why(ctx) == "Page usr-2 was inserted before earlier content."
    ctx.conversation.replace(3, {"role": "user", "content": "Question one, in other words"})
    assert why(ctx).startswith("Page usr-3")
    ctx.pages.move_page("usr-2", "usr-0")
    assert why(ctx) == "Page usr-2 moved."
    ctx.pages.move_page("usr-5", "usr-0", before="usr-1")
    assert why(ctx) == "Page usr-5 moved."
    ctx.system("你要大胆。")
    assert why(ctx).startswith("Page sys-")
    ctx.conversation.delete(2)
    assert why(ctx) == "Page usr-2 is gone from the end."


def test_a_note_that_changes_is_named() -> None:
    ctx = talking()
    first = ctx.pages.create_detail_page("First", "", "eins", "mem-0")
    second = ctx.pages.create_detail_page("Second", "", "zwei", "mem-0")
    ctx.render()
    ctx.pages.set_detail(second, "zwei und noch viel mehr")
    assert why(ctx) == f"Page {second} changed."
    ctx.pages.hide(first)
    assert why(ctx) == f"Page {first} was hidden: it is one line now."


def test_a_fold_is_the_reason_of_its_view_and_of_no_other() -> None:
    ctx = quire.open("memory:", budget=800)
    reasons = []
    for turn in range(30):
        ctx.user(f"Question {turn} " + "word " * 20)
        view = ctx.render()
        reasons.append(view.bill().why)
        assert (view.fold is not None) == view.bill().why.startswith("A fold moved ")
    assert any(reason.startswith("A fold moved ") and " exchanges into " in reason for reason in reasons)
    assert reasons.count("Only 1 new message at the end.") > 20


def test_a_chapter_that_is_opened_or_closed_is_named() -> None:
    ctx = talking()
    chapter = ctx.pages.create_contents_page("Both", "", "usr-0", ["usr-2", "usr-3"])
    ctx.render()
    ctx.pages.hide(chapter)
    assert why(ctx) == f"Page {chapter} was hidden: it is one line now."
    ctx.pages.expand(chapter)
    assert why(ctx) == f"Page {chapter} was opened: its pages are shown in its place."
    ctx.pages.archive(chapter)
    assert why(ctx) == "Page usr-2 is gone from the view."


def test_a_view_without_the_prompt_shares_no_beginning() -> None:
    ctx = talking()
    ctx.render()
    bill = ctx.render(include_system_prompt=False).bill()
    assert bill.read == 0
    assert bill.why == "Page sys-1 is gone from the view."


def test_a_renumbering_changes_no_words() -> None:
    ctx = talking()
    ctx.conversation.delete(8)
    ctx.render()
    ctx.conversation.cleanup()
    view = ctx.render()
    assert view.bill().read == view.tokens
    assert view.bill().why == "Nothing changed."
