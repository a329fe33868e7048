"""Replay recorded conversations and build the list for the model at every model call."""

import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import corpora
from bench.peers.accounting import REFUSED, billed, broken, shared, tokens
from bench.peers.corpora import Talk
from bench.peers.peer import Peer, Setting
from bench.traces import Values, count


@dataclass
class Life:
    """The totals of the calls of some conversations."""

    budget: int
    calls: int = 0
    tokens: int = 0
    cached: int = 0
    spent: int = 0
    over: int = 0
    refused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def see(self, before: list[Values], now: list[Values], newest: Values) -> None:
        """Add one list that goes to the model."""
        faults = broken(now, newest, self.budget)
        self.calls += 1
        self.tokens += (sent := tokens(now))
        self.cached += shared(before, now)
        self.over += sent > self.budget
        self.refused += not faults.isdisjoint(REFUSED)
        self.faults.update(faults)

    def told(self) -> dict[str, Any]:
        """Return the totals for the results."""
        return {
            "calls": self.calls,
            "tokens": self.tokens + self.spent,
            "mean": self.tokens / self.calls,
            "cached": self.cached / self.tokens,
            "billed": billed(self.tokens, self.cached) + self.spent,
            "summaries": self.spent,
            "over": self.over,
            "refused": self.refused,
            "faults": dict(self.faults),
            "milliseconds": statistics.median(self.seconds) * 1e3,
        }


def measure(kind: type[Peer], folder: Path, *, corpus: str, budgets: list[int], most: int = 0) -> dict[str, Any]:
    """Replay, for every budget, the conversations of a corpus that do not fit it; at most `most` of them if given."""
    mean, found = corpora.mean(corpus), {}
    for budget in budgets:
        life = Life(budget)
        for number, talk in enumerate(corpora.talks(corpus, above=budget)[: most or None]):
            _replay(kind(Setting(folder, f"{budget}-{number}", budget, talk.prompt, mean)), talk, life)
        if life.calls:
            found[str(budget)] = life.told()
    return {"budgets": found}


def _replay(peer: Peer, talk: Talk, life: Life) -> None:
    """Replay one conversation. The model is called when the newest message is not its own; appending its last reply
    counts.
    """
    before: list[Values] = []
    seconds = 0.0
    count.cache_clear()
    for message in talk.messages:
        given = peer.native(message)
        start = time.perf_counter()
        peer.append(given)
        seconds += time.perf_counter() - start
        if message["role"] == "assistant":
            continue
        start = time.perf_counter()
        rendered = peer.render()
        life.seconds.append(seconds + time.perf_counter() - start)
        seconds = 0.0
        now = peer.chat(rendered)
        life.see(before, now, message)
        before = now
    life.spent += peer.spent()
    peer.close()
