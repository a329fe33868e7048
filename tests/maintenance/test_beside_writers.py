"""`doctor`, `check` and `backup` beside writing processes: a sound store has no problem at any moment."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quire
from quire import EstimateCounter
from tests.maintenance.store_writers import SHARED
from tests.marks import long, servers
from tests.seeds import SEED
from tests.servers.stores import new_url

ROOT = Path(__file__).parents[2]
WRITERS, ROUNDS, SECONDS = 2, 3, 1.0
LONG_SECONDS = 150.0
"""Ten minutes over the four backends."""


@contextmanager
def writers(url: str) -> Iterator[None]:
    """Run processes that write to a store."""
    program = [sys.executable, "-m", "tests.maintenance.store_writers", url]
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen([*program, str(SEED + number)], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
        for number in range(WRITERS)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield
    finally:
        ended = [process.communicate(timeout=60) for process in running]
    assert [errors for _, errors in ended] == [""] * WRITERS
    changes = [json.loads(out) for out, _ in ended]
    assert all(changes), f"a writer did not write: {changes}"
    assert sum(sum(done.values()) for done in changes) > 15, f"the writers hardly wrote: {changes}"


@pytest.mark.parametrize("backend", ["sqlite", *long("file"), *servers("postgres", "s3")])
def test_a_sound_store_has_no_problem_beside_writers(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    url = new_url(backend, tmp_path, monkeypatch)
    seconds = LONG_SECONDS if request.config.getoption("--long") else SECONDS
    rounds = 0
    with quire.open(url, SHARED, counter=EstimateCounter()) as ctx:
        ctx.user("first")
        stale = quire.open(ctx.pages.storage, SHARED, counter=EstimateCounter())
        with writers(url):
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline or rounds < ROUNDS:
                rounds += 1
                found = [symptom for symptom in quire.doctor(url).symptoms if symptom.severity != "note"]
                assert found == [], f"round {rounds}"
                ctx.refresh()
                assert ctx.check() == [], f"round {rounds}"
                assert stale.check() == [], f"round {rounds}: an old handle"
                if rounds % 5 == 1:
                    done = quire.backup(url, tmp_path / f"copy-{rounds}.db")
                    assert done.problems == (), f"round {rounds}"
                    (tmp_path / f"copy-{rounds}.db").unlink()
    diagnosis = quire.doctor(url, repair=True)
    assert [symptom for symptom in diagnosis.symptoms if symptom.severity != "note"] == []
