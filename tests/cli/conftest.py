"""A store to run commands on, and running them."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

import pytest

import quire
from quire.cli import main

NAME = "支持-42"


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    def values(self) -> list[Any]:
        """What it printed as JSON, line by line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def value(self) -> Any:
        """The one JSON value it printed."""
        (value,) = self.values()
        return value


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, in a terminal of a usual width."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run(*words: object) -> Ended:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def store(tmp_path: Path, written: Path) -> Path:
    """A store with one context: notes in a folder, a cold one, a conversation with a tool call, and a checkpoint."""
    return Path(copyfile(written, tmp_path / "agent.db"))


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `store` is a copy of."""
    file = tmp_path_factory.mktemp("written") / "agent.db"
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
