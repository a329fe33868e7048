"""Measuring a replay: what was sent, what of it the cache had, and what can still be reached of what was said."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quire import Context, DetailPage, Message, Price
from quire.cli.demo.talk import Question
from quire.cli.replaying.tally import Tally

_HITS = 5
_FACT = re.compile(r"(?=\S*\d)[A-Za-z0-9][A-Za-z0-9_.,:-]{2,}[A-Za-z0-9]")
"""Four characters and more with a digit among them: an identifier, an amount, a date, a time."""


class Reach(NamedTuple):
    """How many of some things stand in what is sent, how many more are found by a search, how many there are."""

    shown: int = 0
    found: int = 0
    total: int = 0

    def __add__(self, other: object) -> "Reach":
        if not isinstance(other, Reach):
            return NotImplemented
        return Reach(*(one + more for one, more in zip(self, other, strict=True)))


class Side(Tally):
    """One of the two that are compared: what it has sent, and what it reaches, by a search too if it has a context."""

    def __init__(self, context: Context | None = None, price: Price | None = None) -> None:
        super().__init__(price)
        self._context = context
        self.answers = Reach()

    def call(self, messages: Sequence[Message], tokens: int, shared: int, asked: Sequence[Question]) -> None:
        """Count one model call: what was sent, and whether what was just asked can be answered from it."""
        self.count(messages, tokens, shared)
        self.answers += self.reach([(question.find, question.answer) for question in asked], messages)

    def reach(self, sought: Sequence[tuple[str, str]], messages: Sequence[Message]) -> Reach:
        """How many of the sought (query, answer) stand in the messages, or on a page that the query finds."""
        text = "\n".join(_texts(messages))
        missing = [(query, answer) for query, answer in sought if not _stands_in(answer, text)]
        found = sum(self._finds(query, answer) for query, answer in missing)
        return Reach(len(sought) - len(missing), found, len(sought))

    def _finds(self, query: str, answer: str) -> bool:
        """Whether one of the first pages that a query finds holds the answer."""
        if self._context is None:
            return False
        pages = self._context.pages
        for hit in pages.find(query, _HITS):
            body = pages.detail(hit.index) if isinstance(pages.get_page(hit.index), DetailPage) else ""
            if _stands_in(answer, f"{hit.name}\n{hit.description}\n{body}"):
                return True
        return False


def facts_of(messages: Iterable[Message]) -> list[str]:
    """The facts of some messages, each once: identifiers, amounts, dates, times."""
    found = (match.group() for text in _texts(messages) for match in _FACT.finditer(text))
    return list(dict.fromkeys(fact for fact in found if any(map(str.isdigit, fact))))


def _stands_in(fact: str, text: str) -> bool:
    """Whether a text holds a fact, and not only as a part of a longer number or name."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(fact)}(?![A-Za-z0-9_])", text) is not None


def _texts(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield message.text
        for call in message.tool_calls:
            yield call.arguments
