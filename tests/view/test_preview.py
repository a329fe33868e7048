"""Previews: they write nothing and fill their size. Views after a change of the budget."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.core.records import PageRecord
from quire.core.state import State
from quire.errors import ReadOnly
from quire.model.messages import count_message_tokens
from quire.model.tokens import VocabularyCounter
from tests.view.signing import Signer
from tests.whole_values import whole_repr

COUNT = VocabularyCounter().count


def test_an_imagined_chapter_is_named_by_its_ends_and_what_lies_between_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = quire.open("memory:", budget=2_000)
    for turn in range(150):
        context.user(f"Question {turn}: " + "what about the flight? " * 8)
        context.render()
    small = context.render(max_tokens=300)
    spans = [page.index for page in small.pages if "…" in page.index]
    read = 0
    members = State.members

    def counted(state: State, *arguments: Any, **options: Any) -> Iterator[PageRecord]:
        nonlocal read
        for page in members(state, *arguments, **options):
            read += 1
            yield page

    monkeypatch.setattr(State, "members", counted)
    again = context.render(max_tokens=301)
    assert [page.index for page in again.pages if "…" in page.index] == spans
    assert spans[0].startswith("usr-1…usr-")
    assert 0 < read < 400  # a thousand if everything between is read


def talk(ctx: quire.Context, turns: int, *, renders: bool = False) -> None:
    """Add turns of about 200 tokens, some with a tool call."""
    for turn in range(turns):
        ctx.user(f"Question {turn}: " + "what does the flight to Lisbon cost? " * 6)
        if turn % 3 == 0:
            ctx.assistant(None, [quire.ToolCall(id=f"c{turn}", name="search", arguments='{"to": "Lisbon"}')])
            ctx.tool_result(f"c{turn}", f"HAT{turn} costs ${turn + 100}. " * 20)
        ctx.assistant(f"Answer {turn}: " + "it costs less on a Tuesday. " * 8)
        if renders:
            ctx.render()


def newest_shown(view: quire.View) -> list[int]:
    """Return the indices of the messages in a view."""
    return [message.index for message in view.messages if message.index >= 0 and message.role != "system"]


@pytest.mark.parametrize("own", [128_000, 4_000, 2_000])
@pytest.mark.parametrize("size", [1_500, 3_000, 9_000])
def test_a_private_size_is_filled_with_the_newest_exchanges(own: int, size: int) -> None:
    ctx = quire.open("memory:", budget=own)
    ctx.system("You sell flights.")
    talk(ctx, 150, renders=own < 10_000)
    seq, layout = ctx.seq, ctx.render(preview=True).openai()
    view = ctx.render(max_tokens=size)
    assert 0.8 * size <= view.tokens <= size
    shown, last = newest_shown(view), len(ctx.messages()) - 1
    assert shown == list(range(last + 1 - len(shown), last + 1))  # without a gap
    assert quire.check_legal(view.openai(), "openai") == []
    assert ctx.seq == seq
    assert ctx.render(preview=True).openai() == layout  # a preview does not change what the model sees
    assert ctx.check() == []


def test_a_size_for_everything_shows_everything() -> None:
    ctx = quire.open("memory:", budget=1_500)
    talk(ctx, 60, renders=True)
    view = ctx.render(max_tokens=100_000)
    assert newest_shown(view) == [message.index for message in ctx.messages()]
    assert "folded" not in view.by_kind()


def test_pages_that_somebody_hid_stay_lines_in_a_larger_view() -> None:
    ctx = quire.open("memory:", budget=100_000)
    talk(ctx, 4)
    ctx.pages.hide("usr-2")
    shown = {page.index: page.granularity for page in ctx.render(max_tokens=200_000).pages}
    assert shown.pop("usr-2") == "line"
    assert set(shown.values()) == {"whole"}


def test_a_preview_at_the_own_budget_shows_the_layout_that_the_model_sees() -> None:
    ctx = quire.open("memory:", budget=2_000)
    talk(ctx, 40, renders=True)
    sent = ctx.render()
    assert sent.tokens < 1_900  # there would be room for more
    assert ctx.render(preview=True).openai() == ctx.render(max_tokens=2_000).openai() == sent.openai()


@pytest.mark.parametrize("budget", [2_000, 20_000])
def test_the_preamble_depends_on_the_size_of_the_view_alone(budget: int, tmp_path: Path) -> None:
    with quire.open(tmp_path / "store.db", key="amber-417", budget=budget) as ctx:
        ctx.user("Hello")
        sent = ctx.render()
    with quire.open(tmp_path / "store.db", create=False) as ctx:
        assert ctx.render(preview=True).openai() == sent.openai()
    with quire.open(tmp_path / "other.db", key="amber-417", budget=22_000 - budget) as ctx:
        ctx.user("Hello")
        own = ctx.render()
        assert ctx.render(max_tokens=budget).openai() == sent.openai() != own.openai()
        assert ctx.render().openai() == own.openai()


def test_a_view_that_is_not_folded_fills_its_budget() -> None:
    ctx = quire.open("memory:", budget=2_000, compression=quire.CompressionConfig(enabled=False))
    talk(ctx, 40)
    assert 1_600 < ctx.render().tokens <= 2_000
    assert all(entry.operation != "fold" for entry in ctx.history())


def test_a_read_only_store_has_previews(tmp_path: Path) -> None:
    with quire.open(tmp_path / "store.db", budget=50_000) as ctx:
        talk(ctx, 40)
    storage = quire.SQLiteStorage(tmp_path / "store.db", read_only=True)
    with quire.open(storage, budget=2_000, create=False) as ctx:
        seq = ctx.seq
        view = ctx.render()
        assert 1_600 < view.tokens <= 2_000
        assert view.fold is None
        assert ctx.seq == seq
        with pytest.raises(ReadOnly):
            ctx.user("Hello")
    storage.close()


def test_raising_the_budget_lays_the_view_out_anew_once() -> None:
    ctx = quire.open("memory:", budget=2_000)
    talk(ctx, 60, renders=True)
    small, folds = ctx.render(), count_folds(ctx)
    ctx.budget = 10_000
    large = ctx.render()
    assert small.tokens < 2_000 < 3_000 < large.tokens <= 4_000 + 100  # the target is 0.4 of the budget
    assert large.fold is not None
    assert count_folds(ctx) == folds + 1
    assert ctx.render().openai() == large.openai()
    talk(ctx, 1, renders=True)
    assert count_folds(ctx) == folds + 1
    assert ctx.render().shared_prefix >= large.tokens - 10
    assert ctx.check() == []
    ctx.undo(next(entry for entry in ctx.history(reverse=True) if entry.operation == "fold"))
    assert ctx.check() == []
    assert ctx.render().tokens <= small.tokens + 1_000


def test_a_raised_budget_is_noticed_by_another_handle(tmp_path: Path) -> None:
    with quire.open(tmp_path / "store.db", budget=2_000) as ctx:
        talk(ctx, 60, renders=True)
        ctx.budget = 10_000
        ctx.pages.create_detail_page("Note", "", "A note.", "mem-0")
    with quire.open(tmp_path / "store.db", create=False) as ctx:
        folds = count_folds(ctx)
        assert 3_000 < ctx.render().tokens <= 4_100
        assert count_folds(ctx) == folds + 1


def test_lowering_the_budget_folds() -> None:
    ctx = quire.open("memory:", budget=10_000)
    talk(ctx, 30)
    assert ctx.render().tokens > 4_000
    ctx.budget = 2_000
    assert ctx.render().tokens <= 2_000
    assert count_folds(ctx) == 1


def count_folds(ctx: quire.Context) -> int:
    return sum(1 for _ in ctx.history(operation="fold"))


@pytest.mark.parametrize("own", [100_000, 3_000])
def test_a_private_size_has_room_for_recalled_pages(own: int) -> None:
    ctx = quire.open("memory:", budget=own)
    ctx.user("The password of the staging server is swordfish-42.")
    ctx.assistant("I will remember it.")
    talk(ctx, 60, renders=own < 10_000)
    ctx.user("What is the password of the staging server?")
    view = ctx.render(max_tokens=2_000, recall=0.25)
    assert [part.kind for part in view.tail] == ["recalled"]
    assert "swordfish-42" in whole_repr(view.tail[0].messages)
    assert 1_500 < view.tokens <= 2_000


def test_a_raise_that_met_another_writer_is_made_good_by_the_next_view() -> None:
    storage = quire.MemoryStorage()
    ctx, other = (quire.open(storage, budget=2_000) for _ in range(2))
    talk(ctx, 60, renders=True)
    ctx.budget = 10_000
    other.refresh()
    other.pages.create_detail_page("Note", "", "A note.", "mem-0")
    assert ctx.render().tokens < 2_000  # its layout could not be committed
    ctx.refresh()
    assert 3_000 < ctx.render().tokens <= 4_100
    assert ctx.check() == []


def test_a_listener_of_folds_may_write() -> None:
    ctx = quire.open("memory:", budget=2_000)
    said: list[int] = []
    ctx.on_fold(lambda fold: said.append(ctx.assistant(f"Fold {len(said)} saved {fold.saved} tokens.")))
    for turn in range(40):
        ctx.user(f"Question {turn}: " + "what does the flight cost? " * 10)
        view = ctx.render()
        assert view.tokens <= 2_000
        assert newest_shown(view)[-1] == len(ctx.messages()) - 1
        assert view.seq == ctx.seq
    assert said
    assert ctx.check() == []


def test_a_preview_shows_the_thinking_of_the_view_if_a_capacity_cannot_be_kept() -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage, "talk", budget=3_000)
    ctx.pages.update_segment("usr", max_capacity=20)
    ctx.conversation.batch_start(0)  # nothing in an open batch is folded
    signer = Signer()
    for question in ("Hi.", "And?", "More?", "Again?"):
        ctx.user(question)
        signer.check(ctx.render().anthropic())
        ctx.add(signer.reply("Yes."))
    ctx.user("Well?")
    view = ctx.render()
    assert view.fold is None
    assert "thinking" in str(view.anthropic())
    again = quire.open(storage, "talk").render(preview=True)
    assert again.anthropic() == view.anthropic()


def test_every_handle_counts_thinking_for_a_capacity() -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage, "talk", budget=3_000)
    ctx.pages.update_segment("usr", max_capacity=158)
    signer = Signer()
    for turn in range(10):
        ctx.user(f"Question {turn}.")
        view = ctx.render()
        signer.check(view.anthropic())
        assert quire.open(storage, "talk").render(preview=True).anthropic() == view.anthropic()
        ctx.add(signer.reply(f"The answer to question {turn}."))


@pytest.mark.parametrize("size", range(300, 700, 25))
def test_the_tokens_of_a_segment_that_was_first_drawn_in_part_are_counted_again(size: int) -> None:
    ctx = quire.open("memory:", budget=3_000)
    ctx.pages.add_segment(quire.Segment(id="doc", name="Documents"))
    for number in range(7):
        ctx.agent.create_detail_page(f"Note {number}", "", "The pump needs a new valve. " * 8, "mem-0")
    ctx.pages.create_detail_page("Manual", "", "阀门 HAT136 /var/log/app.log " * 12, "doc-0")
    for number in range(20):
        ctx.user(f"Question {number}: " + "what about the pump? " * 10)
        ctx.assistant("It is fine. " * 10)
        ctx.render()
    view = ctx.render(max_tokens=size)
    for part in view.parts:
        assert part.tokens >= sum(count_message_tokens(message, COUNT) for message in part.messages)
