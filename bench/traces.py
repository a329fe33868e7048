"""Recorded conversations, their token counts, and the raw floor for them.

The traces are in the folder that `QUIRE_DATA` names, or in `../shared/data` next to the project, if it exists.
"""

import gzip
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from quire import VocabularyCounter

DATA = Path(os.environ.get("QUIRE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
TRACES = DATA / "tau_airline.jsonl.gz"
COUNT = VocabularyCounter().count
Values = dict[str, Any]


class RawFloor:
    """The raw floor of a turn: INSERT and commit, then the newest messages that fit, from counts in a list."""

    def __init__(self, where: str, budget: int) -> None:
        self._db = sqlite3.connect(where, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, tokens INT, body TEXT)")
        self._budget = budget
        self._prompt = {"role": "system", "content": system()}
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
        while first and used + self._sizes[first - 1] <= self._budget:
            first -= 1
            used += self._sizes[first]
        while first < len(self._messages) and self._messages[first]["role"] != "user":
            first += 1
        return [self._prompt, *self._messages[first:]]

    def close(self) -> None:
        self._db.close()


def cost(message: Values, counted: Callable[[str], int] | None = None) -> int:
    """Return the tokens of a chat message by the contract's formula. Each text is counted once unless a counter is
    given.
    """
    calls = message.get("tool_calls") or ()
    texts = [message.get("content") or ""]
    texts += [call["function"][part] for call in calls for part in ("name", "arguments")]
    return 4 * (1 + len(calls)) + sum(map(counted or count, texts))


@cache
def count(text: str) -> int:
    """Return the tokens of a text; each text is counted once."""
    return COUNT(text)


def conversation(messages: int, start: int = 0) -> list[Values]:
    """Return this many messages: recorded runs one after the other, with unique call ids."""
    found: list[Values] = []
    while len(found) < messages:
        trace = traces()[start % len(traces())][1:]
        found += trace[: -1 if trace[-1]["role"] == "user" else None]
        start += 1
    return with_distinct_calls(found[:messages])


def with_distinct_calls(messages: Sequence[Values]) -> list[Values]:
    """Return the messages with unique call ids, as providers give them; recorded runs repeat some."""
    found: list[Values] = []
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        copy = {**message, "content": message.get("content") or ""}
        if calls := copy.get("tool_calls"):
            names.update({call["id"]: f"{call['id']}-{place}" for call in calls})
            copy["tool_calls"] = [{**call, "id": names[call["id"]]} for call in calls]
        if (answered := copy.get("tool_call_id")) is not None:
            copy["tool_call_id"] = names.get(answered, answered)
        found.append({key: value for key, value in copy.items() if value is not None})
    return found


@cache
def traces() -> list[list[Values]]:
    """Return the recorded runs, each with its system prompt first."""
    with gzip.open(TRACES) as lines:
        return [json.loads(line)["messages"] for line in lines]


def system() -> str:
    """Return the system prompt of the runs."""
    return str(traces()[0][0]["content"])
