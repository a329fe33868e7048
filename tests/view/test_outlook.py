"""The budget report: its numbers agree with the view, and the fold takes the pages that it named."""

import pytest

import quire
from quire import Context
from quire.windows.apps import Todo


def talk(budget: int = 2_000) -> Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("Prompt.")
    for turn in range(12):
        ctx.user(f"Question {turn} " + "word " * 40)
        ctx.assistant(f"Answer {turn} " + "词语 " * 30)
    return ctx


def test_what_is_used_is_what_the_view_takes() -> None:
    ctx = talk()
    view = ctx.render()
    budget = ctx.agent.budget()
    assert (budget.used, budget.budget, budget.free) == (view.tokens, 2_000, 2_000 - view.tokens)
    assert dict(budget.kinds) == view.by_kind()
    assert str(view.tokens // 1000) in str(budget)


def test_the_next_fold_takes_what_was_named() -> None:
    ctx = talk()
    ctx.render()
    named = ctx.agent.budget().next_fold
    assert named
    view = ctx.render()
    while view.fold is None:
        ctx.user("More " + "word " * 60)
        view = ctx.render()
    folded = {entry for entry in named if ctx.why(entry).shown != "whole"}
    assert len(folded) >= len(named) * 0.6


def test_windows_count_for_the_next_fold() -> None:
    named = []
    for items in (0, 15):
        ctx = talk(4_000)
        ctx.windows.register(Todo)
        window = ctx.windows.open("todo")
        for number in range(items):
            ctx.windows.act(window.id, "add", {"text": f"Check the pump in hall {number}."})
        assert ctx.render().fold is None
        named.append(len(ctx.agent.budget().next_fold))
    assert named[1] > named[0]


def test_a_line_at_the_end_tells_the_model_and_breaks_no_prefix() -> None:
    ctx = talk()
    before = ctx.render(budget_line=True)
    said = before.openai()[-1]["content"]
    assert "of 2,000 tokens used" in said
    assert before.tokens <= 2_000
    ctx.assistant("One more.")
    after = ctx.render(budget_line=True)
    assert [message["content"] for message in after.openai()[-2:]] == [
        said,
        "One more.",
    ]  # it stays, and is not repeated
    assert after.shared_prefix == before.tokens
    ctx.assistant("A long answer. " * 70)  # more than a tenth of the budget
    assert "of 2,000 tokens used" in ctx.render(budget_line=True).openai()[-1]["content"]
    for budget in range(250, 900, 50):
        small = talk(budget).render(budget_line=True)
        assert small.tokens <= budget


@pytest.mark.parametrize(("reserve", "budget"), [(0, 2_000), (300, 2_000), (1_000, 12_000)])
def test_the_line_counts_itself_and_what_is_reserved_is_not_free(reserve: int, budget: int) -> None:
    ctx = talk(budget)
    view = ctx.render(budget_line=True, reserve=reserve)
    said = view.openai()[-1]["content"]
    kept = f" {reserve:,} reserved," if reserve else ""
    free = budget - reserve - view.tokens
    assert f"{view.tokens:,} of {budget:,} tokens used,{kept} {free:,} free" in said
    outlook = ctx.agent.budget()
    assert (outlook.used, outlook.reserved, outlook.free) == (view.tokens, reserve, free)
    assert outlook.line().partition(";")[0] in said


def test_what_is_used_by_a_view_that_was_shortened_for_itself_is_what_was_sent() -> None:
    ctx = quire.open("memory:", budget=600, compression=quire.CompressionConfig(enabled=False))
    for turn in range(12):
        ctx.user(f"Question {turn} " + "word " * 40)
    view = ctx.render()
    assert ctx.agent.budget().used == view.tokens <= 600


def test_a_shortened_view_names_only_pages_that_exist() -> None:
    ctx = talk()
    view = ctx.render(max_tokens=500)
    lines = [page for page in view.pages if page.granularity == "line"]
    assert lines
    for line in lines:
        for index in line.index.split("…"):
            ctx.pages.get_page(index)
    assert ctx.render(max_tokens=500).openai() == view.openai()


class Letters:
    """A counter with one token per letter."""

    name = "letters"
    exact = False

    def count(self, text: str) -> int:
        return len(text)


def test_a_line_that_takes_more_than_is_kept_for_it_is_left_out() -> None:
    ctx = quire.open("memory:", budget=3_000, counter=Letters(), key="k" * 32)
    ctx.user("word " * 400)
    for _ in range(100):
        ctx.user("yes")
        assert ctx.render(budget_line=True).tokens <= ctx.budget


def test_a_listener_that_fails_costs_no_view() -> None:
    ctx = talk(700)
    heard: list[int] = []

    def fails(folded: object) -> None:
        raise RuntimeError("not my day")

    ctx.on_fold(fails)
    ctx.on_fold(lambda folded: heard.append(folded.exchanges))
    view = ctx.render()
    assert view.fold is not None
    assert heard == [view.fold.exchanges]
