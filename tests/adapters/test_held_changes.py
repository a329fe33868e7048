"""Delayed changes: applied once, with the next change or alone, and never after a later change."""

from threading import Event, Thread

import pytest

from quire.adapters.openai_agents import session
from quire.adapters.openai_agents.session import HeldChanges


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> HeldChanges:
    monkeypatch.setattr(session, "MOMENT", 600)  # nothing is applied automatically here
    return HeldChanges()


def test_a_change_is_carried_out_once(holds: HeldChanges) -> None:
    done: list[str] = []
    holds.add("a", lambda: done.append("first"))
    holds.add("a", lambda: done.append("second"))
    assert holds.has("a")
    assert not holds.has("b")
    holds.settle("a")
    holds.settle("a")
    assert done == ["first"]
    assert not holds.has("a")


def test_a_change_that_fails_is_held_as_before(holds: HeldChanges) -> None:
    def fail() -> None:
        raise OSError("full")

    holds.add("a", fail)
    with pytest.raises(OSError, match="full"):
        holds.settle("a")
    assert holds.has("a")
    with holds.take("a") as is_held:
        assert is_held
    assert not holds.has("a")


def test_what_follows_waits_for_a_change_that_is_being_carried_out(holds: HeldChanges) -> None:
    order: list[str] = []
    begun, goes_on = Event(), Event()

    def clear() -> None:
        begun.set()
        assert goes_on.wait(60)
        order.append("cleared")

    def add() -> None:
        with holds.take("a") as is_held:
            order.append("cleared and added" if is_held else "added")

    holds.add("a", clear)
    clearing, adding = Thread(target=holds.settle, args=["a"]), Thread(target=add)
    clearing.start()
    assert begun.wait(60)
    adding.start()
    adding.join(0.2)  # long enough to overtake, if it could
    goes_on.set()
    clearing.join()
    adding.join()
    assert order == ["cleared", "added"]
