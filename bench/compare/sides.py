"""The two versions that are compared: their files, their interpreter, and the processes that measure them."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parents[2]
WORKING_TREE = "the working tree"
_FILES = ("src", "pyproject.toml", "README.md", "LICENSE")


class MeasureError(Exception):
    """A side cannot be measured in this way; the text says why."""


class Side(NamedTuple):
    """A version of quire: its name, its commit, a folder with its files, and the interpreter with its dependencies."""

    name: str
    commit: str
    folder: Path
    python: str


def install(reference: str, folder: Path) -> Side:
    """Put the files of a git reference, or of the working tree, into a folder, and find or make its interpreter.

    Versions with the dependencies of this checkout share its interpreter. Raises `CalledProcessError`.
    """
    folder.mkdir()
    if reference == WORKING_TREE:
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *_FILES).split("\0")
        for name in filter(lambda name: (ROOT / name).is_file(), listed):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    else:
        _git("archive", f"--output={folder}.tar", reference, *_FILES)
        shutil.unpack_archive(f"{folder}.tar", folder, filter="data")
    changed = " and uncommitted changes" if reference == WORKING_TREE and _git("status", "--porcelain", *_FILES) else ""
    commit = _git("rev-parse", "HEAD" if reference == WORKING_TREE else f"{reference}^{{commit}}").strip()
    return Side(reference, commit + changed, folder, _interpreter(folder))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, text=True).stdout


def _interpreter(folder: Path) -> str:
    needed = _requirements(folder)
    if needed == _requirements(ROOT):
        return sys.executable
    print(f"Other dependencies: installing {', '.join(needed)}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([folder / "venv" / "bin" / "python", "-m", "pip", "install", "-q", *needed], check=True)
    return str(folder / "venv" / "bin" / "python")


def _requirements(folder: Path) -> list[str]:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {})
    return sorted([*project["dependencies"], *(each for name in ("postgres", "s3") for each in extras.get(name, ()))])


class Worker:
    """A process that measures one side. It ends with the `with` block."""

    def __init__(self, side: Side, **variables: str) -> None:
        path = os.pathsep.join((str(side.folder / "src"), str(ROOT)))
        variables |= {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
        command, pipe = [side.python, "-m", "bench.compare.worker"], subprocess.PIPE
        environment = {**os.environ, **variables}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)
        found = self.answer()["quire"]
        if not Path(found).is_relative_to(side.folder.resolve()):
            raise MeasureError(f"{side.name} would import {found}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the answer. Raises `MeasureError`."""
        self.send(**command)
        return self.answer()

    def send(self, **command: Any) -> None:
        """Send a command; `answer` returns its answer."""
        assert self._process.stdin is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """Return the answer to the oldest command that has none yet. Raises `MeasureError`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MeasureError(f"the process ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise MeasureError(found["error"])
        return found
