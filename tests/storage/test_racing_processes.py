"""Processes write one context and are killed at random: nothing is lost or doubled, the journal has no gaps."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from tests.marks import long, servers
from tests.servers.stores import new_url
from tests.storage.writers import findings

PROGRAM = Path(__file__).with_name("writers.py")
SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


@pytest.mark.parametrize("numbers", [(2, 25, 3), *long((8, 200, 200), (32, 100, 200))])
@pytest.mark.parametrize("kind", [*long("file", "sqlite"), *servers("postgres", "s3")])
def test_racing_processes_lose_and_double_nothing(
    kind: str, numbers: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those of the writers, of the operations of each, and of the kills."""
    url = new_url(kind, tmp_path, monkeypatch, grace_seconds="120")  # S3 removes old objects during a long race
    command = [sys.executable, str(PROGRAM), url, *map(str, numbers), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"QUIRE_SEED={SEED}\n{done.stderr}"
    report = json.loads(done.stdout)
    assert findings(report) == [], f"QUIRE_SEED={SEED}"
    assert len(report["killed"]) >= numbers[2] // 2, "the writers ended before they could be killed"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({}, ""),
        ({"names": ["1-0", "1-1.1/2"], "promised": {"1": ["1-0"]}}, "not added together: 1-1"),
        ({"names": ["1-1.1/2", "1-1.2/2"]}, "lost: 1-0"),
        ({"names": ["1-0", "1-0", "1-1.1/2", "1-1.2/2"]}, "twice: 1-0"),
        ({"names": ["1-2", "1-0", "1-1.1/2", "1-1.2/2"]}, "out of order: 1-0"),
        ({"names": ["1-0", "1-1.1/2", "1-1.2/2", "1-2", "1-3"], "killed": [1]}, "unreported: ['1-2', '1-3']"),
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
