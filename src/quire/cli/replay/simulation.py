"""The simulation: recorded conversations are played call by call, with each strategy at each budget."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from quire import Context, Message, View, check_legal
from quire.cli.replay.pricing import CallTotals, Prefill, PromptCache, Rates, TokenCounts
from quire.cli.replay.recordings import (
    Reach,
    Recording,
    RecordingSet,
    contains_fact,
    extract_facts,
    measure_reach,
    message_texts,
)
from quire.cli.replay.strategies import NewestMessages, QuireStrategy, Strategy, StrategyKind, StrategySetup
from quire.errors import IrreducibleFloor
from quire.model.messages import Provider
from quire.providers import format_request

MAX_FACTS = 40
"""The number of facts of a conversation that are searched for at its end."""
_PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic")


class StrategyRun(NamedTuple):
    """The totals of a strategy at a budget, over all conversations."""

    budget: int
    kind: StrategyKind
    totals: CallTotals


class Simulation(NamedTuple):
    """The runs of all strategies at all budgets, and the error for each budget that is too small."""

    runs: Sequence[StrategyRun]
    too_small: dict[int, IrreducibleFloor]

    @property
    def facts(self) -> int:
        """The number of facts that were searched for, in all conversations together."""
        return max((run.totals.facts.total for run in self.runs), default=0)

    @property
    def has_summaries(self) -> bool:
        """True if any strategy made a summary."""
        return any(run.totals.summary_calls for run in self.runs)

    def at(self, budget: int) -> list[StrategyRun]:
        """Return the runs at one budget."""
        return [run for run in self.runs if run.budget == budget]


def simulate(
    recordings: RecordingSet,
    kinds: Sequence[StrategyKind],
    budgets: Sequence[int],
    rates: Rates,
    progress: Callable[[int], None] = lambda done: None,
    prefill: Prefill | None = None,
) -> Simulation:
    """Play every conversation with every strategy at every budget.

    `progress` is called with the number of model calls played. A budget that is too small for quire is left out of the
    runs and reported in `too_small`.
    """
    counts = TokenCounts()
    tokens = sum(counts.total(recording.messages) for recording in recordings.conversations)
    mean = tokens / max(1, recordings.messages)
    models = None if prefill is None else prefill.models
    runs = [StrategyRun(budget, kind, CallTotals(rates, models)) for budget in budgets for kind in kinds]
    too_small: dict[int, IrreducibleFloor] = {}
    done = 0
    for recording in recordings.conversations:
        player = _Player(recording, mean)
        with _garbage_collection_paused():
            for run in runs:
                if run.budget in too_small:
                    continue
                try:
                    for _ in player.play(run):
                        done += 1
                        progress(done)
                except IrreducibleFloor as error:
                    too_small[run.budget] = error
    return Simulation([run for run in runs if run.budget not in too_small], too_small)


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Pause garbage collection: a collection would add the garbage of all strategies to the time of one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            gc.collect()


class _Player:
    """Plays one conversation. Counts, facts and refusals are shared by all strategies."""

    def __init__(self, recording: Recording, mean: float) -> None:
        self._recording = recording
        self._mean = mean
        self._counts = TokenCounts()
        self._refusals = RefusalCache()
        self._reach: dict[tuple[int, ...], Reach] = {}
        last = max(n for n, message in enumerate(recording.messages) if message.role == "assistant")
        self._facts = [(fact, fact) for fact in _sample_facts(recording.messages[:last])]
        self._counts.total(recording.messages)  # count before the strategies are timed

    def play(self, run: StrategyRun) -> Iterator[None]:
        """Play the conversation with a strategy, and yield after each model call."""
        totals = run.totals
        strategy = run.kind.make(StrategySetup(self._recording.prompt, run.budget, self._mean, self._counts))
        cache = PromptCache(self._counts)
        left, seconds = self._recording.calls, 0.0
        for message in self._recording.messages:
            start = perf_counter()
            request = tuple(strategy.render()) if message.role == "assistant" else None
            rendered = perf_counter()
            if request is not None:
                totals.seconds.append(seconds + rendered - start)
                seconds = 0.0
                self._count(request, strategy, cache, run)
                left -= 1
                if not left:
                    totals.facts += self._measure_reach(request, strategy)
                yield
            start = perf_counter()
            strategy.add(message)
            seconds += perf_counter() - start

    def _count(self, request: Sequence[Message], strategy: Strategy, cache: PromptCache, run: StrategyRun) -> None:
        for call in strategy.take_summary_calls():
            tokens = self._counts.total(call.messages) + call.instructions
            shared = cache.read(call.messages) if call.follows else 0
            run.totals.count_summary(tokens, shared, call.written)
        tokens = self._counts.total(request)
        refusing = self._refusals.check(request)
        run.totals.count(tokens, cache.send(request), refusing, over=tokens > run.budget)

    def _measure_reach(self, request: Sequence[Message], strategy: Strategy) -> Reach:
        if isinstance(strategy, QuireStrategy):
            return measure_reach(self._facts, request, strategy.context)
        key = tuple(map(id, request))
        if key not in self._reach:
            self._reach[key] = measure_reach(self._facts, request)
        return self._reach[key]


def _sample_facts(messages: Sequence[Message]) -> list[str]:
    """Return at most about `MAX_FACTS` facts of messages, evenly from start to end."""
    facts = extract_facts(messages)
    text = "\n".join(message_texts(messages))
    step = max(1, -(-len(facts) // MAX_FACTS))
    return [fact for fact in facts[::step] if contains_fact(text, fact)]


# Refusals of providers


def refusing_providers(messages: Sequence[Message]) -> frozenset[Provider]:
    """Return the providers that would refuse a request."""
    return frozenset(name for name in _PROVIDERS if check_legal(format_request(messages, name), name))


class RefusalCache:
    """Checks requests made of the same messages, and remembers the result for each turn.

    A turn that starts with a user message is legal or not by itself, because calls and results are in one turn. The
    caller keeps the messages alive, so that their ids stay unique.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], frozenset[Provider]] = {}

    def check(self, request: Sequence[Message]) -> frozenset[Provider]:
        """Return the providers that would refuse a request."""
        refusing: frozenset[Provider] = frozenset()
        for turn in _turns(request):
            key = tuple(map(id, turn))
            if key not in self._known:
                self._known[key] = refusing_providers(turn)
            refusing |= self._known[key]
        return refusing


def _turns(request: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield the parts of a request: the first with the prompt, each other one from a user message on."""
    first = next((n for n, message in enumerate(request) if message.role != "system"), 0)
    starts = [n for n in range(first + 1, len(request)) if request[n].role == "user"]
    for start, end in zip([0, *starts], [*starts, len(request)], strict=True):
        yield request[start:end]


# One conversation, call by call, with quire and a sliding window


class WindowRequest(NamedTuple):
    """A request of a sliding window: its messages, its tokens, and the tokens from the prompt cache."""

    messages: Sequence[Message]
    tokens: int
    shared: int


class ModelCall(NamedTuple):
    """One model call: its number and turn, the requests of both sides, the message before it, and the reply."""

    number: int
    turn: int
    view: View
    window: WindowRequest
    before: Message | None
    reply: Message


def play_calls(context: Context, prompt: Message | None, messages: Sequence[Message]) -> Iterator[ModelCall]:
    """Add messages to a context one by one, and yield a model call for every message of the assistant.

    The sliding window sends the prompt and the newest messages within the budget of the context.
    """
    counts = TokenCounts()
    newest, cache = NewestMessages(StrategySetup(prompt, context.budget, 0, counts)), PromptCache(counts)
    if prompt is not None:
        context.add(prompt)
    number = turn = 0
    before: Message | None = None
    for message in messages:
        turn += message.role == "user"
        if message.role == "assistant":
            number += 1
            request = newest.render()
            window = WindowRequest(request, counts.total(request), cache.send(request))
            yield ModelCall(number, turn, context.render(), window, before, message)
        context.add(message)
        newest.add(message)
        before = message
