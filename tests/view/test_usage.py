"""The ratio of billed to counted tokens of models: learned, stored, shown, and applied to the budget."""

from pathlib import Path
from typing import Any

import pytest

import quire
from quire import InvalidOperation, InvalidValue
from quire.view.cost import Usage
from tests.providers.test_sdk import completion


def talking(where: Any = "memory:", budget: int = 4_000, turns: int = 12) -> quire.Context:
    ctx = quire.open(where, budget=budget)
    ctx.system("You are careful.")
    for turn in range(turns):
        ctx.user(f"问题 {turn}: what about it? " + "word " * 40)
        ctx.assistant("Let me see. " + "word " * 40)
    return ctx


def report(ctx: quire.Context, factor: float, model: str | None = "claude", **options: Any) -> Usage:
    counted = ctx.render().tokens + options.get("tools", 0)
    return ctx.report_usage({"input_tokens": round(counted * factor)}, model, **options)


def test_a_report_is_compared_with_the_last_view() -> None:
    ctx = talking()
    view = ctx.render()
    found = ctx.report_usage({"prompt_tokens": 2 * view.tokens, "prompt_tokens_details": {"cached_tokens": 5}}, "m")
    assert found == Usage(
        model="m", factor=2.0, error=0.0, reports=1, counted=view.tokens, billed=2 * view.tokens, cached=5
    )
    assert ctx.stats().usage == {"m": found}


def test_other_views_are_no_measure_unless_they_are_given() -> None:
    ctx = talking()
    own = ctx.render()
    small = ctx.render(max_tokens=900)
    ctx.render(preview=True)
    assert ctx.report_usage({"input_tokens": 1_000}).counted == own.tokens
    assert ctx.report_usage({"input_tokens": 1_000}, view=small).counted == small.tokens


def test_tools_that_were_sent_count_and_the_reserve_does_not() -> None:
    ctx = talking()
    tokens = ctx.render(reserve=500).tokens
    assert ctx.report_usage({"input_tokens": 5_000}, tools=300).counted == tokens + 300
    assert ctx.report_usage({"input_tokens": 5_000}).counted == tokens


def test_without_a_view_there_is_nothing_to_compare() -> None:
    with pytest.raises(InvalidOperation, match="render"):
        talking().report_usage({"input_tokens": 5})


@pytest.mark.parametrize("bad", [{"model": 5}, {"model": ""}, {"tools": -1}, {"tools": "x"}, {"view": "x"}])
def test_what_makes_no_sense_is_refused_and_nothing_is_learned(bad: dict[str, Any]) -> None:
    ctx = talking()
    ctx.render()
    with pytest.raises(InvalidValue, match=next(iter(bad))):
        ctx.report_usage({"input_tokens": 5}, **bad)
    with pytest.raises(InvalidValue, match="usage"):
        ctx.report_usage(object())
    assert ctx.stats().usage == {}


@pytest.mark.parametrize("billed", [99_999_999, 1])
def test_a_figure_that_cannot_be_of_this_view_is_refused(billed: int) -> None:
    ctx = talking(turns=2)
    tokens = ctx.render().tokens
    said = f"{billed:,} tokens were billed for a view of {tokens:,} and 7 of tools: a factor of"
    with pytest.raises(InvalidValue, match=said):
        ctx.report_usage({"input_tokens": billed}, "m", tools=7)
    assert ctx.stats().usage == {}
    assert ctx.report_usage({"input_tokens": 5 * tokens}, "m").factor == 5


def test_each_model_has_one_factor_by_whatever_name() -> None:
    ctx = talking()
    answer = completion()  # it names gpt-5 itself
    answer.usage.prompt_tokens = ctx.render().tokens
    ctx.report_usage(answer)
    report(ctx, 1.0, "gpt-5-2025-08-07")
    report(ctx, 1.2, "anthropic/claude-sonnet-4-5-20250929")
    report(ctx, 1.0, None)
    assert {name: usage.reports for name, usage in ctx.stats().usage.items()} == {
        "gpt-5": 2,
        "claude-sonnet-4-5": 1,
        "default": 1,
    }


def test_the_factor_settles_and_its_error_shows_the_spread() -> None:
    ctx = talking()
    for n in range(40):
        report(ctx, 1.2 + (0.1 if n % 2 else -0.1), "uneven")
        report(ctx, 1.2, "even")
    uneven, even = ctx.stats().usage["uneven"], ctx.stats().usage["even"]
    assert uneven.factor == pytest.approx(1.2, abs=0.02)
    assert uneven.error == pytest.approx(0.1, abs=0.02)
    assert even.factor == pytest.approx(1.2, abs=0.001)
    assert even.error < 0.001
    for _ in range(40):
        report(ctx, 1.5, "even")
    assert ctx.stats().usage["even"].factor == pytest.approx(1.5, abs=0.02)


def test_a_small_view_says_less_than_a_large_one() -> None:
    ctx = talking()
    report(ctx, 1.0)
    ctx.report_usage({"input_tokens": 90}, "claude", view=talking(turns=0).render())
    assert ctx.stats().usage["claude"].factor < 1.2


def test_the_budget_is_in_the_tokens_of_the_model() -> None:
    ctx = talking(turns=60)
    for model, factor in (("thrifty", 1.4), ("lavish", 0.7)):
        report(ctx, factor, model)
    assert ctx.render(model="unheard-of").tokens == ctx.render().tokens
    assert ctx.render(model="lavish").tokens == ctx.render().tokens
    for turn in range(60):
        ctx.user(f"第 {turn} 个问题 " + "字" * 30)
        view = ctx.render(model="thrifty-2026-01-01")
        assert view.tokens * 1.4 <= 4_000
        assert view.budget == 4_000
        assert quire.check_legal(view.anthropic(), "anthropic") == []


def test_a_model_that_is_no_name_is_no_option() -> None:
    ctx = talking()
    for bad in (5, "", ["m"]):
        with pytest.raises(InvalidValue, match="model"):
            ctx.render(model=bad)  # type: ignore[arg-type]


def entries(ctx: quire.Context) -> int:
    return len(list(ctx.history(operation="report_usage")))


def test_it_is_stored_only_when_the_factor_moves() -> None:
    ctx = talking()
    for _ in range(20):
        report(ctx, 1.3)
    assert entries(ctx) == 1
    report(ctx, 1.6)
    assert entries(ctx) == 2


def test_it_is_known_again_after_reopening_and_in_a_fork(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with talking(where, turns=60) as ctx:
        report(ctx, 1.4)
        shown = ctx.render(model="claude").tokens
        assert ctx.fork("other").stats().usage == ctx.stats().usage
    with quire.open(where, budget=4_000) as again:
        assert again.stats().usage["claude"].factor == pytest.approx(1.4, abs=0.01)
        assert again.render(model="claude").tokens == shown
        report(again, 1.4)
        assert again.stats().usage["claude"].reports == 2
        assert again.check() == []


def test_steps_back_leave_it_alone() -> None:
    ctx = talking()
    ctx.checkpoint("before")
    added = ctx.user("more")
    entry = ctx.seq
    report(ctx, 1.4)
    reported = ctx.seq
    ctx.undo(entry)
    assert added not in [message.index for message in ctx.messages()]
    known = ctx.stats().usage
    assert known["claude"].reports == 1
    with pytest.raises(InvalidOperation):
        ctx.undo(reported)
    ctx.rollback("before")
    assert ctx.stats().usage == known
    ctx.undo(ctx.seq)
    assert ctx.stats().usage == known
    assert ctx.render(model="claude").tokens * 1.39 <= 4_000


def test_what_another_handle_learned_is_taken_over(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with talking(where) as one, quire.open(where, budget=4_000) as other:
        report(one, 1.4)
        other.refresh()
        assert other.stats().usage["claude"].factor == pytest.approx(1.4, abs=0.01)
        report(other, 2.0)
        one.refresh()
        assert one.stats().usage["claude"].reports == 2


def test_a_writer_who_was_first_is_no_reason_to_fail(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with talking(where) as one, quire.open(where, budget=4_000) as other:
        one.render()
        other.user("first")
        assert one.report_usage({"input_tokens": 4_000}, "m").reports == 1


def test_a_report_changes_no_view() -> None:
    ctx = talking()
    before = ctx.render()
    ctx.report_usage({"input_tokens": before.tokens * 2}, "m")
    after = ctx.render()
    assert after.openai() == before.openai()
    assert after.shared_prefix == after.tokens
