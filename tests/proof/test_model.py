"""The topic of the models: a broken rule is found."""

from pathlib import Path

from proof import model
from proof.topic import Options


def test_the_controls_are_found(tmp_path: Path) -> None:
    assert [control.found for control in model.control(Options(folder=tmp_path, seed=1))] == [True, True]
