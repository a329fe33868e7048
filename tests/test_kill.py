"""`kill -9` of a writing process: no acknowledged write is lost, nothing is torn, and the next process continues."""

import os
from pathlib import Path
from random import SystemRandom

import pytest

from proof.crash import kill_writers

SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


@pytest.mark.parametrize("kills", [3, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["sqlite", "file"])
def test_no_acknowledged_write_is_lost_to_a_kill(backend: str, kills: int, tmp_path: Path) -> None:
    check = kill_writers(backend, kills, SEED, tmp_path)
    assert check.findings == [], f"QUIRE_SEED={SEED}"
    assert check.count == kills
    assert int(check.facts["acknowledged operations"]) >= kills, f"the writers hardly wrote: {check.facts}"
