"""Facts that were said, and whether they can still be reached: in what is sent, or by a search."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quire import Context, DetailPage, Message

_HITS = 5
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:-]{2,}[A-Za-z0-9]")
"""Four characters and more; with a digit among them an identifier, an amount, a date, a time."""

_WORD = re.compile("[A-Za-z0-9_]")


class Reach(NamedTuple):
    """How many of some things stand in what is sent, how many more are found by a search, how many there are."""

    shown: int = 0
    found: int = 0
    total: int = 0

    def __add__(self, other: object) -> "Reach":
        if not isinstance(other, Reach):
            return NotImplemented
        return Reach(*(one + more for one, more in zip(self, other, strict=True)))


def facts_of(messages: Iterable[Message]) -> list[str]:
    """The facts of some messages, each once: identifiers, amounts, dates, times."""
    found = (match.group() for text in texts_of(messages) for match in _RUN.finditer(text))
    return list(dict.fromkeys(fact for fact in found if any(map(str.isdigit, fact))))


def reach(sought: Sequence[tuple[str, str]], messages: Iterable[Message], context: Context | None = None) -> Reach:
    """How many of the sought (query, answer) stand in the messages, or on a page of a context that the query finds."""
    text = "\n".join(texts_of(messages))
    missing = [(query, answer) for query, answer in sought if not stands_in(answer, text)]
    found = sum(_finds(context, query, answer) for query, answer in missing) if context is not None else 0
    return Reach(len(sought) - len(missing), found, len(sought))


def stands_in(fact: str, text: str) -> bool:
    """Whether a text holds a fact, and not only as a part of a longer number or name."""
    place = text.find(fact)
    while place >= 0:
        end = place + len(fact)
        if not _WORD.match(text, place - 1, place) and not _WORD.match(text, end):
            return True
        place = text.find(fact, place + 1)
    return False


def texts_of(messages: Iterable[Message]) -> Iterator[str]:
    """What messages say, the arguments of calls too."""
    for message in messages:
        yield message.text
        for call in message.tool_calls:
            yield call.arguments


def _finds(context: Context, query: str, answer: str) -> bool:
    """Whether one of the first pages that a query finds holds the answer."""
    pages = context.pages
    for hit in pages.find(query, _HITS):
        body = pages.detail(hit.index) if isinstance(pages.get_page(hit.index), DetailPage) else ""
        if stands_in(answer, f"{hit.name}\n{hit.description}\n{body}"):
            return True
    return False
