"""Changes that are held: carried out once, with what follows or by themselves, and never over what follows."""

from threading import Event, Thread

import pytest

from quire.adapters.openai_agents import holding
from quire.adapters.openai_agents.session import Holds


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Holds:
    monkeypatch.setattr(holding, "MOMENT", 600)  # nothing by itself here
    return Holds()


def test_a_change_is_carried_out_once(holds: Holds) -> None:
    done: list[str] = []
    holds.hold("a", lambda: done.append("first"))
    holds.hold("a", lambda: done.append("second"))
    assert holds.holds("a")
    assert not holds.holds("b")
    holds.settle("a")
    holds.settle("a")
    assert done == ["first"]
    assert not holds.holds("a")


def test_a_change_that_fails_is_held_as_before(holds: Holds) -> None:
    def fail() -> None:
        raise OSError("full")

    holds.hold("a", fail)
    with pytest.raises(OSError, match="full"):
        holds.settle("a")
    assert holds.holds("a")
    with holds.taken("a") as is_held:
        assert is_held
    assert not holds.holds("a")


def test_what_follows_waits_for_a_change_that_is_being_carried_out(holds: Holds) -> None:
    order: list[str] = []
    begun, goes_on = Event(), Event()

    def clear() -> None:
        begun.set()
        assert goes_on.wait(60)
        order.append("cleared")

    def add() -> None:
        with holds.taken("a") as is_held:
            order.append("cleared and added" if is_held else "added")

    holds.hold("a", clear)
    clearing, adding = Thread(target=holds.settle, args=["a"]), Thread(target=add)
    clearing.start()
    assert begun.wait(60)
    adding.start()
    adding.join(0.2)  # long enough to get ahead, if it could
    goes_on.set()
    clearing.join()
    adding.join()
    assert order == ["cleared", "added"]
