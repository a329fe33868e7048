"""The integrity check of records: each can be read, and none is missing or out of date.

A record's checksum shows damage to the record itself. The head has the digest of each family. The journal and the pages
name the record that is missing. Only keys are kept in memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Final, NamedTuple, cast

from quire.core.codec import (
    Note,
    decode_call,
    decode_entry,
    decode_head,
    decode_note,
    decode_page,
    decode_text,
    decode_touched,
    note_kind,
)
from quire.core.records import (
    CHECKPOINTS,
    DEFERRED,
    GAPS,
    LAYOUTS,
    MAX_CALLERS,
    MESSAGES,
    NOTE_CODE,
    PAGE_CODE,
    PINS,
    PURGED,
    SEGMENTS,
    DeferredChange,
    Digest,
    EntryRecord,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    PinRecord,
    Touched,
    call_keys,
    message_id_key,
)
from quire.core.state import digest_of, page_seq
from quire.errors import Corrupt, Hint, NewerFormat, QuireError, short_repr
from quire.storage.contract import CALL, CODES, NOTE, PAGE, TEXT, Family, Flaw, Loaded, Record, Storage

_KINDS: Final = {SEGMENTS: "segment", PINS: "pin", LAYOUTS: "layout", DEFERRED: "deferred change"}
_DECODERS: Final = {PAGE: decode_page, TEXT: decode_text, NOTE: decode_note, CALL: decode_call}


class Damage(NamedTuple):
    """One damaged or missing record: its family ("head", "journal") and key, and a sentence about it.

    A `derived` record can be made again. `error` is the error of a record that cannot be read; `needed_by` is the key
    of the page that refers to it, or -1.
    """

    family: str
    key: int
    text: str
    derived: bool = False
    error: QuireError | None = None
    needed_by: int = -1


def name_of(family: str, key: int) -> str:
    """Return the name of a record in sentences."""
    if family == TEXT:
        return f"body record {key}" if key < MESSAGES else f"message record {key - MESSAGES}"
    kind = note_kind(key)
    if family == NOTE and kind in _KINDS:
        return f"{_KINDS[kind]} record {key - kind}"
    if family == NOTE and kind == CHECKPOINTS:
        return f"the checkpoint at entry {key - kind}"
    return f"{family} record {key}"


@contextmanager
def snapshot_of(storage: Storage, context: str) -> Iterator[tuple[Storage, Loaded | None]]:
    """Return a block in which a storage shows one context as it is now, under its name, and what it loads there."""
    found = storage.load(context)
    if found is None:
        yield storage, None
        return
    with storage.snapshot(found.id) as frozen:
        is_there = next(frozen.entries(found.id, reverse=True), None) is not None
        if is_there and frozen.load(context) is None:  # a copy in memory has no names
            frozen.name(found.id, context)
        yield frozen, frozen.load(context) if is_there else None


PAUSE: Final = 0.3
"""The seconds in which something that is in progress changes."""


def lasting_flaws(storage: Storage) -> Sequence[Flaw]:
    """Return what is wrong with a store itself, without what is only in progress."""
    found = storage.examine()
    if found:
        sleep(PAUSE)
        found = [flaw for flaw in storage.examine() if flaw in found]
    return found


class RecordCheck:
    """Reads all records of one context in a snapshot of its storage."""

    def __init__(self, storage: Storage, found: Loaded) -> None:
        self._storage = storage
        self._found = found
        self.head: HeadRecord | None = None
        self.notes: dict[int, Note] = {}
        self.repairs: dict[tuple[Family, int], Note | tuple[int, ...] | None] = {}
        """The right values of derived records that are damaged, missing or wrong; None for one that must go."""
        self.unused: set[int] = set()
        """The bodies that no page and no entry has."""
        self.seqs: dict[tuple[Family, int], int] = {}
        """All records, each with the entry that changed it; -1 for one that cannot be read."""
        self._pinned: set[int] = set()
        self._needed: dict[tuple[Family, int], tuple[str, int]] = {}
        """The records that others refer to, with the record that refers to each."""
        self._last_change: dict[tuple[Family, int], int] = {}
        self._callers: dict[int, list[int]] = {}
        self._stored_calls: dict[int, tuple[int, ...]] = {}

    def damages(self) -> Iterator[Damage]:
        """Yield every damaged, missing or outdated record. What follows from a loss is not told."""
        found = list(self._all_damages())
        lost = [damage for damage in found if not damage.derived]
        yield from lost
        if self.head is not None and not lost:
            found += self._check_derived(self.head)
            yield from list(self._check_digests(self.head)) or found

    def _all_damages(self) -> Iterator[Damage]:
        try:
            self.head = decode_head(self._found.seq, self._found.head)
        except QuireError as error:
            yield Damage("head", 0, str(error), error=error)
        for family in (NOTE, PAGE, TEXT, CALL):
            for record in self._storage.scan(self._found.id, family):
                yield from self._check_record(family, record)
        yield from self._check_entries()
        yield from self._check_references()

    def _check_record(self, family: Family, record: Record) -> Iterator[Damage]:
        key = record.key
        self.seqs[family, key] = 0
        try:
            value = _DECODERS[family](record)
        except QuireError as error:
            self.seqs[family, key] = -1
            derived = family == CALL or (family == NOTE and note_kind(key) in (PINS, LAYOUTS))
            if derived:
                self.repairs[family, key] = None
            yield Damage(family, key, str(error), derived=derived, error=error)
            return
        if family != PAGE and (record.parent is not None or record.rank):
            yield Damage(family, key, f"{name_of(family, key)} has a place, which only pages have.")
        match value:
            case PageRecord():
                self._add_page(value)
            case MessageRecord():
                calls = (each for call in value.message.tool_calls for each in call_keys(call))
                for found in (*calls, *map(message_id_key, value.ids)):
                    self._callers.setdefault(found, []).append(value.page)
            case tuple():
                self._stored_calls[key] = value
        if isinstance(value, PageRecord | Gone):
            self.seqs[family, key] = page_seq(value)
        elif family == NOTE:
            self._add_note(key, cast(Note, value))

    def _add_note(self, key: int, note: Note) -> None:
        self.notes[key] = note
        self.seqs[NOTE, key] = note.seq
        if isinstance(note, DeferredChange) and note.before is not None:
            self._need_body(Touched(PAGE_CODE, key - DEFERRED, note.before, note.parent, note.rank), NOTE, key)

    def _add_page(self, page: PageRecord) -> None:
        needed = [MESSAGES + number for number in page.header.numbers]
        for key in (*needed, *([page.header.body] if page.header.body else [])):
            self._needed[TEXT, key] = PAGE, page.key
        if page.parent is not None:
            self._needed.setdefault((PAGE, page.parent), (PAGE, page.key))
        if page.header.pinned:
            self._pinned.add(page.key)

    def _need_body(self, touched: Touched, family: str, key: int) -> None:
        """Require the text of a previous version of a page. A purge removes the text together with the version."""
        page = decode_touched(touched)
        if isinstance(page, PageRecord) and page.header.body:
            self._needed.setdefault((TEXT, page.header.body), (family, key))

    def _check_entries(self) -> Iterator[Damage]:
        expected = self.head.first if self.head is not None else None
        for stored in self._storage.entries(self._found.id):
            if expected is not None and stored.seq != expected:
                yield Damage("journal", expected, f"journal record {expected} is missing.")
            expected = stored.seq + 1
            try:
                entry = decode_entry(stored)
                self._add_entry(stored.seq, entry)
            except QuireError as error:
                yield Damage("journal", stored.seq, str(error), error=error)
        if expected is not None and expected != self._found.seq + 1:
            yield Damage(
                "journal", expected, f"journal record {expected} is missing; the context is at {self._found.seq}."
            )

    def _add_entry(self, seq: int, entry: EntryRecord) -> None:
        for touched in entry.touched:
            family: Family = PAGE if touched.family == PAGE_CODE else NOTE
            key = touched.key if touched.family in (PAGE_CODE, NOTE_CODE) else SEGMENTS + touched.key
            self._needed.setdefault((family, key), ("journal", seq))
            self._last_change[family, key] = seq
            if family == PAGE:
                self._need_body(touched, "journal", seq)

    def _check_references(self) -> Iterator[Damage]:
        for (family, key), (source, number) in sorted(self._needed.items()):
            if (family, key) not in self.seqs:
                text = f"{name_of(family, key)} is missing; {source} record {number} refers to it."
                yield Damage(family, key, text, needed_by=number if source == PAGE else -1)
        for (family, key), seq in self._last_change.items():
            if 0 <= self.seqs.get((family, key), seq) < seq:
                yield Damage(family, key, f"{name_of(family, key)} is out of date: entry {seq} changed it.")
        if self.head is not None:
            yield from self._check_numbers(self.head)

    def _check_numbers(self, head: HeadRecord) -> Iterator[Damage]:
        """Check that no segment and no message is missing that nothing refers to."""
        for number, counter in enumerate(head.counters):
            if (NOTE, SEGMENTS + number) not in self.seqs and (NOTE, SEGMENTS + number) not in self._needed:
                text = f"segment record {number} ({counter.segment!r}) is missing."
                yield Damage(NOTE, SEGMENTS + number, text)
        notes = (self.notes.get(key) for key in (GAPS, PURGED))
        gaps = [gap for note in notes if isinstance(note, NoteRecord) for gap in note.gaps]
        for number in range(head.next_message):
            key = MESSAGES + number
            is_known = (TEXT, key) in self.seqs or (TEXT, key) in self._needed
            if not is_known and not any(first <= number <= last for first, last in gaps):
                yield Damage(TEXT, key, f"message record {number} is missing.")

    def _check_digests(self, head: HeadRecord) -> Iterator[Damage]:
        """Compare the digests of the head with those of the records and of the pins that are missing.

        A pin that is made again has another seq, so only the number of notes tells then.
        """
        for family in (PAGE, TEXT, NOTE):
            found, right = self.digest(family), head.digests[CODES[family]]
            repairs = [place for place in self.repairs if place[0] == family]
            count = found.count + sum(place not in self.seqs for place in repairs)
            if count != right.count:
                yield Damage(family, 0, f"there are {count} of {right.count} {family} records.")
            elif found != right and not repairs:
                yield Damage(family, 0, f"a {family} record is out of date or replaced.")

    def digest(self, family: Family) -> Digest:
        """Return the digest of the stored records of a family."""
        return digest_of((key, seq) for (of, key), seq in self.seqs.items() if of == family)

    def _check_derived(self, head: HeadRecord) -> Iterator[Damage]:
        """Compare derived records with the records that they are derived from."""
        for key in self._pinned ^ {key - PINS for key in self.notes if note_kind(key) == PINS}:
            self.repairs[NOTE, PINS + key] = PinRecord(self._found.seq + 1) if key in self._pinned else None
            yield Damage(PAGE, key, "its pin and the list of pins disagree.", derived=True)
        for key, pages in self._callers.items():
            stored = self._stored_calls.get(key, ())
            if len(stored) < MAX_CALLERS and not set(pages) <= set(stored):
                self.repairs[CALL, key] = tuple(dict.fromkeys(reversed(pages)))[:MAX_CALLERS][::-1]
                yield Damage(CALL, key, f"call record {key} is missing or lacks a page.", derived=True)
        if self.digest(CALL) != head.digests[CODES[CALL]] and not any(family == CALL for family, _ in self.repairs):
            yield Damage(CALL, 0, "a call record is missing.", derived=True)
        bodies = {key for family, key in self.seqs if family == TEXT and key < MESSAGES}
        self.unused = bodies - {key for family, key in self._needed if family == TEXT}


def check_records(storage: Storage, context: str, found: Loaded) -> None:
    """Read all records of a context in a snapshot. Raises `Corrupt` at the first damage."""
    for damage in RecordCheck(storage, found).damages():
        if isinstance(damage.error, NewerFormat):
            raise damage.error
        name, listing = short_repr(context), Hint("doctor", purpose="to list all damage")
        if damage.derived:
            remedy = Hint("doctor", arguments="repair=True", purpose="to make it again")
            raise Corrupt(f"Context {name}: {damage.text}", remedy) from damage.error
        copy = Hint("backup", purpose="to copy the store with the damage")
        raise Corrupt(f"Context {name}: {damage.text} Restore it from a backup.", listing, copy) from damage.error
