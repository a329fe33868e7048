"""The view: a turn (append and render) against a raw floor, and what the prompt cache keeps, on recorded conversations.

Reads the traces beside the project, if they are there; without them this topic has no figures.
"""

import gzip
import json
import sqlite3
import statistics
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import quire
from bench.figures import Figure
from quire import VocabularyCounter

TRACES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "tau_airline.jsonl.gz"
BUDGET = 8_000
COUNT = VocabularyCounter().count
Values = dict[str, Any]


def run(folder: Path, messages: int) -> list[Figure]:
    """All figures of the view."""
    if not TRACES.exists():
        return []
    longest = max(messages // 10, 1_000)
    return [*turns(folder, (100, min(10_000, longest), longest)), *caching(), *legality()]


def turns(folder: Path, sizes: Sequence[int]) -> list[Figure]:
    """The last two hundred turns of conversations of several lengths, beside the floor."""
    found = {size: _turn(folder, size) for size in sizes}
    first = found[sizes[0]][0]
    return [
        *(
            Figure(
                f"turn (append and render at 8k), {size:,} messages, × raw floor",
                ours / floor,
                "×",
                10,
                f"median; {ours * 1e6:.0f} µs against {floor * 1e6:.0f} µs",
            )
            for size, (ours, floor) in found.items()
        ),
        *(Figure(f"turn at {size:,} against {sizes[0]}", found[size][0] / first, "×", 1.3) for size in sizes[1:]),
    ]


def caching() -> list[Figure]:
    """Five conversations of 400 messages at 8k, a view at every model call."""
    shared = total = billed = lines = calls = trimmed = trimmed_shared = 0
    for start in range(0, 200, 40):
        ctx = quire.open("memory:", budget=BUDGET)
        ctx.system(_system())
        floor = _Floor(":memory:")
        before: list[Values] = []
        for message in conversation(400, start):
            ctx.add(message)
            floor.append(message)
            if message["role"] == "assistant":
                continue
            view = ctx.render()
            calls += 1
            total, shared = total + view.tokens, shared + view.shared_prefix
            lines += view.by_kind().get("folded", 0)
            cut = floor.render()
            same = next((n for n, pair in enumerate(zip(before, cut, strict=False)) if pair[0] != pair[1]), len(before))
            trimmed += sum(map(cost, cut))
            trimmed_shared += sum(map(cost, cut[: min(same, len(cut))]))
            before = cut
    billed = round(total - 0.9 * shared)
    exact = trimmed - 0.9 * trimmed_shared
    return [
        Figure("input tokens that the previous view did not begin with, long/8k", 100 - 100 * shared / total, "%", 5),
        Figure("bill against exact trimming, long/8k", billed / exact, "×", 0.32, "cached tokens at a tenth"),
        Figure("mean view without folded lines, long/8k", 100 * (total - lines) / calls / BUDGET, "%", None, "of 8k"),
    ]


def legality() -> list[Figure]:
    """Every view of every trace at 4k: within the budget and legal for all three providers."""
    broken = over = calls = 0
    for trace in _traces():
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


def _turn(folder: Path, size: int) -> tuple[float, float]:
    """Median seconds of a turn near the end of a conversation, ours and the floor's."""
    history = conversation(size)
    last = min(200, size // 2)
    ctx = quire.open(folder / f"view-{size}.db", "bench", budget=BUDGET)
    ctx.system(_system())
    floor = _Floor(str(folder / f"view-floor-{size}.db"))
    ctx.import_messages(history[: size - last])
    ctx.render()
    floor.fill(history[: size - last])
    ours, theirs = [], []
    for message in history[size - last :]:
        start = time.perf_counter()
        ctx.add(message)
        ctx.render().openai()
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        floor.append(message)
        floor.render()
        theirs.append(time.perf_counter() - start)
    ctx.close()
    return statistics.median(ours), statistics.median(theirs)


class _Floor:
    """The least a turn can cost: INSERT and commit, then the newest messages that fit, from counts kept in a list."""

    def __init__(self, where: str) -> None:
        self._db = sqlite3.connect(where, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, tokens INT, body TEXT)")
        self._prompt = {"role": "system", "content": _system()}
        self._messages: list[Values] = []
        self._sizes: list[int] = []

    def append(self, message: Values) -> None:
        size = cost(message)
        self._db.execute("INSERT INTO message (tokens, body) VALUES (?, ?)", (size, json.dumps(message)))
        self._messages.append(message)
        self._sizes.append(size)

    def fill(self, messages: Sequence[Values]) -> None:
        self._db.execute("BEGIN")
        for message in messages:
            self.append(message)
        self._db.execute("COMMIT")

    def render(self) -> list[Values]:
        used, first = cost(self._prompt), len(self._messages)
        while first and used + self._sizes[first - 1] <= BUDGET:
            first -= 1
            used += self._sizes[first]
        while first < len(self._messages) and self._messages[first]["role"] != "user":
            first += 1
        return [self._prompt, *self._messages[first:]]


def cost(message: Values) -> int:
    """What a chat message costs by the contract's formula."""
    calls = message.get("tool_calls") or ()
    texts = [message.get("content") or ""]
    texts += [call["function"][part] for call in calls for part in ("name", "arguments")]
    return 4 * (1 + len(calls)) + sum(map(_count, texts))


@cache
def _count(text: str) -> int:
    return COUNT(text)


def conversation(messages: int, start: int = 0) -> list[Values]:
    """So many messages: recorded runs one after the other, with call ids of their own."""
    found: list[Values] = []
    while len(found) < messages:
        trace = _traces()[start % len(_traces())][1:]
        found += [_renamed(message, start) for message in trace[: -1 if trace[-1]["role"] == "user" else None]]
        start += 1
    return found[:messages]


def _renamed(message: Values, run: int) -> Values:
    copy = {**message, "content": message.get("content") or ""}
    if copy.get("tool_calls"):
        copy["tool_calls"] = [{**call, "id": f"{call['id']}-{run}"} for call in copy["tool_calls"]]
    if "tool_call_id" in copy:
        copy["tool_call_id"] = f"{copy['tool_call_id']}-{run}"
    return {key: value for key, value in copy.items() if value is not None}


@cache
def _traces() -> list[list[Values]]:
    with gzip.open(TRACES) as lines:
        return [json.loads(line)["messages"] for line in lines]


def _system() -> str:
    return str(_traces()[0][0]["content"])
