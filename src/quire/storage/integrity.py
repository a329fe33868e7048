"""Whether the records of a context are sound: each can be read, and none is missing that another one tells of.

What a record says about itself is its checksum; what others say of it is in the pages (texts, messages) and in the
journal, which has an entry for every step and names the pages and notes (checkpoints, for one) that it changed. Nothing
is decoded further than needed, and nothing is kept but keys.
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
    decode_message,
    decode_note,
    decode_page,
    decode_segment,
    decode_tally,
    decode_vector,
)
from quire.errors import Corrupt, NewerFormat, QuireError
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    FAMILIES,
    JOURNAL,
    MESSAGE,
    NOTE,
    PAGE,
    SEGMENT,
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
}
"""How a record of each family is read; a pin has nothing to read but its key. They raise `Corrupt`."""


class Soundness:
    """Judges the records of one context as they pass, in the order of the families and by key.

    Every method raises `Corrupt` with the context and the record.
    """

    def __init__(self, context: str, head: Head) -> None:
        self._context = context
        self._version = head.version
        self._wanted: dict[Family, dict[int, str]] = {BODY: {}, MESSAGE: {}, NOTE: {}}
        """The records that others tell of and that have not passed yet, with who does."""
        self._pages: set[int] = set()
        self._entry = 0
        self._read(lambda: decode_head(head.value))

    def take(self, family: Family, record: Record) -> None:
        """Look at the next record."""
        decode = DECODERS.get(family)
        found = None if decode is None else self._read(lambda: decode(record))
        if family in self._wanted:
            self._wanted[family].pop(record.key, None)
        elif family == PAGE:
            self._pages.add(record.key)
            if isinstance(found, PageRecord):
                teller = f"page record {record.key}"
                self._wanted[MESSAGE].update(dict.fromkeys(found.header.numbers, teller))
                if found.header.body:
                    self._wanted[BODY][found.header.body] = teller
        elif isinstance(found, EntryRecord):
            self._follow(record.key, found)
        elif family == JOURNAL:  # it is there, whatever it said
            self._entry = record.key

    def close(self) -> None:
        """Say that all records have passed."""
        for family, left in self._wanted.items():
            for key, teller in left.items():
                self._tell(f"{family} record {key} is missing; {teller} tells of it.")
        if self._entry > self._version:
            self._tell(f"its head is an older one: it is at {self._version}, and the journal goes on to {self._entry}.")
        elif self._entry < self._version:
            self._tell(f"journal record {self._entry + 1} is missing; the context is at {self._version}.")

    def _follow(self, key: int, entry: EntryRecord) -> None:
        """A journal has no gap, that of a fork starts where the fork was made, and what it touched is still there:
        pages and notes that were taken away leave something under their keys."""
        if key != self._entry + 1 and not (self._entry == 0 and entry.operation == "fork"):
            self._tell(f"journal record {self._entry + 1} is missing; the next one is {key}.")
        self._entry = key
        for touched in entry.touched:
            if touched.family == PAGE_CODE and touched.key not in self._pages:
                self._pages.add(touched.key)  # told once
                self._tell(f"page record {touched.key} is missing; journal record {key} tells of it.")
            if touched.family == NOTE_CODE:
                self._wanted[NOTE][touched.key] = f"journal record {key}"

    def _read(self, decode: Callable[[], object]) -> object:
        try:
            return decode()
        except QuireError as error:
            self._tell(str(error), error)
            return None

    def _tell(self, text: str, error: QuireError | None = None) -> None:
        if isinstance(error, NewerFormat):
            raise error
        raise Corrupt(
            f"Context {self._context!r}: {text} Restore it from a backup; doctor() names everything that is damaged,"
            " and backup() copies what is there as it is."
        ) from error


class Findings(Soundness):
    """Lists all that is wrong with a context instead of raising the first of it."""

    def __init__(self, context: str, head: Head) -> None:
        self.found: list[str] = []
        super().__init__(context, head)

    def _tell(self, text: str, error: QuireError | None = None) -> None:
        self.found.append(text)


def findings(storage: Storage, context: str) -> list[str]:
    """All that is wrong with the records of a context, one that is an unfinished copy aside. Streams."""
    found: list[str] = []
    try:
        head = storage.head(context)
        if head is None or head.version < 0:
            return found
        judge = Findings(context, head)
        found = judge.found
        for family in FAMILIES:
            for record in storage.scan(context, family):
                judge.take(family, record)
        judge.close()
    except Corrupt as error:  # the storage itself cannot read a row: what comes after it is not known
        found.append(str(error))
    return found
