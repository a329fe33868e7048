"""`kill -9` of a writing process: no acknowledged write is lost, nothing is torn, and the next process continues."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

ROOT = Path(__file__).parent.parent
SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


def kill(kind: str, durability: str, kills: int, folder: Path) -> None:
    program = [sys.executable, "-W", "error", "-m", "tests.killing"]
    done = subprocess.run(
        [*program, kind, str(folder), durability, str(kills), str(SEED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"QUIRE_SEED={SEED}\n{done.stderr}"
    told = json.loads(done.stdout)
    assert told["kills"] == kills
    assert told["acknowledged"] >= kills // 2, f"the writers hardly wrote: {told}"


@pytest.mark.parametrize(("durability", "kills"), [("normal", 40), ("full", 15)])
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_no_acknowledged_write_is_lost_to_a_kill(kind: str, durability: str, kills: int, tmp_path: Path) -> None:
    kill(kind, durability, kills, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["normal", "full"])
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_no_acknowledged_write_is_lost_to_a_thousand_kills(kind: str, durability: str, tmp_path: Path) -> None:
    kill(kind, durability, 1_000, tmp_path)
