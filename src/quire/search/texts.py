"""What can be found of a page: its name, its description and everything its body says."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from quire.errors import Corrupt
from quire.messages import Message, as_text, counted_texts
from quire.pages import Mark
from quire.records import Header, PageRecord, decode_body, decode_message
from quire.search.words import parts, terms
from quire.storage.base import BODY, MESSAGE, Family, Record
from quire.storage.searching import Document
from quire.text import unescaped

Saying = tuple[object, ...]


class Records(Protocol):
    """Where records are read from: a storage, or what was read ahead of it."""

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """One record, or None."""


def searchable(messages: Sequence[Message]) -> str:
    """Everything in the messages of an exchange that a query can meet, names and escaped characters included."""
    text = as_text(messages)
    more = [*_unread(messages), unescaped(text)] if "\\" in text else list(_unread(messages))
    return "\n".join([text, *more]) if more else text


def is_found(page: PageRecord) -> bool:
    """Whether a page can be found at all: what an edit took out of the conversation cannot."""
    return page.header.mark is Mark.NONE


def saying(header: Header) -> Saying:
    """What decides what can be found of a page; as long as it stays so, the index need not look again."""
    return header.name, header.description, header.body, header.numbers, header.mark


def body_of(storage: Records, context: str, header: Header) -> str:
    """What a page says, read past every cache: a search over everything must not push out what is in use."""
    if header.numbers:
        found = ((number, _read(storage, context, MESSAGE, number)) for number in header.numbers)
        return searchable([decode_message(number, value).message for number, value in found])
    return decode_body(header.body, _read(storage, context, BODY, header.body)) if header.body else ""


def document(storage: Records, context: str, page: PageRecord) -> Document:
    """The terms of a page."""
    header = page.header
    body = body_of(storage, context, header)
    return Document(
        page.key,
        terms(body),
        terms(header.name),
        terms(header.description),
        parts(f"{body}\n{header.name}\n{header.description}"),
    )


def _unread(messages: Sequence[Message]) -> Iterator[str]:
    """The texts of messages that a person is not shown: names, transcripts, files."""
    for message in messages:
        if message.name:
            yield message.name
        if isinstance(message.content, list):
            yield from counted_texts(message)


def _read(storage: Records, context: str, family: Family, key: int) -> bytes:
    record = storage.get(context, family, key)
    if record is None:
        raise Corrupt(f"{family} record {key} is missing.")
    return record.value
