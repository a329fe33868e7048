"""Ctrl-C at any instruction of a commit. The commit is made or not made, and the context stays sound."""

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dis import opname
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import quire
from quire.storage import memory, overlay
from quire.storage.file import log, storage

FILES = {module.__file__ for module in (memory, overlay, log, storage)}


class Interrupt:
    """Raises KeyboardInterrupt at one of the instructions after which Python looks for signals, counted from 0."""

    def __init__(self, at: int) -> None:
        self.left = at
        self._looks: dict[FrameType, bool] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            looks = self._looks.get(frame, False)
            self._looks[frame] = opname[frame.f_code.co_code[frame.f_lasti]].startswith(("CALL", "RESUME", "JUMP_BACK"))
            self.left -= looks
            if looks and self.left == -1:
                raise KeyboardInterrupt
        return self


def interrupt_at(at: int, call: Callable[[], object]) -> bool:
    """Make a call that is interrupted at an instruction. Return whether it ran that far."""
    interrupt, before = Interrupt(at), sys.gettrace()
    sys.settrace(interrupt)
    try:
        with suppress(KeyboardInterrupt):
            call()
    finally:
        sys.settrace(before)
    return interrupt.left < 0


@pytest.mark.parametrize("where", ["memory", "file", "overlay"])
def test_an_interrupted_commit_is_made_or_not_made(where: str, tmp_path: Path) -> None:
    at, outcomes = 0, set()
    while True:
        with quire.open(f"file:{tmp_path / str(at)}" if where == "file" else "memory:", key="k") as ctx:
            for number in range(3):
                ctx.pages.create_detail_page(f"Note {number}", "", f"Text {number}", "mem-0")
            with ctx.conversation.temporary() if where == "overlay" else nullcontext():
                before = ctx.seq
                call = partial(ctx.pages.create_contents_page, "Both", "Two notes", "mem-0", ["mem-1", "mem-3"])
                reached = interrupt_at(at, call)
                again = quire.open(ctx.pages.storage, ctx.name)
                assert again.check() == [], at
                assert again.seq in (before, before + 1)
                assert [entry.seq for entry in again.pages.history()] == list(range(1, again.seq + 1))
                outcomes.add(again.seq - before)
                ctx.add({"role": "user", "content": "Go on"})  # the interrupted handle works too
                assert ctx.check() == []
            assert ctx.check() == []
        if not reached:
            break
        at += 3 if where == "file" else 1
    assert outcomes == {0, 1}


def test_an_interrupted_drop_leaves_nothing_for_the_next_context_of_that_name() -> None:
    at = 0
    reached = True
    while reached:
        storage = memory.MemoryStorage()
        quire.open(storage, key="k").pages.create_detail_page("Old", "", "Text", "mem-0")
        reached = interrupt_at(at, partial(storage.drop, "default"))
        if storage.head("default") is None:
            again = quire.open(storage, key="k")
            assert again.check() == []
            assert [page.name for page in again.pages.list_pages("mem")] == ["Memory"]
        at += 1
