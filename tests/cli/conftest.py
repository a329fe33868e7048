"""Fixtures: a store, and a function that runs commands."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

import pytest

import quire
from quire.cli import main

NAME = "支持-42"


class Result(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    def values(self) -> list[Any]:
        """Return the JSON values that it printed, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def value(self) -> Any:
        """Return the only JSON value that it printed."""
        (value,) = self.values()
        return value


Run = Callable[..., Result]


def run_here(words: list[str], capsys: pytest.CaptureFixture[str]) -> Result:
    """Run a command in this process."""
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return Result(code, *capsys.readouterr())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command in this process, with a width of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    return lambda *words: run_here([str(word) for word in words], capsys)


@pytest.fixture
def store(tmp_path: Path, written: Path) -> Path:
    """Return a store with one context: notes in a folder, a cold note, a conversation with a call, a checkpoint."""
    return Path(copyfile(written, tmp_path / "agent.db"))


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the store that `store` copies."""
    return write_store(tmp_path_factory.mktemp("written") / "agent.db")


def write_store(file: Path) -> Path:
    """Write a store with one context: notes in a folder, a cold note, a checkpoint, a conversation with a call."""
    with quire.open(file, NAME) as context:
        pages = context.pages
        context.system("You are a careful travel agent.")
        note = pages.create_detail_page("座位", "靠窗", "乘客想要靠窗的座位。", "mem-0")  # mem-1
        pages.create_contents_page("Wishes", "What the traveller wants", "mem-0", [note])  # mem-2
        old = pages.create_detail_page("Old note", "", "An old note about trains.", "mem-0")  # mem-3
        pages.archive(old, cold=True)
        context.checkpoint("before")
        context.user("I want to fly to Seattle on May 20. 我要靠窗的座位。")
        context.assistant("Let me look.", [quire.ToolCall("call_1", "search", '{"to":"SEA"}')])
        context.tool_result("call_1", "HAT217 at 08:00, 座位 12A")
        context.assistant("Flight HAT217 at 08:00 has a window seat.")
    return file
