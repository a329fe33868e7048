"""Previews: they write nothing and fill their size. Views after a change of the budget."""

from pathlib import Path

import pytest

import quire
from quire import Context, View
from quire.errors import ReadOnly
from tests.view_laws.laws import check_shown


def talk(ctx: Context, turns: int, *, renders: bool = False) -> None:
    """Add turns of about 200 tokens, some with a tool call."""
    for turn in range(turns):
        ctx.user(f"Question {turn}: " + "what does the flight to Lisbon cost? " * 6)
        if turn % 3 == 0:
            ctx.assistant(None, [quire.ToolCall(id=f"c{turn}", name="search", arguments='{"to": "Lisbon"}')])
            ctx.tool_result(f"c{turn}", f"HAT{turn} costs ${turn + 100}. " * 20)
        ctx.assistant(f"Answer {turn}: " + "it costs less on a Tuesday. " * 8)
        if renders:
            ctx.render()


def messages_in(view: View) -> list[int]:
    return [message.index for message in view.messages if message.index >= 0 and message.role != "system"]


def count_folds(ctx: Context) -> int:
    return len(list(ctx.history(operation="fold")))


@pytest.mark.parametrize("own", [128_000, 4_000])
@pytest.mark.parametrize("size", [1_500, 9_000])
def test_a_private_size_is_filled_with_the_newest_exchanges(own: int, size: int) -> None:
    ctx = quire.open("memory:", budget=own)
    ctx.system("You sell flights.")
    talk(ctx, 70, renders=own < 10_000)
    seq, layout = ctx.seq, ctx.render(preview=True).openai()
    view = ctx.render(max_tokens=size)
    assert 0.5 * size < view.tokens
    check_shown(ctx, view, size)
    shown, last = messages_in(view), len(ctx.messages()) - 1
    assert shown == list(range(last + 1 - len(shown), last + 1))  # without a gap
    assert ctx.seq == seq
    assert ctx.render(preview=True).openai() == layout  # a preview does not change what the model sees
    assert messages_in(ctx.render(max_tokens=200_000)) == list(range(1, last + 1))


def test_a_preview_at_the_own_budget_shows_the_layout_that_the_model_sees() -> None:
    ctx = quire.open("memory:", budget=2_000)
    talk(ctx, 40, renders=True)
    sent = ctx.render()
    assert sent.tokens < 1_900  # there would be room for more
    assert ctx.render(preview=True).openai() == ctx.render(max_tokens=2_000).openai() == sent.openai()


def test_a_read_only_store_has_previews(tmp_path: Path) -> None:
    with quire.open(tmp_path / "store.db", budget=50_000) as ctx:
        talk(ctx, 40)
    storage = quire.SQLiteStorage(tmp_path / "store.db", read_only=True)
    with quire.open(storage, budget=2_000, create=False) as ctx:
        seq = ctx.seq
        view = ctx.render()
        assert 1_000 < view.tokens <= 2_000
        assert (view.fold, ctx.seq) == (None, seq)
        with pytest.raises(ReadOnly):
            ctx.user("Hello")
    storage.close()


@pytest.mark.parametrize("disturbed", [False, True])
def test_raising_the_budget_lays_the_view_out_anew_once(disturbed: bool) -> None:
    storage = quire.MemoryStorage()
    ctx, other = (quire.open(storage, budget=2_000) for _ in range(2))
    talk(ctx, 60, renders=True)
    small, folds = ctx.render(), count_folds(ctx)
    ctx.budget = 10_000
    if disturbed:
        other.refresh()
        other.pages.create_detail_page("Note", "", "A note.", "mem-0")
        assert ctx.render().tokens < 2_000  # its layout could not be committed
        ctx.refresh()
    large = ctx.render()
    assert small.tokens < 2_000 < 3_000 < large.tokens < 10_000
    assert large.fold is not None
    assert count_folds(ctx) == folds + 1
    assert ctx.render().openai() == large.openai()
    ctx.budget = 2_000
    assert ctx.render().tokens <= 2_000
    assert ctx.check() == []
