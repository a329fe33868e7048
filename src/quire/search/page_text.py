"""The searchable text of a page: its name, its description and everything in its body."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from quire.core.records import ContextMark, Header, PageRecord, decode_body, decode_message
from quire.errors import Corrupt
from quire.model.messages import Message, iterate_texts, label_lines
from quire.model.pages import READABLE, Form
from quire.model.text import unescape_json
from quire.search.tokenizer import PART_SEPARATOR, tokenize
from quire.storage.base import BODY, MESSAGE, Family, Record
from quire.storage.search_protocol import Document


class RecordSource(Protocol):
    """A source of records: a storage, or prefetched records."""

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """Return one record, or None."""


class DisplayText(NamedTuple):
    """A text as a person reads it, and the spans in it that are labels of quire, not words of the page."""

    text: str
    labels: Sequence[tuple[int, int]] = ()


def searchable_text(messages: Sequence[Message]) -> str:
    """Return everything in an exchange that a query can match, with names and without escapes."""
    text = "\n".join(line for _, line in label_lines(messages))
    more = _more(messages, text)
    return "\n".join([text, *more]) if more else text


def is_searchable(page: PageRecord) -> bool:
    """Return whether a page can be found: compressed messages can, those that another edit removed cannot."""
    return page.header.mark in READABLE


def text_fields(header: Header) -> tuple[object, ...]:
    """Return the fields that determine the searchable text. If they did not change, the index is up to date."""
    return header.name, header.description, header.body, header.numbers, header.mark


def read_body(storage: RecordSource, context: str, mark: ContextMark, header: Header) -> str:
    """Return the text of a page, read past every cache: a search must not evict records that are in use."""
    if header.numbers:
        return searchable_text(read_messages(storage, context, mark, header.numbers))
    text = decode_body(header.body, _read(storage, context, BODY, header.body), mark) if header.body else ""
    return _strings(text) if header.form is Form.WINDOW and not header.closed else text


def read_display_text(storage: RecordSource, context: str, mark: ContextMark, header: Header) -> DisplayText:
    """Return the text of a page as hits show it: exchanges with their speakers."""
    if not header.numbers:
        return DisplayText(read_body(storage, context, mark, header))
    messages = read_messages(storage, context, mark, header.numbers)
    lines: list[str] = []
    labels: list[tuple[int, int]] = []
    start = 0
    for label, line in label_lines(messages):
        labels.append((start, start + len(label)))
        lines.append(label + line)
        start += len(lines[-1]) + 1
    more = _more(messages, "\n".join(line for _, line in label_lines(messages)))
    return DisplayText("\n".join([*lines, *more]), labels)


def build_document(storage: RecordSource, context: str, mark: ContextMark, page: PageRecord) -> Document:
    """Return the terms of a page."""
    header = page.header
    body, parts = tokenize(read_body(storage, context, mark, header))
    name, named = tokenize(header.name)
    description, described = tokenize(header.description)
    for more in (named, described):
        parts += (PART_SEPARATOR, *more) if more else ()
    return Document(page.key, body, name, description, parts)


def read_messages(storage: RecordSource, context: str, mark: ContextMark, numbers: Sequence[int]) -> list[Message]:
    """Return the messages with these numbers, read past every cache. `mark` is that of the context."""
    found = ((number, _read(storage, context, MESSAGE, number)) for number in numbers)
    return [decode_message(number, value, mark).message for number, value in found]


def _more(messages: Sequence[Message], text: str) -> list[str]:
    """Return the texts that a query can match in addition to the displayed text."""
    return [*_unread(messages), unescape_json(text)] if "\\" in text else list(_unread(messages))


def _strings(saved: str) -> str:
    """Return the strings in the JSON that a window's app saved, without the app's field names."""
    try:
        left = [msgspec.json.decode(saved)]
    except (msgspec.DecodeError, RecursionError):
        return saved
    found = []
    while left:
        match left.pop():
            case str() as text:
                found.append(text)
            case list() as items:
                left += reversed(items)
            case dict() as fields:
                left += reversed(fields.values())
    return "\n".join(found)


def _unread(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the texts of messages that are not displayed: names, transcripts, files."""
    for message in messages:
        if message.name:
            yield message.name
        if isinstance(message.content, list):
            yield from iterate_texts(message)


def _read(storage: RecordSource, context: str, family: Family, key: int) -> bytes:
    record = storage.get(context, family, key)
    if record is None:
        raise Corrupt(f"{family} record {key} is missing.")
    return record.value
