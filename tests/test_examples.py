"""Every example runs offline, any number of times in one folder, and leaves nothing behind."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks import uses_framework
from tests.marks import long

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples"
LARGE = {
    "airline_support": (),
    "assistant": ("--turns", "90"),
    "coding_agent": ("--rounds", "1"),
    "team": ("--tickets", "9"),
    "week": ("--days", "3", "--tickets", "5", "--customers", "2"),
}
"""The larger examples, each with the options that make it short enough for the normal run."""
SHORT = sorted(path for path in FOLDER.glob("*.py") if path.stem not in LARGE)


def marks(example: Path) -> list[pytest.MarkDecorator]:
    """Return the mark of an example that needs a framework."""
    return [pytest.mark.clients] if uses_framework(example.read_text(encoding="utf-8")) else []


@pytest.mark.parametrize("example", [pytest.param(path, marks=marks(path), id=path.stem) for path in SHORT])
def test_the_example_runs_twice_is_short_and_says_what_it_shows(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = example.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 40
    assert source.startswith('"""')
    assert f"`python examples/{example.name}`" in (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        runpy.run_path(str(example), run_name="__main__")
        printed = capfd.readouterr()
        assert printed.out.strip()
        assert "HTTP/1" not in printed.err  # a server's log
    assert not list(tmp_path.iterdir())  # so that the examples do not affect each other


@pytest.mark.parametrize("name", ["airline_support", *long("assistant", "coding_agent", "team")])
def test_the_larger_example_runs_in_a_small_form(name: str, tmp_path: Path) -> None:
    assert_it_runs(name, LARGE[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_larger_example_runs_as_it_is(name: str, tmp_path: Path) -> None:
    assert_it_runs(name, (), tmp_path)


@pytest.mark.parametrize("name", LARGE)
def test_the_larger_example_can_be_read_and_copied(name: str) -> None:
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 150
    assert source.startswith('"""')
    assert f"python examples/{name}.py" in source
    assert f"`python examples/{name}.py`" in (ROOT / "docs/examples.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", [*(FOLDER / f"{name}.py" for name in LARGE), *(FOLDER / "parts").glob("*.py")], ids=lambda path: path.stem
)
def test_the_larger_example_needs_nothing_but_quire(path: Path) -> None:
    used = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else _module(node))
    }
    assert used <= {*sys.stdlib_module_names, "quire", "parts"}


def _module(node: ast.AST) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def assert_it_runs(name: str, arguments: tuple[str, ...], place: Path) -> None:
    """Run an example as a user does. It checks its results; here, that it prints figures and leaves no files."""
    work, temporary = place / "work", place / "temporary"
    work.mkdir()
    temporary.mkdir()
    command = [sys.executable, "-B", str(FOLDER / f"{name}.py"), *arguments]
    surroundings = {**os.environ, "TMPDIR": str(temporary), "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, cwd=work, env=surroundings, capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 views broke a rule" in done.stdout
    assert not list(work.iterdir())
    assert not list(temporary.iterdir())
