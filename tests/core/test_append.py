"""A page or message that is appended without a plan is stored, applied and shown like one of a plan."""

import os
import time
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pytest

import quire
from quire import IrreducibleFloor, QuireError, Storage, ToolCall
from quire.core import append, engine
from quire.core.engine import Engine
from quire.storage.base import FAMILIES
from tests.view.states import Walk

SEED = int(os.environ.get("QUIRE_SEED", "9100"))
WALKS, LONG_WALKS = 2, 200
STEPS = 25


def records_of(storage: Storage) -> list[Any]:
    return [
        (name, storage.head(name), [list(storage.scan(name, family)) for family in FAMILIES])
        for name in storage.contexts()
    ]


def take_step(walk: Walk) -> None:
    """Do a step of the walk, and add a page. What is refused is left out."""
    walk.step()
    with suppress(QuireError):
        folder = walk.chance.choice(("mem", "usr", walk.page("mem")))
        walk.ctx.pages.create_detail_page("Note", walk.text(3), walk.text(), folder, meta={"n": 1})


def run_walk(number: int, monkeypatch: pytest.MonkeyPatch, *, plans: bool, turns: bool) -> tuple[list[Any], int]:
    """Return all records and views of a walk, and the number of commits without a plan.

    With `turns`, every step is a turn, some with a key.
    """
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
        for step in range(STEPS):
            if turns:
                with walk.ctx.turn(f"step {step}" if step % 5 == 0 else None, keep=True):
                    take_step(walk)
            else:
                take_step(walk)
            with suppress(IrreducibleFloor):
                found.append(walk.ctx.render(**walk.options()).openai())
        walk.ctx.refresh()  # another handle may have written last
        return [*found, walk.ctx.pages.marshal(), records_of(walk.storage)], appended


@pytest.mark.parametrize("turns", [False, True])
def test_an_appended_message_is_stored_like_a_planned_one(
    turns: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = LONG_WALKS if request.config.getoption("--long", default=False) else WALKS
    total = 0
    for number in range(SEED, SEED + walks):
        appended, how_often = run_walk(number, monkeypatch, plans=False, turns=turns)
        planned, _ = run_walk(number, monkeypatch, plans=True, turns=turns)
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
    with ctx.turn():
        ctx.user("And now?")
        view = ctx.render()
        ctx.add({"role": "assistant", "content": "Still fine."}, view=view)
    monkeypatch.undo()
    texts = [message.text for message in ctx.messages()]
    before = ["Hello", "Hello!", "How are you?", "Fine.", "", "Two.", "One.", "I looked."]
    assert texts == [*before, "And now?", "Still fine."]
    assert ctx.check() == []
