"""Generated histories: the same for a number, with evidence that answers, and apart for tuning and reporting."""

from bench.histories import HELD_OUT, TUNED, make_history
from bench.history_recall import BUDGET, store_history


def test_a_number_determines_a_history_and_the_halves_are_apart() -> None:
    assert make_history(3) == make_history(3) != make_history(1)
    assert not set(TUNED) & set(HELD_OUT)
    assert all(number % 2 == 0 for number in TUNED)
    assert all(number % 2 for number in HELD_OUT)


def test_every_question_has_evidence_in_the_order_of_time() -> None:
    history = make_history(0)
    times = [said.when for said in history.messages]
    assert times == sorted(times)
    assert len(history.messages) > 500
    assert {one.kind for one in history.questions} == {
        *("last value", "before", "contradiction", "Chinese", "you", "I", "when decided", "code", "plan"),
        *("other words", "before, by value", "when changed", "plan in other words", "one of two"),
        *("code, last state", "code, why"),
    }
    for one in history.questions:
        assert one.evidence
        assert all(stale < min(one.evidence) for stale in one.stale)
        wanted = {"you": "assistant", "I": "user"}.get(one.kind)
        assert wanted is None or [history.messages[number].role for number in one.evidence] == [wanted]


def test_you_and_i_recall_what_each_of_them_said() -> None:
    history = make_history(0)
    context = store_history(history)
    for one in history.questions:
        if one.kind in ("you", "I"):
            with context.temporary():
                context.user(one.question)
                view = context.render(recall=True)
            said = {page.index: page for page in view.recalled}
            best = max(said.values(), key=lambda page: page.score)
            assert view.tokens <= BUDGET
            text = history.messages[one.evidence[0]].text
            assert text in context.pages.detail(best.index)
