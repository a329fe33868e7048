"""Real clients through a task of 300 steps that needs four times the context limit."""

from pathlib import Path

import pytest

from tests.gateway_clients.long_run import run_steps

pytestmark = [pytest.mark.clients, pytest.mark.slow]
STEPS = 300


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_a_task_above_the_limit_has_no_error_and_no_compaction_and_loses_nothing(name: str, tmp_path: Path) -> None:
    outcome = run_steps(name, tmp_path, STEPS)
    assert f"done after {STEPS} steps" in outcome.answer
    assert (outcome.refused, outcome.compactions) == ([], 0)
    assert outcome.shared >= 0.93
    assert outcome.found == STEPS
    assert outcome.has_environment
    assert outcome.in_last_request < STEPS  # most facts are folded at the end
