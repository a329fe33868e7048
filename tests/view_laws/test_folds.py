"""Folding: it converges, never makes a view larger, can be undone, and leaves everything a few levels away."""

import random
from typing import Any

import pytest

import quire
from quire import CompressionConfig, ContentsPage, Context, DetailPage, PageIndex, ToolCall, View
from tests.view_laws.walks import WORDS

WORDS_OF_A_TALK = [word for word in WORDS if word.isprintable() and word.strip() and "[" not in word]


def speech(chance: random.Random, most: int) -> str:
    return " ".join(chance.choices(WORDS_OF_A_TALK, k=chance.randint(1, most)))


def talk_on(ctx: Context, chance: random.Random, turn: int, most: int = 40) -> None:
    """Add a turn: a question, perhaps some calls with their results, an answer."""
    ctx.user(f"Question {turn}: {speech(chance, most)}")
    for step in range(chance.choice((0, 0, 1, 2))):
        ctx.assistant(tool_calls=[ToolCall(f"c{turn}-{step}", "look", '{"q": "\\u9600"}')])
        ctx.tool_result(f"c{turn}-{step}", speech(chance, 2 * most))
    ctx.assistant(f"Answer {turn}: {speech(chance, most)}")


def grown(seed: int, turns: int = 40, budget: int = 1_500, threshold: int | None = None) -> Context:
    """Return a conversation that was never drawn."""
    chance = random.Random(seed)
    ctx = quire.open("memory:", budget=budget, key="amber-123", compression=CompressionConfig(threshold=threshold))
    ctx.system("You are careful.")
    for turn in range(turns):
        talk_on(ctx, chance, turn)
    return ctx


def asked(count: int, words: int, **options: Any) -> Context:
    """Return a conversation of questions alone: usr-1, usr-2, …"""
    ctx = quire.open("memory:", **options)
    ask(ctx, range(count), words)
    return ctx


def ask(ctx: Context, turns: range, words: int) -> None:
    for turn in turns:
        ctx.user(f"question {turn} " + "word " * words)


def shown(view: View, granularity: str) -> list[PageIndex]:
    return [page.index for page in view.pages if page.granularity == granularity]


def folds(ctx: Context) -> list[int]:
    return [entry.seq for entry in ctx.history(operation="fold")]


def below(ctx: Context, index: PageIndex) -> list[PageIndex]:
    """Return the leaves under a page, level by level. Check that no folder of a fold has more than sixteen children."""
    if not isinstance(ctx.pages.get_page(index), ContentsPage):
        return [index]
    children = [child.index for child in ctx.pages.children(index)]
    assert 0 < len(children) <= 16
    return [leaf for child in children for leaf in below(ctx, child)]


def exchanges(ctx: Context) -> list[PageIndex]:
    """Return the pages of all messages of the conversation, in order."""
    pages = [str(ctx.conversation.page_of(message.index)) for message in ctx.messages()]
    return [page for page in dict.fromkeys(pages) if page.startswith("usr-")]


@pytest.mark.parametrize("seed", range(4))
def test_a_fold_converges_and_repeats_itself(seed: int) -> None:
    ctx = grown(seed)
    said = [message.content for message in ctx.messages()]
    view = ctx.render()
    assert view.fold is not None
    assert view.tokens <= 0.6 * 1_500  # one fold brings it far below the budget
    again = ctx.render()
    assert again.fold is None
    assert again.openai() == view.openai()
    assert len(folds(ctx)) == 1
    assert grown(seed).render().openai() == view.openai()
    assert [message.content for message in ctx.messages()] == said
    assert ctx.check() == []


@pytest.mark.parametrize("seed", range(2))
def test_folding_never_makes_a_view_larger(seed: int) -> None:
    chance = random.Random(seed)
    ctx = quire.open("memory:", budget=1_000)
    for turn in range(50):
        talk_on(ctx, chance, turn, most=chance.choice((1, 3, 40)))
        before = ctx.render(max_tokens=10**6).tokens
        view = ctx.render()
        assert view.tokens <= min(before, 1_000)
        assert (view.fold is not None) <= (before > 1_000)  # only when it is forced


def test_an_undone_fold_is_not_made_again_until_the_budget_forces_it() -> None:
    ctx = grown(1, turns=10, budget=100_000, threshold=500)
    assert ctx.render().fold is not None
    ctx.undo(folds(ctx)[-1])
    held = ctx.render()
    assert held.fold is None
    assert held.tokens > 500
    ctx.user("One more.")
    assert ctx.render().fold is None
    ctx.budget = held.tokens - 150
    assert ctx.render().fold is not None
    assert ctx.render().tokens <= ctx.budget


@pytest.mark.parametrize("budget", [300, 600, 1_500])
def test_however_little_room_there_is_everything_lies_a_few_levels_deep(budget: int) -> None:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("Prompt.")
    for turn in range(120):
        ask(ctx, range(turn, turn + 1), 20)
        ctx.assistant(f"answer {turn} " + "词语 " * 10)
        view = ctx.render()
    reached = [leaf for line in shown(view, "line") for leaf in below(ctx, line)]
    reached += [page for page in [*shown(view, "whole"), *shown(view, "clipped")] if page.startswith("usr-")]
    assert reached == exchanges(ctx)  # each once, and in order
    assert len(reached) == 240
    assert max(len(ctx.pages.ancestors(leaf)) for leaf in reached) <= 7
    assert ctx.check() == []
    ctx.pages.expand(shown(view, "line")[0])
    assert shown(view, "line")[0] not in shown(ctx.render(max_tokens=10**6), "line")


def test_thousands_of_exchanges_show_few_lines(request: pytest.FixtureRequest) -> None:
    """The number of lines grows only with the number of digits."""
    wanted = 100_000 if request.config.getoption("--long") else 2_000
    ctx = quire.open("memory:", budget=4_000, counter=quire.EstimateCounter())
    for start in range(0, wanted, 1_000):
        ctx.import_messages({"role": "user", "content": f"say {n}"} for n in range(start, start + 1_000))
        view = ctx.render()
        assert view.by_kind()["folded"] <= 4_000 / 5
    leaves = [leaf for line in shown(view, "line") for leaf in below(ctx, line)]
    assert len(leaves) + len(shown(view, "whole")) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_restored_chapters_take_no_room_of_one_that_was_opened(seed: int) -> None:
    ctx, chance, turn = quire.open("memory:", budget=2_000), random.Random(seed), 0
    for count in (1, 2):
        while len(folds(ctx)) < count:
            talk_on(ctx, chance, turn := turn + 1)
            view = ctx.render()
        if count == 1:
            opened, *others = shown(view, "line")
            ctx.pages.expand(opened)
            for chapter in others:
                ctx.pages.archive(chapter)
                ctx.pages.restore(chapter)
    assert len(others) > 1
    assert ctx.why(opened).shown == "open"


def test_a_fold_stops_at_an_open_batch() -> None:
    ctx = asked(8, 60, budget=1_000)
    ctx.conversation.batch_start()
    ask(ctx, range(8, 14), 60)
    assert ctx.render().fold is not None
    for turn in range(14, 40):  # the budget is kept, but no chapter crosses the boundary
        ask(ctx, range(turn, turn + 1), 60)
        assert ctx.render().tokens <= 1_000
    said = {str(ctx.conversation.page_of(number)): number for number in range(40)}
    for page in ctx.pages.list_pages("usr"):
        leaves = [child.index for child in ctx.pages.children(page.index)] if isinstance(page, ContentsPage) else []
        if page.index != "usr-0" and all(leaf in said for leaf in leaves):
            assert len({said[leaf] >= 8 for leaf in leaves}) <= 1


def test_a_capacity_is_kept_and_what_is_private_has_none() -> None:
    ctx = quire.open("memory:", budget=20_000)
    for name, permission in (("cap", quire.Permission.READ_WRITE), ("own", quire.Permission.PRIVATE)):
        ctx.pages.add_segment(quire.Segment(id=name, name=name, permission=permission, max_capacity=200))
        for number in range(40):
            ctx.pages.create_detail_page(f"note {number}", "", "some words " * 10, f"{name}-0")
    ctx.user("Hello")
    view = ctx.render()
    assert 0 < sum(page.tokens for page in view.pages if page.index.startswith("cap")) <= 200
    assert "cap-40" in shown(view, "whole")
    private = [page for page in ctx.pages.list_pages("own") if isinstance(page, DetailPage)]
    assert {page.visibility for page in private} == {quire.Visibility.EXPANDED}
