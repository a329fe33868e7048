"""The program `python -m proof` finds nothing: one topic in each test, as a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import SEED

ROOT = Path(__file__).parents[1]
MINUTES = 0.5
"""The time of a topic. `python -m proof --minutes` takes more."""
TOPICS = ("crash", "power", "faults", "load", "concurrency", "security")
"""All but `peers`, which compares quire with other libraries."""


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_finds_nothing(topic: str) -> None:
    """The controls of a topic must find the defects that they plant, or the program fails too."""
    command = [sys.executable, "-m", "proof", "--only", topic, "--seed", str(SEED), "--minutes", str(MINUTES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
