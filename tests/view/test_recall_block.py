"""Pages for the last user message are recalled at the tail: within their share, once, and never visible ones."""

import random
from typing import Any

import pytest

import quire
from quire import Context, InvalidValue, View
from tests.view_laws.laws import check_shown


def long_talk(budget: int = 1_500, turns: int = 60) -> Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("Prompt.")
    chance = random.Random(3)
    for turn in range(turns):
        ctx.user(f"Turn {turn}: " + " ".join(chance.choices(["pump", "valve", "tank", "seal", "pipe"], k=12)))
        ctx.assistant("Noted: " + " ".join(chance.choices(["yes", "no", "maybe", "later"], k=12)))
        if turn == 5:
            ctx.user("My passport number is XK-77123 and my aunt Mei lives in 青岛.")
            ctx.assistant("Thank you, I will remember it.")
        ctx.render()
    return ctx


def recalled(view: View) -> str:
    return next((str(part.messages[0].content) for part in view.tail if part.kind == "recalled"), "")


@pytest.mark.parametrize(
    ("question", "answer"), [("Where does aunt Mei live?", "青岛"), ("我的护照 passport?", "XK-77123")]
)
def test_what_answers_the_question_comes_back_and_says_from_where_and_why(question: str, answer: str) -> None:
    ctx = long_talk()
    note = ctx.pages.create_detail_page("Family", "who is who", "Aunt Mei has a cat and a passport.", "mem-0")
    ctx.pages.archive(note)
    ctx.user(question)
    ctx.render()
    seq = ctx.seq
    assert ctx.render(preview=True).recalled == []
    view = ctx.render(recall=0.3)
    assert answer in recalled(view)
    check_shown(ctx, view, 1_500)
    assert view.by_kind()["recalled"] <= 450
    assert {entry.operation for entry in ctx.history(after=seq)} <= {"fold"}
    found = {one.index: one for one in view.recalled}
    page = ctx.find("XK-77123", kind="exchange")[0]
    assert ctx.why(page.index).shown == "recalled"
    assert (found[page.index].path, found[page.index].created_at) == (page.path, page.created_at)
    assert found[note].path == ("mem-0",)
    assert all(0 < one.score <= 1 and one.is_new and one.reason for one in view.recalled)
    ctx.assistant("So it is.")  # the block stays before the reply, with its scores and reasons
    later = ctx.render().recalled
    assert [(one.index, one.score, one.reason, one.is_new) for one in later] == [
        (one.index, one.score, one.reason, False) for one in view.recalled
    ]


def test_what_is_visible_is_not_brought_back_and_nothing_comes_twice() -> None:
    ctx = long_talk()
    ctx.user("Which pump and which valve?")
    view = ctx.render(recall=0.4)
    shown = [page for part in view.parts if part.kind != "recalled" for page in part.pages]
    whole = [page.index for page in shown if page.granularity != "line"]
    brought = [page.index for part in view.tail if part.kind == "recalled" for page in part.pages]
    assert brought
    assert len(brought) == len(set(brought))
    assert not set(brought) & set(whole)


MANUAL = {
    "Which code stops boiler seven?": (
        "General remarks on the upkeep of machines.\n",
        "The code that stops boiler 7 is 4471.\n",
    ),
    "七号锅炉的停机密码是多少?": ("设备保养的一般说明,没有什么要紧的内容。\n", "七号锅炉的紧急停机密码是4471。\n"),
}


@pytest.mark.parametrize("question", MANUAL)
@pytest.mark.parametrize(("budget", "share"), [(1_000, True), (1_000, 0.5), (8_000, 0.1)])
def test_of_a_long_page_the_passage_that_answers_comes_back(question: str, budget: int, share: float) -> None:
    filler, answer = MANUAL[question]
    ctx = quire.open("memory:", budget=budget)
    page = ctx.pages.create_detail_page("Manual", "", filler * 200 + answer + filler * 200, "mem-0")
    ctx.pages.archive(page, cold=True)
    ctx.user(question)
    view = ctx.render(recall=share)
    assert "4471" in recalled(view)
    assert view.by_kind()["recalled"] <= budget * (0.9 if share is True else share)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "much", float("nan"), [1]])
def test_a_share_or_a_floor_that_is_none_is_refused(wrong: Any) -> None:
    ctx = quire.open("memory:")
    with pytest.raises(InvalidValue):
        ctx.render(recall=wrong)
    if wrong != 1.5:
        with pytest.raises(InvalidValue):
            ctx.render(recall=True, recall_floor=wrong)
