"""The topic of concurrency: changed histories are found, and a call can be cancelled at every await."""

from pathlib import Path

import pytest

from proof import concurrency
from proof.topic import Options


def test_the_controls_are_found(tmp_path: Path) -> None:
    controls = list(concurrency.control(Options(folder=tmp_path, seed=1)))
    assert [control.found for control in controls] == [True, True, True]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_a_call_can_be_cancelled_at_every_await(backend: str, tmp_path: Path) -> None:
    check = concurrency.cancellation(backend, Options(folder=tmp_path, seed=1))
    assert check.findings == []
    assert check.count >= len(concurrency.CALLS)
