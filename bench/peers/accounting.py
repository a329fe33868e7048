"""Count the tokens of a list, its cached part, and the provider rules it breaks, independently of quire."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from bench.traces import Values, cost

CACHED = 0.1
"""The price of a cached token."""

NO_CALL = "a result without its call"
NO_RESULT = "a call without its result"
EMPTY = "no message"
NOT_USER = "does not begin with the user"
NO_SYSTEM = "the system prompt is gone"
NO_NEWEST = "the newest message is gone or rewritten"
REFUSED = (NO_CALL, NO_RESULT, EMPTY, NOT_USER)
"""OpenAI's chat API refuses the first three, Anthropic's API the last."""


def tokens(messages: Sequence[Values]) -> int:
    """Return the cost of the list: o200k tokens of texts, names and arguments, plus 4 per message and per call."""
    return sum(map(cost, messages))


def shared(before: Sequence[Values], now: Sequence[Values]) -> int:
    """Return the tokens of the common prefix with the previous list, including the equal part of the first differing
    message.
    """
    same = 0
    for old, new in zip(before, now, strict=False):
        if _sent(old) != _sent(new):
            return same + (_shared_text(old, new) if old["role"] == new["role"] else 0)
        same += cost(new)
    return same


def billed(sent: float, cached: float) -> float:
    """Return the price of the input in full-price tokens."""
    return sent - (1 - CACHED) * cached


def broken(messages: Sequence[Values], newest: Values, budget: int) -> set[str]:
    """Return the faults of a list by name; `REFUSED` lists those that a provider's API refuses."""
    spoken = [message for message in messages if message["role"] != "system"]
    found = set(_unpaired(spoken))
    if not spoken:
        found.add(EMPTY)
    elif spoken[0]["role"] != "user":
        found.add(NOT_USER)
    if not messages or messages[0]["role"] != "system":
        found.add(NO_SYSTEM)
    elif spoken and not _ends_with(spoken, newest) and tokens([messages[0], newest]) <= 0.95 * budget:
        found.add(NO_NEWEST)
    return found


def _unpaired(spoken: Sequence[Values]) -> Iterator[str]:
    """Return the faults in the pairing of calls and results: each call is answered at once, each result follows its
    call.
    """
    waiting: set[str] = set()
    for message in spoken:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                yield NO_CALL
            waiting.discard(message.get("tool_call_id", ""))
            continue
        if waiting:
            yield NO_RESULT
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        yield NO_RESULT


def _ends_with(spoken: Sequence[Values], newest: Values) -> bool:
    return (newest.get("content") or "") in (spoken[-1].get("content") or "")


def _sent(message: Values) -> tuple[str, str, str, str]:
    calls = json.dumps(message.get("tool_calls") or None)
    return message["role"], message.get("content") or "", calls, message.get("tool_call_id") or ""


def _shared_text(old: Values, new: Values) -> int:
    pairs = zip(encode(old.get("content") or ""), encode(new.get("content") or ""), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@cache
def _vocabulary() -> Any:
    import splintr

    return splintr.Tokenizer.from_pretrained("o200k_base")


def encode(text: str) -> list[int]:
    """Return the o200k tokens of a text."""
    return list(_vocabulary().encode_ordinary(text))
