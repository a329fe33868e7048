"""Sessions of several turns with real clients, which outgrow their budget in a later turn.

With `--long` each client has further sessions of other shapes.
"""

import random
from pathlib import Path

import pytest

from tests.gateway_clients.records import find_words
from tests.gateway_clients.sessions import Outcome, plan_turns, run_session
from tests.known_failures import until_step
from tests.seeds import SEED

pytestmark = pytest.mark.clients
CLIENTS = ("claude", "codex", "opencode", "qwen")
TURNS = 6
CERTAIN = 0.9
"""A request below this share of the budget fits in any case: the gateway also counts encrypted reasoning."""


@pytest.mark.parametrize("name", CLIENTS)
def test_a_session_that_folds_in_a_later_turn_is_legal_and_loses_nothing(name: str, tmp_path: Path) -> None:
    check_laws(run_session(name, tmp_path, plan_turns(SEED, TURNS)), tmp_path / "agent.db")


@until_step(5, "a fold leaves a system message before a user message", example_of="system_after_fold")
def test_claude_code_gets_no_illegal_request_in_a_later_turn(tmp_path: Path) -> None:
    outcome = run_session("claude", tmp_path, plan_turns(7, 3), share=0.4)
    assert outcome.folds >= 1
    assert [problem.rule for problem in (*outcome.refused, *outcome.tolerated)] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", CLIENTS)
def test_random_sessions_are_legal_and_lose_nothing(name: str, number: int, tmp_path: Path) -> None:
    seed = SEED + number
    share = random.Random(seed).choice((0.3, 0.5, 0.7))
    check_laws(run_session(name, tmp_path, plan_turns(seed, 12), share=share), tmp_path / "agent.db")


def check_laws(outcome: Outcome, store: Path) -> None:
    """Check what holds for every session, whatever the client and the plan."""
    for turn, answer in zip(outcome.turns, outcome.answers, strict=True):
        assert f"task {turn.task} is done after {turn.steps} steps" in answer
    assert (outcome.refused, outcome.compactions) == ([], 0)
    check_record(outcome)
    check_bytes(outcome)
    assert outcome.folds >= 1
    assert outcome.count_breaks() <= outcome.folds  # between folds, the start of the conversation stays
    remarks = [turn.remark for turn in outcome.turns]
    assert find_words(store, [words for words in remarks if words not in outcome.last]) == []
    assert find_words(store, outcome.facts) == []


def check_record(outcome: Outcome) -> None:
    """Check that everything is recorded once: calls, results, answers, and what the person typed."""
    (record,) = outcome.records.values()
    calls = [call for turn in outcome.turns for call in turn.calls]
    assert record.problems == []
    assert record.calls == record.results == calls
    assert record.answers == len(calls) + len(outcome.turns)
    assert [record.count(turn.prompt) for turn in outcome.turns] == [1] * len(outcome.turns)


def check_bytes(outcome: Outcome) -> None:
    """Check that what fits arrives as it was sent, and that what does not fit arrives shorter."""
    assert all(sent.is_same for sent in outcome.below)
    for sent in outcome.above:
        assert sent.is_same or sent.needed > CERTAIN * outcome.budget
        assert not sent.is_same or sent.needed <= outcome.budget
        assert sent.tokens <= outcome.budget
