"""A process that dies in the middle of a turn loses nothing, and the next one continues the same conversation."""

import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

ROOT = Path(__file__).parent.parent.parent
SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


def test_killed_in_the_middle_of_turns(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills = "40" if request.config.getoption("--long") else "2"
    program = [sys.executable, "-m", "tests.adapters.sdk_killing"]
    done = subprocess.run(
        [*program, "agents,openai,anthropic", str(tmp_path), kills, str(SEED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"QUIRE_SEED={SEED}\n{done.stderr}"
    assert done.stdout.count("turns") == 3, done.stdout
