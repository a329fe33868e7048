"""The integrity check of records: every record can be read, and no record is missing that another one refers to.

A record's checksum shows damage to the record itself. Pages refer to texts and messages. The journal has one entry per
change and names the pages and notes that the change touched. The head counts records. Only keys are kept in memory.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple
from zlib import crc32

from quire.core.derived_records import VECTOR_STATE, VectorState, decode_layout, decode_sheet, decode_vector
from quire.core.records import (
    CHECKPOINTS,
    GAPS,
    MAX_CALLERS,
    NO_MARK,
    NOTE_CODE,
    ORIGINS,
    PAGE_CODE,
    PURGED,
    SEGMENT_CODE,
    ContextMark,
    EntryRecord,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Tally,
    call_keys,
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
    mark_of,
    message_id_key,
    segment_number,
)
from quire.errors import Corrupt, Hint, NewerFormat, QuireError
from quire.model.pages import NUMBER_BITS
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    DERIVED,
    FAMILIES,
    JOURNAL,
    LAYOUT,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    SHEET,
    TALLY,
    VECTOR,
    Family,
    Head,
    Record,
    Storage,
)

DECODERS: dict[Family, Callable[[Record, ContextMark], object]] = {
    SEGMENT: lambda record, mark: decode_segment(record.key, record.value, mark),
    PAGE: decode_page,
    BODY: lambda record, mark: decode_body(record.key, record.value, mark),
    JOURNAL: lambda record, mark: decode_entry(record.key, record.value, mark),
    TALLY: lambda record, mark: decode_tally(record.key, record.value, mark),
    MESSAGE: lambda record, mark: decode_message(record.key, record.value, mark),
    CALL: lambda record, mark: decode_call(record.key, record.value, mark),
    NOTE: lambda record, mark: decode_note(record.key, record.value, mark),
    ANCHOR: lambda record, mark: decode_deferred_change(record.key, record.value, mark),
    VECTOR: lambda record, mark: decode_vector(record.key, record.value, mark),
    LAYOUT: lambda record, mark: decode_layout(record.key, record.value, mark),
    SHEET: lambda record, mark: decode_sheet(record.key, record.value, mark),
}
"""The decoder of each family; a pin has only a key. Each raises `Corrupt` for a damaged record."""


_TOUCHED: Final[dict[int, Family]] = {PAGE_CODE: PAGE, SEGMENT_CODE: SEGMENT, NOTE_CODE: NOTE}


class Damage(NamedTuple):
    """One damaged or missing record: its family ("head" for the head) and key, and a sentence about it.

    `error` is the error of a record that cannot be read; `needed_by` is the key of the page that refers to it, or -1.
    """

    family: str
    key: int
    text: str
    derived: bool = False
    error: QuireError | None = None
    needed_by: int = -1


class RecordCheck:
    """Checks the records of one context, passed to `add` in the order of the families and by key.

    Every method raises `Corrupt` at the first damage. With `report`, that function is called instead.
    """

    def __init__(self, context: str, head: Head, report: Callable[[Damage], None] | None = None) -> None:
        self._context = context
        self._version = head.version
        self._report_to = report
        self._found: dict[Family, set[int]] = {family: set() for family in FAMILIES}
        self._needed: dict[Family, dict[int, tuple[Family, int]]] = {PAGE: {}, BODY: {}, MESSAGE: {}, NOTE: {}}
        """The records that others refer to, with the record that refers to each."""
        self._seqs: dict[tuple[Family, int], int] = {}
        """The seqs that the pages, segments and notes themselves have."""
        self._touched: dict[tuple[Family, int], int] = {}
        """The last entries that changed these records, according to the journal."""
        self._pages: Counter[int] = Counter()
        self.children: dict[int, Tally] = {}
        """The right number of children of each folder, and the sum of their orders."""
        self.pinned: set[int] = set()
        """The keys of the pinned pages."""
        self._tallies: dict[int, int] = {}
        self._gaps: list[tuple[int, int]] = []
        self._calls: dict[int, list[int]] = {}
        self._stored_calls: dict[int, tuple[int, ...]] = {}
        self._vectors = -1
        self._entry = 0
        self._is_damaged = False
        found = self._decode("head", 0, lambda: decode_head(head.value))
        self._head = found if isinstance(found, HeadRecord) else None
        self._mark = mark_of(self._head) if self._head else NO_MARK
        if self._head is not None and not self._head.belongs_to(context, head.version):
            self._report("head", 0, "its head belongs to another context or version.")

    def add(self, family: Family, record: Record) -> object:
        """Check the next record; return its value, or None if it cannot be read."""
        self._found[family].add(record.key)
        decoder = DECODERS.get(family)
        value = None if decoder is None else self._decode(family, record.key, lambda: decoder(record, self._mark))
        if family == PAGE:
            self._pages[segment_number(record.key)] += 1
        elif family == JOURNAL and value is None:  # unreadable, but not missing
            self._entry = record.key
        if isinstance(value, (PageRecord, Gone, SegmentRecord, NoteRecord)):
            self._seqs[family, record.key] = value.header.seq if isinstance(value, PageRecord) else value.seq
        self._add_value(record.key, value)
        return value

    def finish(self) -> None:
        """Check, after the last record, that nothing is missing."""
        for family, needed in self._needed.items():
            for key in sorted(needed.keys() - self._found[family]):
                source, number = needed[key]
                text = f"{family} record {key} is missing; {source} record {number} refers to it."
                self._report(family, key, text, needed_by=number if source == PAGE else -1)
        self._check_age()
        head = self._head
        if head is None:
            return
        self._check_end()
        for number, counter in enumerate(head.counters):
            if number not in self._found[SEGMENT]:
                self._report(SEGMENT, number, f"segment record {number} ({counter.segment!r}) is missing.")
        for number in sorted(set(range(head.next_message)) - self._found[MESSAGE] - self._needed[MESSAGE].keys()):
            if not any(first <= number <= last for first, last in self._gaps):
                self._report(MESSAGE, number, f"message record {number} is missing.")
        self._check_counts(head)
        if not self._is_damaged:
            self._check_derived(head)

    def _check_age(self) -> None:
        for (family, key), entry in self._touched.items():
            if self._seqs.get((family, key), entry) < entry:
                self._report(family, key, f"{family} record {key} is out of date: entry {entry} changed it.")

    def _check_end(self) -> None:
        if self._entry > self._version:
            text = f"its head is out of date: it is at {self._version}, and the journal ends at {self._entry}."
            self._report("head", 0, text)
        elif self._entry < self._version:
            key = self._entry + 1
            self._report(JOURNAL, key, f"journal record {key} is missing; the context is at {self._version}.")

    def _check_counts(self, head: HeadRecord) -> None:
        """Compare the numbers of records with the counts in the head."""
        counts = head.counts
        for number, counted in enumerate(counts.pages):
            lost = any(segment_number(key) == number for key in self._needed[PAGE].keys() - self._found[PAGE])
            if self._pages[number] < counted and not lost:
                text = f"segment {head.counters[number].segment!r} has {self._pages[number]} of {counted} pages."
                self._report(PAGE, number << NUMBER_BITS, text)
        for key in set(counts.notes) - self._found[NOTE]:
            self._report(NOTE, key, f"note record {key} is missing.")
        checkpoints = sum(key >= CHECKPOINTS for key in (*self._found[NOTE], *self._needed[NOTE]))
        if checkpoints < counts.checkpoints:
            text = f"there are {checkpoints} of {counts.checkpoints} checkpoints."
            self._report(NOTE, CHECKPOINTS, text)
        anchors = len(self._found[ANCHOR])
        if anchors < head.deferred_count:
            self._report(ANCHOR, 0, f"an anchor record is missing; there are {anchors} of {head.deferred_count}.")

    def _check_derived(self, head: HeadRecord) -> None:
        """Compare derived records with the records that they are derived from."""
        if head.tally_of >= 0:
            self._tallies[head.tally_of] = head.tally
        for key in self._tallies.keys() | self.children.keys():
            counted = Tally.unpack(self._tallies.get(key, 0))
            found = self.children.get(key, Tally())
            is_read = key in self._tallies or key not in self._found[TALLY]
            if is_read and counted.children != found.children:
                text = f"it counts {counted.children} children, not {found.children}."
                self._report(TALLY, key, text, derived=True)
            elif is_read and counted.orders != found.orders:
                self._report(TALLY, key, "its sum of the places of the children is wrong.", derived=True)
        for key in self.pinned ^ self._found[PIN]:
            self._report(PIN, key, "its pin and the list of pins disagree.", derived=True)
        for key in self.wrong_calls():
            self._report(CALL, key, f"call record {key} is missing or lacks a page.", derived=True)
        layouts, vectors = len(self._found[LAYOUT]), len(self._found[VECTOR]) - 1
        if layouts < head.layouts:
            self._report(LAYOUT, 0, f"a layout record is missing; there are {layouts} of {head.layouts}.", derived=True)
        if vectors < self._vectors:
            text = f"a vector record is missing; there are {vectors} of {self._vectors}."
            self._report(VECTOR, VECTOR_STATE, text, derived=True)

    def wrong_calls(self) -> dict[int, tuple[int, ...]]:
        """Return the right values of call records that are missing or lack a page."""
        wrong: dict[int, tuple[int, ...]] = {}
        for key, pages in self._calls.items():
            stored = self._stored_calls.get(key, ())
            if len(stored) < MAX_CALLERS and not set(pages) <= set(stored):
                wrong[key] = tuple(dict.fromkeys(reversed(pages)))[:MAX_CALLERS][::-1]
        return wrong

    def _add_value(self, key: int, value: object) -> None:
        match value:
            case PageRecord():
                self._add_page(value)
            case EntryRecord():
                self._add_entry(key, value)
            case MessageRecord():
                calls = (each for call in value.message.tool_calls for each in call_keys(call))
                for found in (*calls, *map(message_id_key, value.ids)):
                    self._calls.setdefault(found, []).append(value.page)
            case NoteRecord() if key in (GAPS, PURGED):
                self._gaps += value.gaps
            case NoteRecord() if key == ORIGINS and self._head and len(value.origins) < len(self._head.lineage):
                self._report(NOTE, key, f"note record {key} is out of date: it does not name all origins.")
            case VectorState():
                self._vectors = value.count
            case int():
                self._tallies[key] = value
            case tuple():
                self._stored_calls[key] = value

    def _add_page(self, page: PageRecord) -> None:
        self._needed[MESSAGE].update(dict.fromkeys(page.header.numbers, (PAGE, page.key)))
        if page.header.body:
            self._needed[BODY][page.header.body] = (PAGE, page.key)
        if page.parent is not None and not page.is_cold:
            self.children[page.parent] = self.children.get(page.parent, Tally()).plus(1, crc32(page.rank))
        if page.header.pinned:
            self.pinned.add(page.key)

    def _add_entry(self, key: int, entry: EntryRecord) -> None:
        """Check that the journal has no gap, and note the records that it touched.

        A fork's journal starts at the entry that made the fork. Removed pages and notes leave a record under their key.
        """
        if key != self._entry + 1 and not (self._entry == 0 and entry.operation == "fork"):
            missing = self._entry + 1
            self._report(JOURNAL, missing, f"journal record {missing} is missing; the next one is {key}.")
        self._entry = key
        for touched in entry.touched:
            self._touched[_TOUCHED[touched.family], touched.key] = key
            if touched.family == PAGE_CODE:
                self._needed[PAGE].setdefault(touched.key, (JOURNAL, key))
                self._need_body(Record(touched.key, touched.before or b"", touched.group, touched.order), key)
            if touched.family == NOTE_CODE:
                self._needed[NOTE].setdefault(touched.key, (JOURNAL, key))

    def _need_body(self, before: Record, entry: int) -> None:
        """Require the text of a previous version of a page. A purge removes the text together with the version."""
        page = self._decode(JOURNAL, entry, lambda: decode_page(before)) if before.value else None
        if isinstance(page, PageRecord) and page.header.body:
            self._needed[BODY].setdefault(page.header.body, (JOURNAL, entry))

    def _decode(self, family: str, key: int, decode: Callable[[], object]) -> object:
        try:
            return decode()
        except QuireError as error:
            self._report(family, key, str(error), derived=family in DERIVED, error=error)
            return None

    def _report(
        self,
        family: str,
        key: int,
        text: str,
        *,
        derived: bool = False,
        error: QuireError | None = None,
        needed_by: int = -1,
    ) -> None:
        self._is_damaged |= not derived
        if self._report_to is not None:
            self._report_to(Damage(family, key, text, derived, error, needed_by))
            return
        if isinstance(error, NewerFormat):
            raise error
        if derived:
            remedy = Hint("doctor", arguments="repair=True", purpose="to make it again")
            raise Corrupt(f"Context {self._context!r}: {family} record {key} is wrong: {text}", remedy) from error
        raise Corrupt(
            f"Context {self._context!r}: {text} Restore it from a backup.",
            Hint("doctor", purpose="to list all damage"),
            Hint("backup", purpose="to copy the store with the damage"),
        ) from error


def check_records(storage: Storage, context: str, head: Head) -> None:
    """Read all records of a context at `head`. Raises `Corrupt` at the first damage."""
    read_records(RecordCheck(context, head), storage, context)


def read_records(
    check: RecordCheck, storage: Storage, context: str, pages: dict[int, PageRecord | Gone] | None = None
) -> None:
    """Pass all records of a context to a check, and add the pages among them to `pages`."""
    for family in FAMILIES:
        for record in storage.scan(context, family):
            value = check.add(family, record)
            if pages is not None and isinstance(value, PageRecord | Gone):
                pages[record.key] = value
    check.finish()
