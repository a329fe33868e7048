"""The price of a whole life: conversations played with every strategy at every budget."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from quire import Message
from quire.cli.replaying.counting import Counted
from quire.cli.replaying.facts import Reach, facts_of, reach, stands_in, texts_of
from quire.cli.replaying.prefix import Prefix
from quire.cli.replaying.rates import Rates
from quire.cli.replaying.recorded import Recorded, Recording
from quire.cli.replaying.refusals import Refusals
from quire.cli.replaying.strategies import Kind, Setting, Strategy
from quire.cli.replaying.strategies.ours import Quire
from quire.cli.replaying.tally import Tally
from quire.errors import IrreducibleFloor

MOST_FACTS = 40
"""So many facts of a conversation are looked for at its end."""


class Lived(NamedTuple):
    """A strategy at a budget, over all conversations."""

    budget: int
    kind: Kind
    tally: Tally


class Life(NamedTuple):
    """All strategies at all budgets that were large enough, and why others were not."""

    lived: Sequence[Lived]
    refused: dict[int, IrreducibleFloor]

    @property
    def facts(self) -> int:
        """How many facts were looked for, of all conversations together."""
        return max((one.tally.facts.total for one in self.lived), default=0)

    def at(self, budget: int) -> list[Lived]:
        """The strategies at one budget, in their order."""
        return [one for one in self.lived if one.budget == budget]


def live(
    recording: Recording,
    kinds: Sequence[Kind],
    budgets: Sequence[int],
    rates: Rates,
    progress: Callable[[int], None] = lambda done: None,
) -> Life:
    """Play every conversation with every strategy at every budget; `progress` hears of every model call.

    A budget that quire refuses because what must be shown is larger is left out, and told.
    """
    mean = _mean(recording)
    table = {(budget, kind.name): Lived(budget, kind, Tally(rates)) for budget in budgets for kind in kinds}
    refused: dict[int, IrreducibleFloor] = {}
    done = 0
    for recorded in recording.conversations:
        played = _Played(recorded, mean)
        with _unswept():
            for one in table.values():
                if one.budget in refused:
                    continue
                try:
                    for _ in played.play(one.kind, one.budget, one.tally):
                        done += 1
                        progress(done)
                except IrreducibleFloor as error:
                    refused[one.budget] = error
    return Life([one for one in table.values() if one.budget not in refused], refused)


@contextmanager
def _unswept() -> Iterator[None]:
    """Let the garbage collector wait: its pauses come from what all strategies left, and one would be timed for it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
            gc.collect()


class _Played:
    """One conversation, with what is the same for everybody: counts, facts, and what was found of a request before."""

    def __init__(self, recorded: Recorded, mean: float) -> None:
        self._recorded = recorded
        self._mean = mean
        self._counted = Counted()
        self._refusals = Refusals()
        self._reach: dict[tuple[int, ...], Reach] = {}
        last = max(n for n, message in enumerate(recorded.messages) if message.role == "assistant")
        self._facts = [(fact, fact) for fact in _some_facts(recorded.messages[:last])]
        self._counted.total(recorded.messages)

    def play(self, kind: Kind, budget: int, tally: Tally) -> Iterator[None]:
        """Play the conversation with a strategy, call by call."""
        strategy = kind.make(Setting(self._recorded.prompt, budget, self._mean, self._counted))
        prefix = Prefix(self._counted)
        left, took = self._recorded.calls, 0.0
        for message in self._recorded.messages:
            start = perf_counter()
            sent = tuple(strategy.render()) if message.role == "assistant" else None
            middle = perf_counter()
            if sent is not None:
                tally.seconds.append(took + middle - start)
                took = 0.0
                self._count(sent, strategy, prefix, budget, tally)
                left -= 1
                if not left:
                    tally.facts += self._reached(sent, strategy)
                yield
            start = perf_counter()
            strategy.add(message)
            took += perf_counter() - start

    def _count(self, sent: Sequence[Message], strategy: Strategy, prefix: Prefix, budget: int, tally: Tally) -> None:
        for aside in strategy.asides():
            tokens = self._counted.total(aside.messages) + aside.instructions
            tally.count_aside(tokens, prefix.shared(aside.messages) if aside.follows else 0, aside.written)
        tokens = self._counted.total(sent)
        tally.count(tokens, prefix.follow(sent), self._refusals.of(sent), over=tokens > budget)

    def _reached(self, sent: Sequence[Message], strategy: Strategy) -> Reach:
        if isinstance(strategy, Quire):
            return reach(self._facts, sent, strategy.context)
        key = tuple(map(id, sent))
        if key not in self._reach:
            self._reach[key] = reach(self._facts, sent)
        return self._reach[key]


def _some_facts(messages: Sequence[Message]) -> list[str]:
    """Facts of messages, from beginning to end, and no more than are soon looked for."""
    facts = facts_of(messages)
    text = "\n".join(texts_of(messages))
    return [fact for fact in facts[:: max(1, -(-len(facts) // MOST_FACTS))] if stands_in(fact, text)]


def _mean(recording: Recording) -> float:
    counted = Counted()
    return sum(counted.total(one.messages) for one in recording.conversations) / max(1, recording.messages)
