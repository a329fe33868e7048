"""The replayed conversations: customer service, the same made long, and coding with long observations."""

import gzip
import json
from functools import cache
from typing import NamedTuple

from bench.traces import TRACES, Values, conversation, cost, count, system, traces, with_distinct_calls

SWE = TRACES.parent / "swe_agent.jsonl.gz"
PREFILL = TRACES.parent / "prefill_h200.json"
LONG = 400
CORPORA = {
    "airline": "100 recorded customer-service runs with tool calls (τ-bench airline)",
    "long": f"two conversations of {LONG} messages, made of those runs one after the other",
    "coding": "10 recorded coding runs with long observations (SWE-agent)",
}


class Talk(NamedTuple):
    """One conversation."""

    prompt: str
    messages: list[Values]

    @property
    def tokens(self) -> int:
        return cost({"role": "system", "content": self.prompt}) + sum(map(cost, self.messages))


def are_here() -> bool:
    """Return True if the recorded conversations exist next to the project."""
    return TRACES.exists() and SWE.exists() and PREFILL.exists()


def talks(corpus: str, above: int = 0) -> list[Talk]:
    """Return the conversations of a corpus that exceed this many tokens; the others need no management."""
    return [talk for talk in _talks(corpus) if talk.tokens > above]


@cache
def mean(corpus: str) -> float:
    """Return the average tokens of a message."""
    costs = [cost(message) for talk in _talks(corpus) for message in talk.messages]
    count.cache_clear()  # use a separate counter, so that a peer does not find cached counts
    return sum(costs) / len(costs)


@cache
def _talks(corpus: str) -> list[Talk]:
    if corpus == "long":
        return [Talk(system(), conversation(LONG, start)) for start in (0, 50)]
    runs = traces() if corpus == "airline" else _coding()
    return [Talk(str(run[0]["content"]), with_distinct_calls(run[1:])) for run in runs]


def _coding() -> list[list[Values]]:
    with gzip.open(SWE) as lines:
        return [json.loads(line)["messages"] for line in lines]
