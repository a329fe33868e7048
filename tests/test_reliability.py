"""The program `python -m proof` finds nothing: one topic in each test, as a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import SEED

TOPICS = ("crash", "power", "faults", "load", "concurrency", "security")
"""All but `peers`, which compares quire with other libraries."""


@pytest.mark.slow
@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_finds_nothing(topic: str) -> None:
    """The controls of a topic must find the defects that they plant, or the program fails too."""
    command = [sys.executable, "-m", "proof", "--only", topic, "--seed", str(SEED), "--minutes", "0.5"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
