"""Facts of a conversation, and whether they are still reachable: in the messages that are sent, or by a search."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quire import Context, DetailPage, Message

_HITS = 5
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:-]{2,}[A-Za-z0-9]")
"""Four or more characters; one with a digit is an identifier, an amount, a date or a time."""

_WORD = re.compile("[A-Za-z0-9_]")


class Reach(NamedTuple):
    """The number of facts in the messages that are sent, of further facts that a search finds, and of all facts."""

    shown: int = 0
    found: int = 0
    total: int = 0

    def __add__(self, other: "Reach") -> "Reach":  # type: ignore[override]
        return Reach(*(one + more for one, more in zip(self, other, strict=True)))


def extract_facts(messages: Iterable[Message]) -> list[str]:
    """Return the distinct facts of messages: identifiers, amounts, dates, times."""
    tokens = (match.group() for text in message_texts(messages) for match in _TOKEN.finditer(text))
    return list(dict.fromkeys(token for token in tokens if any(map(str.isdigit, token))))


def measure_reach(
    sought: Sequence[tuple[str, str]], messages: Iterable[Message], context: Context | None = None
) -> Reach:
    """Count the (query, answer) pairs with the answer in the messages, or on a page that the query finds."""
    text = "\n".join(message_texts(messages))
    missing = [(query, answer) for query, answer in sought if not contains_fact(text, answer)]
    found = sum(_finds(context, query, answer) for query, answer in missing) if context is not None else 0
    return Reach(len(sought) - len(missing), found, len(sought))


def contains_fact(text: str, fact: str) -> bool:
    """Return whether a text contains a fact that is not part of a longer number or name."""
    place = text.find(fact)
    while place >= 0:
        end = place + len(fact)
        if not _WORD.match(text, place - 1, place) and not _WORD.match(text, end):
            return True
        place = text.find(fact, place + 1)
    return False


def message_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the texts of messages and the arguments of their calls."""
    for message in messages:
        yield message.text
        for call in message.tool_calls:
            yield call.arguments


def _finds(context: Context, query: str, answer: str) -> bool:
    """Return whether one of the first hits of a query contains the answer."""
    pages = context.pages
    for hit in pages.find(query, _HITS):
        body = pages.detail(hit.index) if isinstance(pages.get_page(hit.index), DetailPage) else ""
        if contains_fact(f"{hit.name}\n{hit.description}\n{body}", answer):
            return True
    return False
