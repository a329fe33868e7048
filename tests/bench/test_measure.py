"""Jobs of a benchmark: a finished one is not run again by the same source code."""

from pathlib import Path

import pytest

from bench import measure

_ran: list[int] = []


def _square(number: int) -> int:
    _ran.append(number)
    return number * number


def test_a_finished_job_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ran.clear()
    folder = tmp_path / "jobs" / "digest"
    assert [measure._run_once(folder, _square, (number,)) for number in (2, 3, 2)] == [4, 9, 4]
    assert _ran == [2, 3]
    assert measure._run_once(folder.with_name("other"), _square, (2,)) == 4  # other source code
    assert _ran == [2, 3, 2]
    monkeypatch.setattr(measure, "_JOBS", tmp_path / "jobs")
    measure.forget_jobs()
    assert not folder.exists()


def test_an_interrupted_job_leaves_no_result(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure._run_once(tmp_path, fail, ())
    assert list(tmp_path.iterdir()) == []
