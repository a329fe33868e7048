"""Many processes on one PostgreSQL store: nothing is lost or doubled, even if processes are killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from tests.servers.postgres import postgres_url

PROGRAM = Path(__file__).with_name("postgres_writers.py")
SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


def run_program(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"QUIRE_SEED={SEED}\n{done.stderr}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_writers_of_one_context_that_are_killed_lose_and_double_nothing() -> None:
    report = run_program("write", postgres_url(), 8, 300, 6, SEED)
    assert (report["acknowledged"] >= 300, report["killed"], report["contexts"]) == (True, 14, 1)


def test_writers_of_different_contexts_lose_nothing() -> None:
    report = run_program("write", postgres_url(), 8, 80, 0, SEED, "apart")
    assert (report["acknowledged"] >= 80, report["contexts"]) == (True, 8)


def test_two_processes_race_every_operation(request: pytest.FixtureRequest) -> None:
    turns = 100 if request.config.getoption("--long") else 2
    report = run_program("race", postgres_url(), turns)
    assert sum(report.values()) == turns * 11


@pytest.mark.slow
def test_thirty_two_writers_of_one_context_lose_and_double_nothing() -> None:
    report = run_program("write", postgres_url(), 32, 5_000, 60, SEED)
    assert (report["acknowledged"] >= 5_000, report["killed"]) == (True, 92)
