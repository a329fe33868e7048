"""The topic of security: hostile names and damaged records raise typed errors only."""

from pathlib import Path

import pytest

from proof import security
from proof.topic import Options


@pytest.mark.parametrize("backend", ["memory", "sqlite", "file"])
def test_a_hostile_name_comes_back_or_is_refused(backend: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    check = security.hostile_names(backend, Options(folder=tmp_path / "store", seed=1))
    assert (check.findings, check.count) == ([], len(security.NAMES) * 8)


def test_damaged_records_raise_typed_errors(tmp_path: Path) -> None:
    assert security.decoders(Options(folder=tmp_path, seed=1), 1).findings == []


def test_a_dependency_without_bounds_is_found() -> None:
    assert security.dependencies(["msgspec<1,>=0.20"]).findings == []
    assert len(security.dependencies(["msgspec", "msgspec<0.1,>=0.0.1"]).findings) == 2
