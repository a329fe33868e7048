"""The topic of storage faults: its controls are found, and a slice of it finds nothing."""

from pathlib import Path
from random import Random

import pytest

from proof import faults
from proof.topic import Options


def test_the_controls_are_found(tmp_path: Path) -> None:
    controls = list(faults.control(Options(folder=tmp_path, seed=1, backends=("memory",))))
    assert [control.found for control in controls] == [True, True]


@pytest.mark.parametrize("kind", [*faults.KINDS, "short write"])
@pytest.mark.parametrize("backend", ["sqlite", "file"])
def test_a_commit_that_fails(backend: str, kind: str, tmp_path: Path) -> None:
    trials = faults.Trials(backend, tmp_path)
    name = "conversation: import_messages"
    number = trials.course(name).calls.index("commit") + 1 if kind != "short write" else 1
    assert trials.fail(name, number, kind, Random(1)) == (True, "")
