"""The integrity check of records: every record can be read, and no record is missing that another one refers to.

A record's checksum shows damage to the record itself. Pages refer to texts and messages. The journal has one entry per
change and names the pages and notes that the change touched. Records are decoded no further than needed, and only keys
are kept in memory.
"""

from collections.abc import Callable

from quire.core.records import (
    NOTE_CODE,
    PAGE_CODE,
    EntryRecord,
    PageRecord,
    decode_body,
    decode_call,
    decode_deferred_change,
    decode_entry,
    decode_head,
    decode_layout,
    decode_message,
    decode_note,
    decode_page,
    decode_segment,
    decode_sheet,
    decode_tally,
    decode_vector,
)
from quire.errors import Corrupt, Hint, NewerFormat, QuireError
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    FAMILIES,
    JOURNAL,
    LAYOUT,
    MESSAGE,
    NOTE,
    PAGE,
    SEGMENT,
    SHEET,
    TALLY,
    VECTOR,
    Family,
    Head,
    Record,
    Storage,
)

DECODERS: dict[Family, Callable[[Record], object]] = {
    SEGMENT: lambda record: decode_segment(record.key, record.value),
    PAGE: decode_page,
    BODY: lambda record: decode_body(record.key, record.value),
    JOURNAL: lambda record: decode_entry(record.key, record.value),
    TALLY: lambda record: decode_tally(record.key, record.value),
    MESSAGE: lambda record: decode_message(record.key, record.value),
    CALL: lambda record: decode_call(record.key, record.value),
    NOTE: lambda record: decode_note(record.key, record.value),
    ANCHOR: lambda record: decode_deferred_change(record.key, record.value),
    VECTOR: lambda record: decode_vector(record.key, record.value),
    LAYOUT: lambda record: decode_layout(record.key, record.value),
    SHEET: lambda record: decode_sheet(record.key, record.value),
}
"""The decoder of each family; a pin has only a key. Each raises `Corrupt` for a damaged record."""


class RecordCheck:
    """Checks the records of one context, passed to `add` in the order of the families and by key.

    Every method raises `Corrupt` at the first damage. With `problems`, damage is appended to that list instead.
    """

    def __init__(self, context: str, head: Head, problems: list[str] | None = None) -> None:
        self._context = context
        self._version = head.version
        self._problems = problems
        self._expected: dict[Family, dict[int, str]] = {BODY: {}, MESSAGE: {}, NOTE: {}}
        """The records that others refer to and that were not added yet, with the record that refers to each."""
        self._pages: set[int] = set()
        self._entry = 0
        self._decode(lambda: decode_head(head.value))

    def add(self, family: Family, record: Record) -> None:
        """Check the next record."""
        decoder = DECODERS.get(family)
        value = None if decoder is None else self._decode(lambda: decoder(record))
        if family in self._expected:
            self._expected[family].pop(record.key, None)
        elif family == PAGE:
            self._pages.add(record.key)
            if isinstance(value, PageRecord):
                referrer = f"page record {record.key}"
                self._expected[MESSAGE].update(dict.fromkeys(value.header.numbers, referrer))
                if value.header.body:
                    self._expected[BODY][value.header.body] = referrer
        elif isinstance(value, EntryRecord):
            self._add_entry(record.key, value)
        elif family == JOURNAL:  # unreadable, but not missing
            self._entry = record.key

    def finish(self) -> None:
        """Check, after the last record, that nothing is missing."""
        for family, missing in self._expected.items():
            for key, referrer in missing.items():
                self._report(f"{family} record {key} is missing; {referrer} refers to it.")
        if self._entry > self._version:
            self._report(f"its head is out of date: it is at {self._version}, and the journal ends at {self._entry}.")
        elif self._entry < self._version:
            self._report(f"journal record {self._entry + 1} is missing; the context is at {self._version}.")

    def _add_entry(self, key: int, entry: EntryRecord) -> None:
        """Check that the journal has no gap and that the records it touched exist.

        A fork's journal starts at the entry that made the fork. Removed pages and notes leave a record under their key.
        """
        if key != self._entry + 1 and not (self._entry == 0 and entry.operation == "fork"):
            self._report(f"journal record {self._entry + 1} is missing; the next one is {key}.")
        self._entry = key
        for touched in entry.touched:
            if touched.family == PAGE_CODE and touched.key not in self._pages:
                self._pages.add(touched.key)  # report it once
                self._report(f"page record {touched.key} is missing; journal record {key} refers to it.")
            if touched.family == NOTE_CODE:
                self._expected[NOTE][touched.key] = f"journal record {key}"

    def _decode(self, decode: Callable[[], object]) -> object:
        try:
            return decode()
        except QuireError as error:
            self._report(str(error), error)
            return None

    def _report(self, text: str, error: QuireError | None = None) -> None:
        if self._problems is not None:
            self._problems.append(text)
            return
        if isinstance(error, NewerFormat):
            raise error
        raise Corrupt(
            f"Context {self._context!r}: {text} Restore it from a backup.",
            Hint("doctor", purpose="to list all damage"),
            Hint("backup", purpose="to copy the context without repairing it"),
        ) from error


def check_records(storage: Storage, context: str, head: Head) -> None:
    """Read all records of a context at `head`. Raises `Corrupt` at the first damage."""
    _check(RecordCheck(context, head), storage, context)


def find_damage(storage: Storage, context: str) -> list[str]:
    """Return everything that is wrong with the records of a context. An unfinished copy is not checked."""
    problems: list[str] = []
    try:
        head = storage.head(context)
        if head is not None and head.version >= 0:
            _check(RecordCheck(context, head, problems), storage, context)
    except Corrupt as error:  # the storage cannot read a row, so the records after it are unknown
        problems.append(str(error))
    return problems


def _check(check: RecordCheck, storage: Storage, context: str) -> None:
    for family in FAMILIES:
        for record in storage.scan(context, family):
            check.add(family, record)
    check.finish()
