"""Folding in pauses: after the provider's cache of the last view has expired, a fold costs nothing extra."""

from collections.abc import Iterator
from typing import Any

import pytest

import quire
from quire import CompressionConfig, Context, ContextSystem, InvalidValue, MemoryStorage, View

BUDGET = 2_000
KEPT = 300
SECOND = 1_000


class Hands:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now

    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND


def opened(hands: Hands, storage: MemoryStorage | None = None, **config: Any) -> Context:
    kept = storage or MemoryStorage()
    quire.open(kept, "agent")  # with the usual segments
    system = ContextSystem(kept, "agent", clock=hands)
    return Context(system, budget=BUDGET, compression=CompressionConfig(**config))


def talk(ctx: Context, hands: Hands, turns: int) -> Iterator[View]:
    """Add turns with one view each; the clock moves a little before every question."""
    for turn in range(turns):
        hands.wait(10)
        ctx.user(f"Turn {turn}: which gate has flight HAT{turn}? " + "Please look again. " * 8)
        yield ctx.render()
        ctx.assistant(f"Gate {turn % 40}. " + "It leaves on time. " * 8)


def until(ctx: Context, hands: Hands, share: float = 0.65) -> None:
    """Add turns until a view takes this share of the budget."""
    for view in talk(ctx, hands, 40):
        if view.tokens > share * BUDGET:
            break
    ctx.assistant("That is all.")
    assert not list(ctx.history(operation="fold"))


def test_a_view_that_is_paid_in_full_anyway_folds_before_it_must_in_any_process() -> None:
    hands, storage = Hands(), MemoryStorage()
    ctx = opened(hands, storage, cache_seconds=KEPT)
    until(ctx, hands)
    sent = ctx.render()
    ctx.checkpoint("then")
    hands.wait(KEPT + 1)
    later = opened(hands, storage, cache_seconds=KEPT)
    later.user("And now?")
    assert later.render(preview=True).fold is None  # a preview neither folds nor counts as sent
    view = later.render()
    assert view.fold is not None
    assert view.tokens < 0.65 * BUDGET
    later.user("And again?")
    assert later.render().fold is None  # that view was sent just now
    assert later.as_of("then").render().messages == sent.messages


@pytest.mark.parametrize(
    ("share", "kept", "pause"),
    [(0.65, KEPT, 1), (0.65, KEPT, KEPT - 20), (0.3, KEPT, 10 * KEPT), (0.65, None, 10 * KEPT)],
)
def test_a_warm_prefix_a_small_view_and_no_time_are_no_reason_to_fold(
    share: float, kept: int | None, pause: int
) -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=kept)
    until(ctx, hands, share)
    hands.wait(pause)
    ctx.user("And now?")
    assert ctx.render().fold is None


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "300", True])
def test_a_time_that_is_none_is_refused(seconds: object) -> None:
    with pytest.raises(InvalidValue):
        opened(Hands(), cache_seconds=seconds)
