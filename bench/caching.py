"""The prompt cache: the cached share, the savings against exact trimming, and the legality of every view."""

from collections.abc import Iterable, Sequence

import quire
from bench.figures import Figure
from bench.traces import RawFloor, Values, conversation, cost, system, traces

CACHED = 0.1
"""The price of a token that the provider has cached."""


def run() -> list[Figure]:
    """Return all figures of the prompt cache."""
    return [*long_conversations(), *recorded_runs(), *legality()]


class Replay:
    """Replay conversations with a view at every model call, and compare with the newest messages that fit exactly."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.calls = self.tokens = self.shared = self.lines = 0
        self.trimmed = self.trimmed_shared = 0

    def play(self, prompt: str, messages: Iterable[Values]) -> None:
        """Replay one conversation."""
        ctx = quire.open("memory:", budget=self.budget)
        ctx.system(prompt)
        floor = RawFloor(":memory:", self.budget)
        before: list[Values] = []
        for message in messages:
            ctx.add(message)
            floor.append(message)
            if message["role"] == "assistant":
                continue
            self._see(ctx.render())
            before = self._trim(before, floor.render())
        floor.close()

    def _see(self, view: quire.View) -> None:
        self.calls += 1
        self.tokens += view.tokens
        self.shared += view.shared_prefix
        self.lines += view.by_kind().get("folded", 0)

    def _trim(self, before: Sequence[Values], now: list[Values]) -> list[Values]:
        pairs = enumerate(zip(before, now, strict=False))
        same = next((n for n, (one, other) in pairs if one != other), min(len(before), len(now)))
        self.trimmed += sum(map(cost, now))
        self.trimmed_shared += sum(map(cost, now[:same]))
        return now

    @property
    def bill(self) -> float:
        """Return the cost of the views as a share of the cost of exact trimming."""
        exact = self.trimmed - (1 - CACHED) * self.trimmed_shared
        return (self.tokens - (1 - CACHED) * self.shared) / exact

    @property
    def note(self) -> str:
        """The mean sizes of the views: a policy that forgets much looks cheap."""
        return f"mean view {self.tokens / self.calls:,.0f} tokens against {self.trimmed / self.calls:,.0f}"


def long_conversations() -> list[Figure]:
    """Replay five conversations of 400 messages at 8k."""
    played = Replay(8_000)
    for start in range(0, 200, 40):
        played.play(system(), conversation(400, start))
    verbatim = (played.tokens - played.lines) / played.calls / played.budget
    return [
        Figure(
            "input tokens after the common prefix with the previous view, long/8k",
            100 - 100 * played.shared / played.tokens,
            "%",
            5,
        ),
        Figure("bill against exact trimming, long/8k", played.bill, "×", 0.32, played.note),
        Figure(
            "budget that the mean view leaves free, long/8k", 100 - 100 * verbatim, "%", 45, "folded lines are free"
        ),
    ]


def recorded_runs() -> list[Figure]:
    """Replay the recorded runs that do not fit 4k."""
    played = Replay(4_000)
    for prompt, *messages in traces():
        history = [{**message, "content": message.get("content") or ""} for message in messages]
        if cost(prompt) + sum(map(cost, history)) > played.budget:
            played.play(prompt["content"], history)
    fresh = 100 - 100 * played.shared / played.tokens
    return [
        Figure("input tokens after the common prefix with the previous view, traces/4k", fresh, "%"),
        Figure("bill against exact trimming, traces/4k", played.bill, "×", 1, played.note),
    ]


def legality() -> list[Figure]:
    """Check every view of every run at 4k: within the budget and legal for all three providers."""
    broken = over = calls = 0
    for trace in traces():
        ctx = quire.open("memory:", budget=4_000)
        for message in trace:
            ctx.add(message)
            view = ctx.render()
            calls += 1
            over += view.tokens > 4_000
            forms = (("openai", view.openai()), ("responses", view.responses()), ("anthropic", view.anthropic()))
            spoken = any(part.role != "system" for part in view.messages)
            broken += spoken and any(quire.check_legal(form, provider) for provider, form in forms)
    return [
        Figure(f"views of {calls:,} that break a rule, traces/4k", broken, "", 0),
        Figure(f"views of {calls:,} above the budget, traces/4k", over, "", 0),
    ]
