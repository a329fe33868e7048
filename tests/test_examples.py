"""Every example runs offline, as often as one likes in one folder, and is short."""

import runpy
from pathlib import Path

import pytest

from tests.frameworks import REASON, lacks_framework

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if lacks_framework(example.read_text(encoding="utf-8")):
        pytest.skip(REASON)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        runpy.run_path(str(example), run_name="__main__")
        printed = capfd.readouterr()
        assert printed.out.strip()
        assert "HTTP/1" not in printed.err  # the log of a server
    assert not list(tmp_path.iterdir())  # so that they do not get in each other's way either


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_is_short_and_says_what_it_shows(example: Path) -> None:
    source = example.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 40
    assert source.startswith('"""')
