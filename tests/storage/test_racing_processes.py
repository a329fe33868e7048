"""Processes write one context and are killed at random: nothing is lost, doubled or torn."""

from pathlib import Path

import pytest

from tests.marks import long, servers
from tests.seeds import SEED
from tests.servers.stores import new_url
from tests.storage.racing import Race


@pytest.mark.parametrize("numbers", [(2, 8, 2), *long((8, 60, 100), (32, 30, 100))])
@pytest.mark.parametrize("kind", ["file", *long("sqlite"), *servers("postgres", "s3")])
def test_racing_processes_lose_and_double_nothing(
    kind: str, numbers: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those of the writers, of the steps of each, and of the kills."""
    url = new_url(kind, tmp_path, monkeypatch)
    race = Race(url, tmp_path, SEED, steps=numbers[1])
    race.run(numbers[0], numbers[2])
    race.check(url)
