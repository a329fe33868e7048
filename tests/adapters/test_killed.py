"""A killed process that continues in the middle of a turn loses nothing, in each framework."""

import json
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

ROOT = Path(__file__).parent.parent.parent
KINDS = ("langchain,history,store", "pydantic_ai")


def killed(kinds: str, folder: Path, kills: int, seed: int) -> None:
    program = [sys.executable, "-m", "tests.adapters.killing", kinds, str(folder), str(kills), str(seed)]
    run = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, f"seed {seed}:\n{run.stderr}"
    told = json.loads(run.stdout)
    assert list(told) == kinds.split(",")
    assert min(told.values()) >= kills


@pytest.mark.parametrize("kinds", KINDS)
def test_an_agent_that_is_killed_goes_on_and_nothing_is_lost(kinds: str, tmp_path: Path) -> None:
    killed(kinds, tmp_path, 2, 7)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", KINDS)
def test_an_agent_that_is_killed_again_and_again_loses_nothing(kinds: str, tmp_path: Path) -> None:
    killed(kinds, tmp_path, 40, SystemRandom().getrandbits(32))
