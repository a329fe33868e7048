"""Pages that are opened in a full view stay open at the next fold, and undone folds can be repeated."""

import pytest

import quire
from quire import Context


def chat(ctx: Context, turns: int, start: int = 0) -> None:
    for turn in range(start, start + turns):
        ctx.user(f"Question {turn}: " + "what about my order? " * 4)
        ctx.render()
        ctx.assistant(f"Answer {turn}. " * 6)


def test_every_call_that_why_names_opens_the_page() -> None:
    ctx = quire.open("memory:", budget=1_000)
    chat(ctx, 40)
    for number in (1, 3, 20, 33):
        ctx.render()
        index = f"usr-{number}"
        assert ctx.why(index).call == f"expand({index!r})"
        ctx.pages.expand(index)
        assert ctx.render().tokens <= 1_000
        assert ctx.why(index).shown == "whole"
        chat(ctx, 5)
    assert ctx.check() == []


def test_an_opened_page_is_folded_again_by_the_second_fold() -> None:
    ctx = quire.open("memory:", budget=1_000)
    chat(ctx, 40)
    ctx.pages.expand("usr-3")
    start = len(list(ctx.history(operation="fold")))
    while len(list(ctx.history(operation="fold"))) < start + 2:
        chat(ctx, 1)
    assert ctx.why("usr-3").shown == "no"


def test_two_undone_folds_are_redone_in_reverse_order() -> None:
    ctx = quire.open("memory:", budget=600)
    turn = 0
    while len(list(ctx.history(operation="fold"))) < 2:
        chat(ctx, 1, turn)
        turn += 1
    first, second = [entry.seq for entry in ctx.history(operation="fold")]
    tree = _tree(ctx)
    undone = []
    for seq in (second, first):
        ctx.undo(seq)
        undone.append(ctx.seq)
    again = ctx.seq
    for seq in reversed(undone):
        ctx.undo(seq)
    assert _tree(ctx) == tree
    assert ctx.seq == again + 2
    ctx.undo(ctx.seq)  # and once more
    ctx.undo(again + 1)
    assert ctx.check() == []


def _tree(ctx: Context) -> list[object]:
    pages = ctx.pages.list_pages()
    return [(page.index, page.visibility, [up.index for up in ctx.pages.ancestors(page.index)]) for page in pages]


def test_documents_do_not_make_folds_frequent() -> None:
    folds = {}
    for pages in (0, 20):
        ctx = quire.open("memory:", budget=1_000)
        for number in range(pages):
            ctx.pages.create_detail_page(f"Rule {number}", "", f"Text of rule {number}. " * 8, "mem-0")
        sent = cached = 0
        for turn in range(60):
            chat(ctx, 1, turn)
            view = ctx.render()
            sent, cached = sent + view.tokens, cached + view.shared_prefix
            if turn > 20 and pages:
                assert "whole" in {page.granularity for page in view.pages if page.index.startswith("mem-")}
        folds[pages] = len(list(ctx.history(operation="fold")))
        assert cached > 0.85 * sent
    assert 0 < folds[0] <= folds[20] <= 2.5 * folds[0]


def test_undo_closes_a_summary_that_an_agent_opened() -> None:
    ctx = quire.open("memory:", budget=9_000)
    for number in range(10):
        ctx.user(f"Please book flight HAT{number}. " + "I like a quiet seat. " * 5)
        ctx.assistant(f"Booked HAT{number}. " + "Anything else? " * 5)
    summary = ctx.conversation.compress(range(18)).summaries[0]
    before = ctx.render().tokens
    ctx.tools.call("expand_details", {"page": summary})
    opened = ctx.seq
    assert ctx.render().tokens > before
    ctx.undo(opened)
    assert ctx.render().tokens == before
    with pytest.raises(quire.InvalidOperation, match="it only closed"):
        ctx.undo(ctx.seq)
    with pytest.raises(quire.InvalidOperation, match="closed again by a later fold or change"):
        ctx.undo(opened)
