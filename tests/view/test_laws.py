"""The laws of every view: within the budget, legal, complete where required, stable, and nothing unreachable."""

import os
import random
from typing import Any

import pytest

import quire
from quire import Context, Lifecycle, ToolCall, Visibility, check_legal
from quire.model.messages import PER_MESSAGE, iterate_texts
from quire.model.tokens import VocabularyCounter
from tests.marks import broad
from tests.view.laws import check_walk

COUNT = VocabularyCounter().count
WORDS = [
    *("pump", "阀门", "tank", "HAT136", "2024-05-20", "/var/log/app.log", "$201", "返回"),
    *("the", "a", "of", "ValueError", "🙂", "user_81", "refund"),
]


STATES, LONG = 2_000, 1_000_000
SHARDS = 8
STEPS, FEWER = 30, 15
"""The steps of a walk. In the usual run two of three have fewer: a state after many steps costs more, and more walks
cover more budgets and configurations. With --long all have many.
"""
SEED = int(os.environ.get("QUIRE_SEED", "0"))
"""The number of the first walk: another number gives other walks. A failure names the number for `check_walk`."""


@pytest.mark.parametrize("shard", [0, 1, 2, *broad(*range(3, SHARDS))])
def test_every_state_on_random_walks_keeps_every_law(shard: int, request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    wanted = (LONG if long else STATES) // SHARDS
    number, states = SEED + shard, 0
    print(f"QUIRE_SEED={SEED}, walks {number}, {number + SHARDS}, …")  # noqa: T201 - shown when it fails
    while states < wanted:
        states += check_walk(number, STEPS if long or number % 3 == 0 else FEWER)
        number += SHARDS
    assert states >= wanted
    assert number < SEED + SHARDS * (2 + wanted // (FEWER // 3))  # most steps lead to a view


@pytest.mark.parametrize("number", [537131073579, 537131084183])
def test_walks_that_broke_a_law_once_keep_every_law(number: int) -> None:
    assert check_walk(number, STEPS) > STEPS // 2


def speech(chance: random.Random, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def talk_on(ctx: Context, chance: random.Random, turn: int, most: int = 60) -> None:
    """Add one turn: a question, perhaps some calls with their results, an answer."""
    ctx.user(f"Question {turn}: {speech(chance, most)}")
    for step in range(chance.choice((0, 0, 1, 2))):
        ids = [f"c{turn}-{step}-{n}" for n in range(chance.randint(1, 3))]
        ctx.assistant(speech(chance, 5), tool_calls=[ToolCall(call, "search", '{"q": "阀门"}') for call in ids])
        for call in chance.sample(ids, len(ids)):
            ctx.tool_result(call, speech(chance, 3 * most))
    if chance.random() < 0.9:
        ctx.assistant(f"Answer {turn}: {speech(chance, most)}")


def counted(view: quire.View) -> int:
    """Return the tokens of the messages of a view, counted again."""
    return sum(
        sum(map(COUNT, iterate_texts(message))) + PER_MESSAGE * (1 + len(message.tool_calls))
        for message in view.messages
    )


def check(ctx: Context, view: quire.View, budget: int) -> None:
    """Check the laws that need only one view."""
    assert view.tokens <= budget
    assert counted(view) <= view.tokens
    assert check_legal(view.openai(), "openai") == []
    assert check_legal(view.responses(), "responses") == []
    assert check_legal(view.anthropic(), "anthropic") == []
    prompt = next(iter(ctx.messages())).content
    assert view.messages[0].content == prompt
    asked = [message.index for message in ctx.messages() if message.role == "user"]
    if asked:
        assert asked[-1] in [message.index for message in view.messages]


@pytest.mark.parametrize("seed", [0, 1, *broad(*range(2, 8))])
def test_every_view_of_a_growing_conversation_keeps_the_laws(seed: int) -> None:
    chance = random.Random(seed)
    budget = chance.choice((700, 1_500, 4_000))
    ctx = quire.open("memory:", budget=budget)
    ctx.system("You are a careful agent. 请谨慎。")
    before: quire.View | None = None
    for turn in range(40):
        talk_on(ctx, chance, turn, 30 if budget < 1_000 else 60)
        view = ctx.render()
        check(ctx, view, budget)
        again = ctx.render()
        assert again.openai() == view.openai()
        if before is not None and view.fold is None:
            start = before.openai()
            assert view.openai()[: len(start)] == start  # between folds it only grows at its end
            assert view.shared_prefix == before.tokens
        before = view
    assert ctx.check() == []


@pytest.mark.parametrize("seed", range(4))
def test_everything_can_be_reached_by_opening_what_is_shown(seed: int) -> None:
    chance = random.Random(seed)
    ctx = quire.open("memory:", budget=900)
    ctx.system("Prompt.")
    for turn in range(30):
        talk_on(ctx, chance, turn, 20)
        ctx.render()
    shown = [page.index for page in ctx.render().pages]
    reached: set[int] = set()
    while shown:
        index = shown.pop()
        page = ctx.pages.get_page(index)
        if isinstance(page, quire.ContentsPage):
            shown += [child.index for child in ctx.pages.children(index)]
        else:
            reached.add(int(index.rpartition("-")[2]) if index.startswith("usr") else -1)
    leaves = {page.index for page in ctx.pages.list_pages("usr") if isinstance(page, quire.DetailPage)}
    assert {f"usr-{number}" for number in reached if number > 0} == leaves


def test_a_view_is_the_same_after_reopening_and_on_every_backend(tmp_path: Any) -> None:
    texts = []
    for where in ("memory:", f"file:{tmp_path}/f", f"{tmp_path}/a.db"):
        storage = quire.open_storage(where)
        ctx = quire.open(storage, "c", budget=1_200)
        chance = random.Random(5)
        ctx.system("Prompt.")
        for turn in range(25):
            talk_on(ctx, chance, turn)
            ctx.render()
        drawn = ctx.render()
        again = quire.open(storage, "c", budget=1_200).render()
        assert again.openai() == drawn.openai()
        key = str(drawn.messages[1].content).removeprefix("Context key: ").partition(".")[0]
        texts.append(str(drawn.openai()).replace(key, "key"))
    assert texts[0] == texts[1] == texts[2]


def test_a_fold_can_be_undone_and_the_view_is_the_same_bytes() -> None:
    ctx = quire.open("memory:", budget=4_000, compression=quire.CompressionConfig(threshold=1_000, target_tokens=400))
    chance = random.Random(3)
    ctx.system("Prompt.")
    before = ctx.render(preview=True)
    while before.tokens <= 1_000:
        talk_on(ctx, chance, 1, 20)
        before = ctx.render(preview=True)
    folded = ctx.render()
    assert folded.tokens < before.tokens
    assert folded.fold is not None
    assert folded.fold.account.lost == 0
    ctx.undo(ctx.seq)
    assert ctx.render(preview=True).openai() == before.openai()
    assert ctx.render().openai() == before.openai()  # not folded again until the budget forces it


def test_a_preview_and_another_budget_write_nothing() -> None:
    ctx = quire.open("memory:", budget=1_000)
    ctx.system("Prompt.")
    for turn in range(20):
        talk_on(ctx, random.Random(turn), turn)
    seq = ctx.seq
    assert ctx.render(preview=True).tokens <= 1_000
    assert ctx.render(max_tokens=600).tokens <= 600
    assert ctx.render(reserve=300).tokens <= 700 or ctx.seq > seq
    assert ctx.seq in (seq, seq + 1)


def test_folding_never_makes_a_view_larger_and_shows_few_lines() -> None:
    ctx = quire.open("memory:", budget=3_000)
    ctx.system("Prompt.")
    for turn in range(400):
        ctx.user(f"Question {turn} about part HAT{turn} " + "word " * 30)
        ctx.assistant("Answer " + "yes " * 30)
        ctx.render()
    view = ctx.render()
    lines = [page for page in view.pages if page.granularity == "line"]
    assert len(lines) <= 50
    assert sum(page.tokens for page in lines) <= 3_000 / 5 + 60
    folders = [page for page in ctx.pages.list_pages("usr") if isinstance(page, quire.ContentsPage)]
    assert all(page.child_count <= 16 for page in folders if page.index != "usr-0")


def test_hidden_archived_and_pinned_pages_are_drawn_as_they_are() -> None:
    ctx = quire.open("memory:", budget=10_000)
    ctx.system("Prompt.")
    note = ctx.pages.create_detail_page("座位", "靠窗", "乘客想要靠窗的座位。", "mem-0")
    ctx.user("Hello")
    ctx.assistant("Hi")
    assert "乘客想要靠窗的座位。" in str(ctx.render().openai())
    ctx.pages.hide(note)
    shown = {page.index: page.granularity for page in ctx.render().pages}
    assert shown[note] == "line"
    ctx.pages.archive("usr-2")
    assert "usr-2" not in [page.index for page in ctx.render().pages]
    assert ctx.why("usr-2").call == "restore('usr-2')"
    assert ctx.pages.get_page("usr-2").lifecycle is Lifecycle.HOT_ARCHIVED
    assert ctx.pages.get_page(note).visibility is Visibility.HIDDEN


def test_an_unanswered_call_shows_that_there_is_no_result() -> None:
    ctx = quire.open("memory:")
    ctx.user("q")
    ctx.assistant("Let me see.", tool_calls=[ToolCall("a", "f"), ToolCall("b", "f")])
    ctx.tool_result("b", "found")
    results = {value["tool_call_id"]: value["content"] for value in ctx.render().openai() if value["role"] == "tool"}
    assert results == {"a": "[no result]", "b": "found"}
