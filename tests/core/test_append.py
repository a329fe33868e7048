"""A message that is appended without a plan is stored, applied and shown like one of a plan."""

import os
import time
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pytest

import quire
from quire import IrreducibleFloor
from quire.conversation import conversation
from quire.core import engine
from quire.core.append import append_message
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
    """Return all records and views of a walk, and the number of messages that were appended without a plan."""
    appended = 0

    def append_or_plan(*given: Any) -> int | None:
        nonlocal appended
        number = None if plans else append_message(*given)
        appended += number is not None
        return number

    with monkeypatch.context() as patch:
        clock, chance = count(1_700_000_000_000), Random(number)
        patch.setattr(time, "time_ns", lambda: next(clock) * 1_000_000)
        patch.setattr(engine, "urandom", chance.randbytes)
        patch.setattr(conversation, "append_message", append_or_plan)
        walk = Walk(number)
        found: list[Any] = []
        for _ in range(STEPS):
            walk.step()
            with suppress(IrreducibleFloor):
                found.append(walk.ctx.render(**walk.options()).openai())
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


def test_a_message_at_the_end_needs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
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
    ctx.add({"role": "user", "content": [{"type": "text", "text": "Good."}]})
    monkeypatch.undo()
    assert [message.text for message in ctx.messages()] == ["Hello", "Hello!", "How are you?", "Fine.", "Good."]
    assert ctx.check() == []
