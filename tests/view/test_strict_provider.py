"""Conversations far beyond the budget, judged by the strict provider: no request is refused, no view is too large.

Every reply thinks, a window is open, recall is on, and the model writes notes.
"""

from functools import partial
from random import Random

import pytest

from tests.marks import long
from tests.strict_provider.disturbances import disturb
from tests.strict_provider.driver import APIS, Outcome, drive, make_loop, make_talk
from tests.strict_provider.requests import Api


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("budget", [2_000, *long(4_000, 8_000)])
def test_no_request_is_refused_and_no_view_is_too_large(api: Api, budget: int, request: pytest.FixtureRequest) -> None:
    turns, seeds = (120, range(10)) if request.config.getoption("--long") else (10, range(1))
    outcome = Outcome()
    for seed in seeds:
        outcome += drive(list(make_talk(seed, turns)), api, budget, capacity=budget // 8)
    check(outcome)
    assert outcome.calls > turns
    assert outcome.folds > 0
    assert outcome.notes > turns // 4
    assert outcome.thinking > 0 or api == "chat"


@pytest.mark.parametrize("api", ["anthropic", "responses"])
def test_one_answer_with_many_tool_calls(api: Api, request: pytest.FixtureRequest) -> None:
    steps = 300 if request.config.getoption("--long") else 25
    outcome = drive(list(make_loop(steps)), api, 4_000)
    check(outcome)
    assert outcome.folds > 0
    assert outcome.thinking > 2 * steps
    assert outcome.in_loop < steps / 5


@pytest.mark.parametrize("api", APIS)
def test_changes_between_the_turns_leave_every_request_legal(api: Api, request: pytest.FixtureRequest) -> None:
    turns, seeds = (60, range(30)) if request.config.getoption("--long") else (7, range(1))
    for seed in seeds:
        outcome = drive(list(make_talk(seed, turns)), api, 3_000, disturb=partial(disturb, random=Random(seed)))
        check(outcome, f"seed {seed}")


def check(outcome: Outcome, note: str = "") -> None:
    causes = {(api, problem.rule): (call, problem.message) for call, api, problem in reversed(outcome.refused)}
    assert causes == {}, note
    assert outcome.too_large == [], note
    assert outcome.floors == [], note
