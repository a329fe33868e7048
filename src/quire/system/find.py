"""Finding pages by words in their names, descriptions and bodies, archived ones included.

This is the plain form: one pass over the pages, no index. Every word of the query must occur; pages where the words
stand together come first.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest

from msgspec import Struct

from quire.errors import InvalidValue, shown
from quire.messages import Message, as_text, counted_texts
from quire.pages import Mark, PageIndex
from quire.records import Header, PageRecord, decode_body, decode_message
from quire.state import State
from quire.storage.base import BODY, MESSAGE, Family
from quire.system.rules import whole_number
from quire.text import unescaped

_NAME_WEIGHT = 8
_DESCRIPTION_WEIGHT = 4
_TOGETHER_WEIGHT = 64


class Hit(Struct, frozen=True, kw_only=True):
    """A page that answers a query, best first by `score`."""

    index: PageIndex
    name: str
    description: str
    score: float


def find(state: State, query: str, limit: int = 10) -> list[Hit]:
    """The pages that hold every word of the query, best first."""
    if not isinstance(query, str):
        raise InvalidValue(f"query is {shown(query)}; text is needed.")
    words = query.casefold().split()
    wanted = whole_number(limit, "limit")
    if not words or not wanted:
        return []
    pages = (page for page in state.segment_pages() if page.header.mark is Mark.NONE)
    scored = ((_score(state, page, words), -page.key, page) for page in pages)
    best = nlargest(wanted, (item for item in scored if item[0] > 0), key=lambda item: item[:2])
    return [
        Hit(index=state.index(page.key), name=page.header.name, description=page.header.description, score=score)
        for score, _, page in best
    ]


def searchable(messages: Sequence[Message]) -> str:
    """Everything in the messages of an exchange that a query can meet, names and escaped characters included."""
    text = as_text(messages)
    more = [*_unread(messages), unescaped(text)] if "\\" in text else list(_unread(messages))
    return "\n".join([text, *more]) if more else text


def _unread(messages: Sequence[Message]) -> Iterator[str]:
    """The texts of messages that a person is not shown: names, transcripts, files."""
    for message in messages:
        if message.name:
            yield message.name
        if isinstance(message.content, list):
            yield from counted_texts(message)


def _score(state: State, page: PageRecord, words: list[str]) -> float:
    """How often the words occur, dampened by the length of the body; 0 if one is missing."""
    name, description = page.header.name.casefold(), page.header.description.casefold()
    body = _body(state, page.header).casefold()
    score = 0.0
    for word in words:
        found = _NAME_WEIGHT * (word in name) + _DESCRIPTION_WEIGHT * (word in description)
        count = body.count(word)
        if not found and not count:
            return 0.0
        score += found + count / (count + 1 + len(body) / 4_000)
    if len(words) > 1 and any(" ".join(words) in " ".join(text.split()) for text in (name, description, body)):
        score += _TOGETHER_WEIGHT * len(words)
    return score


def _body(state: State, header: Header) -> str:
    """A body read past the cache: a search over everything must not push out what is in use."""
    if header.numbers:
        found = ((number, _read(state, MESSAGE, number)) for number in header.numbers)
        return searchable([decode_message(number, value).message for number, value in found])
    return decode_body(header.body, _read(state, BODY, header.body)) if header.body else ""


def _read(state: State, family: Family, key: int) -> bytes:
    record = state.storage.get(state.context, family, key)
    if record is None:
        raise state.broken(f"{family} record {key} is missing.")
    return record.value
