"""The ratio of billed to counted tokens of models: learned, stored, shown, and applied to the budget."""

from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Context, InvalidOperation, InvalidValue


def talking(where: Any = "memory:", turns: int = 12) -> Context:
    ctx = quire.open(where, budget=4_000)
    ctx.system("You are careful.")
    for turn in range(turns):
        ctx.user(f"问题 {turn}: what about it? " + "word " * 40)
        ctx.assistant("Let me see. " + "word " * 40)
    return ctx


def report(ctx: Context, factor: float, model: str | None = "claude") -> None:
    ctx.report_usage({"input_tokens": round(ctx.render().tokens * factor)}, model)


def test_a_report_is_compared_with_the_last_view_and_changes_no_view() -> None:
    ctx = talking()
    view = ctx.render()
    billed = {"prompt_tokens": 2 * view.tokens, "prompt_tokens_details": {"cached_tokens": 5}}
    found = ctx.report_usage(billed, "m")
    assert (found.model, found.factor, found.error, found.reports) == ("m", 2.0, 0.0, 1)
    assert (found.counted, found.billed, found.cached) == (view.tokens, 2 * view.tokens, 5)
    assert ctx.stats().usage == {"m": found}
    assert ctx.render().openai() == view.openai()


def test_other_views_are_no_measure_unless_they_are_given_and_tools_count() -> None:
    ctx = talking()
    own = ctx.render(reserve=500)
    small = ctx.render(max_tokens=900)
    ctx.render(preview=True)
    assert ctx.report_usage({"input_tokens": 3_000}).counted == own.tokens
    assert ctx.report_usage({"input_tokens": 3_000}, tools=300).counted == own.tokens + 300
    assert ctx.report_usage({"input_tokens": 1_000}, view=small).counted == small.tokens


@pytest.mark.parametrize(
    "bad",
    [
        *({"model": 5}, {"model": ""}, {"tools": -1}, {"tools": "x"}, {"view": "x"}),
        *({"usage": object()}, {"usage": {"input_tokens": 99_999_999}}, {"usage": {"input_tokens": 1}}),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_learned(bad: dict[str, Any]) -> None:
    ctx = talking()
    with pytest.raises(InvalidOperation):  # there is no view yet
        ctx.report_usage({"input_tokens": 5})
    tokens = ctx.render().tokens
    with pytest.raises(InvalidValue):
        ctx.report_usage(**{"usage": {"input_tokens": tokens}, **bad})
    for model in (5, "", ["m"]):
        with pytest.raises(InvalidValue):
            ctx.render(model=model)  # type: ignore[arg-type]
    assert ctx.stats().usage == {}


def test_the_budget_is_in_the_tokens_of_the_model() -> None:
    ctx = talking(turns=60)
    for model, factor in (("thrifty", 1.4), ("lavish", 0.7)):
        report(ctx, factor, model)
    assert ctx.render(model="unheard-of").tokens == ctx.render().tokens
    for turn in range(30):
        ctx.user(f"第 {turn} 个问题 " + "字" * 30)
        view = ctx.render(model="thrifty-2026-01-01")
        assert view.tokens * 1.4 <= 4_000
        assert view.budget == 4_000


def test_it_is_known_again_after_reopening_and_in_a_fork(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with talking(where, turns=60) as ctx:
        report(ctx, 1.4)
        shown = ctx.render(model="claude").tokens
        assert ctx.fork("other").stats().usage == ctx.stats().usage
    with quire.open(where, budget=4_000) as again:
        assert again.stats().usage["claude"].factor == pytest.approx(1.4, abs=0.01)
        assert again.render(model="claude").tokens == shown
        assert again.check() == []


def test_steps_back_leave_it_alone() -> None:
    ctx = talking()
    ctx.checkpoint("before")
    ctx.user("more")
    entry = ctx.seq
    report(ctx, 1.4)
    reported = ctx.seq
    ctx.undo(entry)
    known = ctx.stats().usage
    assert known["claude"].reports == 1
    with pytest.raises(InvalidOperation):
        ctx.undo(reported)
    ctx.rollback("before")
    assert ctx.stats().usage == known
    assert ctx.render(model="claude").tokens * 1.39 <= 4_000


def test_another_writer_is_no_reason_to_fail_and_learns_what_this_one_did(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with talking(where) as one, quire.open(where, budget=4_000) as other:
        report(one, 1.4)
        other.refresh()
        assert other.stats().usage["claude"].factor == pytest.approx(1.4, abs=0.01)
        report(other, 2.0)
        one.refresh()
        assert one.stats().usage["claude"].reports == 2
        one.render()
        other.user("first")
        assert one.report_usage({"input_tokens": 4_000}, "m").reports == 1
