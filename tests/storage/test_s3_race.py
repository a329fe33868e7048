"""Processes write one context and are killed at random: no page is lost or doubled, the journal has no gaps."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import SystemRandom

import pytest

from tests.servers.s3 import fresh_prefix, server

PROGRAM = Path(__file__).with_name("s3_writers.py")
SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


def race(writers: int, each: int, kills: int) -> None:
    there = server()
    place = {"bucket": there.bucket, "prefix": fresh_prefix(), **there.options()}
    command = [sys.executable, str(PROGRAM), json.dumps(place), str(writers), str(each), str(kills), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"QUIRE_SEED={SEED}\n{done.stderr}"
    report = json.loads(done.stdout)
    assert (report["problems"], report["torn"], report["gaps"]) == ([], [], False), f"QUIRE_SEED={SEED}"
    times = Counter(report["names"])
    assert set(times.values()) == {1}, f"doubled: {[name for name, count in times.items() if count > 1]}"
    unheard = set(times)
    for names in report["promised"].values():
        assert set(names) <= unheard, f"lost: {set(names) - set(times)}, QUIRE_SEED={SEED}"
        unheard -= set(names)
    assert len(unheard) <= report["killed"], "more than one page per killed writer"
    assert report["killed"] >= kills // 2, "the writers ended before they could be killed"
    in_order = {life: [n for n in report["names"] if n.startswith(f"{life}-")] for life in report["promised"]}
    for names in in_order.values():
        assert names == sorted(names, key=lambda name: int(name.partition("-")[2]))


@pytest.mark.broad
@pytest.mark.parametrize(("writers", "each", "kills"), [(2, 25, 3), (8, 5, 5)])
def test_racing_processes_lose_and_double_nothing(writers: int, each: int, kills: int) -> None:
    race(writers, each, kills)


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "each", "kills"), [(2, 1_000, 100), (8, 200, 200), (32, 100, 200)])
def test_racing_processes_lose_and_double_nothing_for_long(writers: int, each: int, kills: int) -> None:
    race(writers, each, kills)
