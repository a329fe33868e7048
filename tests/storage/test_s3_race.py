"""Processes write one context and are killed at random: nothing is lost or doubled, the journal has no gaps."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from tests.servers.s3 import fresh_prefix, server
from tests.storage.s3_writers import findings

PROGRAM = Path(__file__).with_name("s3_writers.py")
SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


def race(writers: int, each: int, kills: int) -> None:
    there = server()
    place = {"bucket": there.bucket, "prefix": fresh_prefix(), **there.options()}
    command = [sys.executable, str(PROGRAM), json.dumps(place), str(writers), str(each), str(kills), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"QUIRE_SEED={SEED}\n{done.stderr}"
    report = json.loads(done.stdout)
    assert findings(report) == [], f"QUIRE_SEED={SEED}"
    assert len(report["killed"]) >= kills // 2, "the writers ended before they could be killed"


@pytest.mark.broad
@pytest.mark.parametrize(("writers", "each", "kills"), [(2, 25, 3), (8, 5, 5)])
def test_racing_processes_lose_and_double_nothing(writers: int, each: int, kills: int) -> None:
    race(writers, each, kills)


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "each", "kills"), [(2, 1_000, 100), (8, 200, 200), (32, 100, 200)])
def test_racing_processes_lose_and_double_nothing_for_long(writers: int, each: int, kills: int) -> None:
    race(writers, each, kills)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({}, ""),
        ({"names": ["1-0", "1-1.2/2", "1-1.1/2"]}, "not added together: 1-1"),
        ({"names": ["1-0", "1-1.1/2"], "promised": {"1": ["1-0"]}}, "not added together: 1-1"),
        ({"names": ["1-1.1/2", "1-1.2/2"]}, "lost: 1-0"),
        ({"names": ["1-0", "1-0", "1-1.1/2", "1-1.2/2"]}, "twice: 1-0"),
        ({"names": ["1-2", "1-0", "1-1.1/2", "1-1.2/2"]}, "out of order: 1-0"),
        ({"names": ["1-0", "1-1.1/2", "1-1.2/2", "1-2", "1-3"], "killed": [1]}, "unreported: ['1-2', '1-3']"),
        ({"names": ["1-0", "1-1.1/2", "1-1.2/2", "1-2"]}, "writer 1 reported 3 of 3"),
        ({"promised": {"1": ["1-0"]}}, "writer 1 reported 1 of 3"),
        ({"names": ["1-0", "1-1.1/2", "1-1.2/2", "1-2"], "killed": [1]}, ""),
        ({"torn": ["1-0"]}, "torn: 1-0"),
        ({"gaps": True}, "the journal has gaps"),
    ],
)
def test_every_kind_of_damage_is_found(change: dict[str, object], finding: str) -> None:
    names = ["1-0", "1-1.1/2", "1-1.2/2"]
    report = {"names": names, "promised": {"1": names}, "torn": [], "problems": [], "gaps": False}
    report |= {"killed": [], "each": 3}
    found = findings(report | change)
    assert any(text.startswith(finding) for text in found) if finding else not found
