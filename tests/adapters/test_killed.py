"""A process that dies in the middle of a turn loses nothing, and the next one continues the same conversation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import SEED

ROOT = Path(__file__).parent.parent.parent
KINDS = ("openai", "anthropic", "agents", "langchain", "history", "store", "pydantic_ai")


@pytest.mark.clients
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_is_killed_goes_on_and_nothing_is_lost(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = 40 if request.config.getoption("--long") else 2
    program = [sys.executable, "-m", "tests.adapters.killing", kind, str(tmp_path), str(kills), str(SEED)]
    run = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) >= kills
