"""RecordReader: reads the records of one context and decodes them. Errors name the page instead of its key."""

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from quire.core.reader import Slot
from quire.core.records import (
    DeferredChange,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    decode_body,
    decode_call,
    decode_deferred_change,
    decode_head,
    decode_message,
    decode_note,
    decode_page,
    decode_segment,
    decode_tally,
)
from quire.errors import Corrupt, short_repr
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    Prefetch,
    Record,
    Storage,
    StorageReader,
    SupportsPrefetch,
)

P = ParamSpec("P")
T = TypeVar("T")


class RecordReader:
    """Reads and decodes records. Small records come from what a backend read together with the head, if it did."""

    def __init__(self, storage: Storage, context: str, name_of: Callable[[int], str | None]) -> None:
        self._context = context
        self._name_of = name_of
        self._set_storage(storage)
        self.read_from(storage)

    def read_from(self, storage: Storage, near: StorageReader | None = None) -> None:
        """Read from this storage, and small records from `near`, which was read together with the head."""
        if storage is not self._storage:
            self._set_storage(storage)
        self._near = storage if near is None else near

    def _set_storage(self, storage: Storage) -> None:
        self._storage = storage
        self._prefetch = storage.prefetch if isinstance(storage, SupportsPrefetch) else None  # checked once: it is slow

    def look(self) -> Prefetch:
        """The head, and what to read this version from: what a backend read along with it, else the storage."""
        if self._prefetch is not None:
            return self._prefetch(self._context)
        return Prefetch(self._storage.head(self._context), self._storage)

    def head(self, value: bytes) -> HeadRecord:
        return self._decode(decode_head, value)

    def segments(self, near: StorageReader) -> dict[int, SegmentRecord]:
        """Return all segments by number."""
        scanned = near.scan(self._context, SEGMENT)
        return {record.key: self._decode(decode_segment, record.key, record.value) for record in scanned}

    def page(self, key: int) -> PageRecord | Gone | None:
        record = self._near.get(self._context, PAGE, key)
        return None if record is None else self._page(record)

    def members(self, group: int, after: Slot | None, *, reverse: bool) -> Iterator[PageRecord | Gone]:
        """Yield the pages of a group in order."""
        return map(self._page, self._near.members(self._context, PAGE, group, after=after, reverse=reverse))

    def pages(self, first: int, last: int) -> Iterator[PageRecord | Gone]:
        """Yield the pages with these keys, by key."""
        return map(self._page, self._near.scan(self._context, PAGE, first, last))

    def pins(self) -> set[int]:
        """Return the keys of all pinned pages."""
        return {record.key for record in self._near.scan(self._context, PIN)}

    def tally(self, key: int) -> int:
        """Return a folder's number of children."""
        record = self._near.get(self._context, TALLY, key)
        return self._decode(decode_tally, key, record.value) if record else 0

    def body(self, key: int) -> str | None:
        record = self._storage.get(self._context, BODY, key)
        return None if record is None else self._decode(decode_body, key, record.value)

    def message(self, number: int) -> tuple[MessageRecord, int] | None:
        """Return a message and its size in bytes."""
        record = self._storage.get(self._context, MESSAGE, number)
        return None if record is None else (self._message(record), len(record.value))

    def messages(self, start: int, stop: int) -> Iterator[tuple[int, MessageRecord, int]]:
        """Yield numbers, messages and their sizes in bytes, by number."""
        for record in self._storage.scan(self._context, MESSAGE, start, stop):
            yield record.key, self._message(record), len(record.value)

    def notes(self, first: int, last: int) -> dict[int, NoteRecord]:
        """Return the notes with these keys."""
        return {record.key: self._note(record) for record in self._near.scan(self._context, NOTE, first, last)}

    def note(self, key: int) -> NoteRecord | None:
        record = self._near.get(self._context, NOTE, key)
        return None if record is None else self._note(record)

    def deferred_changes(self) -> dict[int, DeferredChange]:
        """Return the deferred changes by page, in the order in which the pages were changed or opened."""
        found = self._near.scan(self._context, ANCHOR)
        changes = [(record.key, self._decode(decode_deferred_change, record.key, record.value)) for record in found]
        return dict(sorted(changes, key=lambda item: (item[1].seq, item[0])))

    def callers(self, key: int) -> tuple[int, ...]:
        record = self._storage.get(self._context, CALL, key)
        return self._decode(decode_call, key, record.value) if record else ()

    def corrupt(self, text: str) -> Corrupt:
        """Return the error for damage in this context."""
        return Corrupt(f"Context {short_repr(self._context)}: {text}")

    def _page(self, record: Record) -> PageRecord | Gone:
        try:
            return decode_page(record)
        except Corrupt as error:
            name = self._name_of(record.key)
            raise self.corrupt(str(error) if name is None else f"page {name} {error.fact}") from error

    def _message(self, record: Record) -> MessageRecord:
        return self._decode(decode_message, record.key, record.value)

    def _note(self, record: Record) -> NoteRecord:
        return self._decode(decode_note, record.key, record.value)

    def _decode(self, decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `decode(…)`. Raises `Corrupt` with the name of the context."""
        try:
            return decode(*args, **kwargs)
        except Corrupt as error:
            raise self.corrupt(str(error)) from error
