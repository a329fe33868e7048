"""Stored: the records of one context as its storage has them, decoded and not kept in memory."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from quire.core.codec import (
    decode_body,
    decode_call,
    decode_entry,
    decode_message,
    decode_page,
)
from quire.core.records import COLD, MESSAGES, EntryRecord, Gone, MessageRecord, PageRecord
from quire.errors import Corrupt, short_repr
from quire.storage.contract import CALL, MAX_KEY, PAGE, TEXT, Family, Id, Record, Storage

T = TypeVar("T")


class Stored:
    """Reads one context. Every method raises `Corrupt`, with the name of the context, for a damaged record."""

    def __init__(self, storage: Storage, context: str, id: Id) -> None:
        self.storage = storage
        self.context = context
        self.id = id

    def page(self, key: int) -> PageRecord | Gone | None:
        """Return a page, what is left of a removed one, or None."""
        record = self._get(PAGE, key)
        return None if record is None else self._page(record)

    def pages(
        self, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[tuple[int, PageRecord | Gone]]:
        """Yield the pages with these keys, in order."""
        for record in self.storage.scan(self.id, PAGE, start, stop, reverse=reverse):
            yield record.key, self._page(record)

    def members(
        self, folder: int, *, after: tuple[int, int] | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        """Yield the children of a folder in order, or with `cold` the pages that were archived cold from it."""
        for record in self.storage.children(self.id, folder | COLD if cold else folder, after=after, reverse=reverse):
            page = self._page(record)
            if isinstance(page, PageRecord):
                yield page

    def message(self, number: int) -> tuple[MessageRecord, int] | None:
        """Return a message and its size in the storage, or None."""
        record = self._get(TEXT, MESSAGES + number)
        return None if record is None else (self._checked(decode_message, record), len(record.value))

    def messages(self, start: int, stop: int) -> Iterator[tuple[int, MessageRecord, int]]:
        """Yield the messages with these numbers, with their sizes."""
        for record in self.storage.scan(self.id, TEXT, MESSAGES + start, MESSAGES + stop):
            yield record.key - MESSAGES, self._checked(decode_message, record), len(record.value)

    def body(self, key: int) -> str | None:
        """Return the text of a body, or None."""
        record = self._get(TEXT, key)
        return None if record is None else self._checked(decode_body, record)

    def callers(self, key: int) -> tuple[int, ...]:
        """Return the exchanges with a call or message of this key."""
        record = self._get(CALL, key)
        return () if record is None else self._checked(decode_call, record)

    def entries(
        self, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[tuple[int, EntryRecord]]:
        """Yield the journal entries with these numbers, in order."""
        for stored in self.storage.entries(self.id, start, stop, reverse=reverse):
            try:
                yield stored.seq, decode_entry(stored)
            except Corrupt as error:
                raise self.corrupt(str(error)) from error

    def corrupt(self, text: str) -> Corrupt:
        """Return the error for damaged or missing records."""
        return Corrupt(f"Context {short_repr(self.context)}: {text}")

    def _get(self, family: Family, key: int) -> Record | None:
        return self.storage.get(self.id, family, [key])[0]

    def _page(self, record: Record) -> PageRecord | Gone:
        return self._checked(decode_page, record)

    def _checked(self, decode: Callable[[Record], T], record: Record) -> T:
        try:
            return decode(record)
        except Corrupt as error:
            raise self.corrupt(str(error)) from error
