"""Folding in pauses: after the provider's cache of the last view has expired, a fold costs nothing extra."""

from collections.abc import Iterator

import pytest

import quire
from quire import CompressionConfig, Context, ContextSystem, InvalidValue, MemoryStorage

BUDGET = 2_000
KEPT = 300
SECOND = 1_000


class Hands:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


def opened(hands: Hands, storage: MemoryStorage | None = None, **config: object) -> Context:
    kept = storage or MemoryStorage()
    quire.open(kept, "agent")  # with the usual segments
    system = ContextSystem(kept, "agent", clock=hands)
    return Context(system, budget=BUDGET, compression=CompressionConfig(**config))  # type: ignore[arg-type]


def talk(ctx: Context, hands: Hands, turns: int, pause: int = 10) -> Iterator[quire.View]:
    """Add turns with one view each; the clock moves before every question."""
    for turn in range(turns):
        hands.now += pause * SECOND
        ctx.user(f"Turn {turn}: which gate has flight HAT{turn}? " + "Please look again. " * 8)
        yield ctx.render()
        ctx.assistant(f"Gate {turn % 40}. " + "It leaves on time. " * 8)


def until(ctx: Context, hands: Hands, share: float) -> None:
    """Add turns until a view takes this share of the budget."""
    for view in talk(ctx, hands, 40):
        if view.tokens > share * BUDGET:
            break
    ctx.assistant("That is all.")
    assert not list(ctx.history(operation="fold"))


def test_a_view_that_is_paid_in_full_anyway_folds_before_it_must() -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    hands.now += (KEPT + 1) * SECOND
    ctx.user("And now?")
    view = ctx.render()
    assert view.fold is not None
    assert view.tokens < 0.5 * BUDGET


@pytest.mark.parametrize("seconds", [1, KEPT - 1])
def test_while_the_prefix_is_warm_nothing_folds_early(seconds: int) -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    hands.now += seconds * SECOND
    ctx.user("And now?")
    assert ctx.render().fold is None


def test_a_small_view_does_not_fold_and_without_the_option_none_does() -> None:
    for share, seconds in ((0.3, KEPT), (0.65, None)):
        hands = Hands()
        ctx = opened(hands, cache_seconds=seconds)
        until(ctx, hands, share)
        hands.now += 10 * KEPT * SECOND
        ctx.user("And now?")
        assert ctx.render().fold is None


def test_a_pause_is_seen_by_the_next_process_too() -> None:
    hands, storage = Hands(), MemoryStorage()
    until(opened(hands, storage, cache_seconds=KEPT), hands, 0.65)
    hands.now += (KEPT + 1) * SECOND
    later = opened(hands, storage, cache_seconds=KEPT)
    later.user("And now?")
    assert later.render().fold is not None
    later.user("And again?")
    assert later.render().fold is None  # that view was sent just now


def test_a_reply_that_was_deleted_does_not_hide_the_pause() -> None:
    hands, storage = Hands(), MemoryStorage()
    ctx = opened(hands, storage, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    ctx.pages.remove_page(ctx.render(preview=True).pages[-1].index)
    hands.now += (KEPT + 1) * SECOND
    later = opened(hands, storage, cache_seconds=KEPT)
    later.user("And now?")
    assert later.render().fold is not None


def test_the_past_is_seen_as_it_was_however_long_ago_that_is() -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    sent = ctx.render()
    ctx.checkpoint("then")
    hands.now += (KEPT + 1) * SECOND
    ctx.user("And now?")
    assert ctx.render().fold is not None
    assert ctx.as_of("then").render().messages == sent.messages


def test_a_long_tool_counts_as_a_pause() -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    call = {"id": "c1", "function": {"name": "build", "arguments": "{}"}}
    ctx.add({"role": "assistant", "tool_calls": [call]})
    hands.now += (KEPT + 1) * SECOND
    ctx.tool_result("c1", "done")
    assert ctx.render().fold is not None


def test_a_preview_neither_folds_nor_counts_as_sent() -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    hands.now += (KEPT + 1) * SECOND
    ctx.user("And now?")
    assert ctx.render(preview=True).fold is None
    assert ctx.render().fold is not None


def test_a_fold_that_was_undone_is_not_made_again_in_a_pause() -> None:
    hands = Hands()
    ctx = opened(hands, cache_seconds=KEPT)
    until(ctx, hands, 0.65)
    for _ in range(2):
        hands.now += (KEPT + 1) * SECOND
        ctx.user("And now?")
        if ctx.render().fold is not None:
            ctx.undo(next(ctx.history(operation="fold")))
        ctx.assistant("The same.")
    assert len(list(ctx.history(operation="fold"))) == 1


def life(hands: Hands, ctx: Context) -> float:
    """Return the cost of a day with a long pause after every nine calls; after it the cache is empty."""
    cost = 0.0
    for _ in range(20):
        for number, view in enumerate(talk(ctx, hands, 9)):
            cost += view.tokens if number == 0 else view.cost()
        hands.now += 2 * KEPT * SECOND
    return cost


def test_a_life_with_pauses_costs_less() -> None:
    plain, knowing = Hands(), Hands()
    assert life(knowing, opened(knowing, cache_seconds=KEPT)) < 0.95 * life(plain, opened(plain))


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "300", True])
def test_a_time_that_is_none_is_refused(seconds: object) -> None:
    with pytest.raises(InvalidValue, match="cache_seconds"):
        opened(Hands(), cache_seconds=seconds)
