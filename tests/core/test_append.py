"""A page or message that is appended without a plan is stored, applied and shown like one of a plan."""

import os
import time
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pytest

import quire
from quire import IrreducibleFloor, QuireError, ToolCall
from quire.core import append, engine
from quire.core.engine import Engine
from quire.storage.base import FAMILIES, Storage
from tests.view.states import Walk

SEED = int(os.environ.get("QUIRE_SEED", "9100"))
WALKS, LONG_WALKS = 2, 200
STEPS = 25


def records_of(storage: Storage) -> list[Any]:
    return [
        (name, storage.head(name), [list(storage.scan(name, family)) for family in FAMILIES])
        for name in storage.contexts()
    ]


def run_walk(number: int, monkeypatch: pytest.MonkeyPatch, *, plans: bool) -> tuple[list[Any], int]:
    """Return all records and views of a walk, and the number of commits without a plan."""
    appended = 0
    needs_plan, store = append._needs_plan, append._store

    def count_and_store(*given: Any, **fields: Any) -> None:
        nonlocal appended
        appended += 1
        store(*given, **fields)

    with monkeypatch.context() as patch:
        clock, chance = count(1_700_000_000_000), Random(number)
        patch.setattr(time, "time_ns", lambda: next(clock) * 1_000_000)
        patch.setattr(engine, "urandom", chance.randbytes)
        patch.setattr(append, "_needs_plan", lambda engine: plans or needs_plan(engine))
        patch.setattr(append, "_store", count_and_store)
        walk = Walk(number)
        found: list[Any] = []
        for _ in range(STEPS):
            walk.step()
            with suppress(QuireError):
                folder = walk.chance.choice(("mem", "usr", walk.page("mem")))
                walk.ctx.pages.create_detail_page("Note", walk.text(3), walk.text(), folder, meta={"n": 1})
            with suppress(IrreducibleFloor):
                found.append(walk.ctx.render(**walk.options()).openai())
        walk.ctx.refresh()  # another handle may have written last
        return [*found, walk.ctx.pages.marshal(), records_of(walk.storage)], appended


def test_an_appended_message_is_stored_like_a_planned_one(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = LONG_WALKS if request.config.getoption("--long", default=False) else WALKS
    total = 0
    for number in range(SEED, SEED + walks):
        appended, how_often = run_walk(number, monkeypatch, plans=False)
        planned, _ = run_walk(number, monkeypatch, plans=True)
        assert appended == planned, f"replay with QUIRE_SEED={number}"
        total += how_often
    assert total > 2 * walks


def test_a_page_at_the_end_needs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open("memory:", counter=quire.EstimateCounter())
    ctx.user("Hello")
    ctx.render()
    ctx.assistant("Hello!")  # its view is new: the plan stores the tools that were sent

    def refuse(self: Engine, actor: str) -> None:
        raise AssertionError(f"{actor} begins a plan")

    monkeypatch.setattr(Engine, "begin", refuse)
    ctx.user("How are you?")
    ctx.render()
    ctx.assistant("Fine.")
    ctx.pages.create_detail_page("Note", "", "A text.", "usr")
    ctx.assistant(tool_calls=[ToolCall("c1", "look"), ToolCall("c2", "look")])
    ctx.tool_result("c2", "Two.")
    ctx.tool_result("c1", "One.")
    ctx.assistant("I looked.")
    monkeypatch.undo()
    texts = [message.text for message in ctx.messages()]
    assert texts == ["Hello", "Hello!", "How are you?", "Fine.", "", "Two.", "One.", "I looked."]
    assert ctx.check() == []
