"""State: one context in memory. The head and all notes are loaded; pages and texts load when they are read.

The least recently used pages and texts are evicted. Pinned pages stay.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from sys import getsizeof
from typing import TYPE_CHECKING, cast

from quire.core.codec import Note, decode_head, decode_note, note_kind
from quire.core.derived_records import LayoutRecord
from quire.core.memory import LONGEST_ROW, Memory
from quire.core.reader import Numbering, Reader, Slot, numbers_used_up
from quire.core.records import (
    CHECKPOINTS,
    DEFERRED,
    GAPS,
    LAYOUTS,
    PINS,
    PURGED,
    SEGMENTS,
    Counter,
    DeferredChange,
    Digest,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    page_key,
    page_number,
    segment_number,
    stamp,
)
from quire.core.stored import Stored
from quire.errors import Conflict, Corrupt, Hint, NoSuchContext, NoSuchPage, QuireError, short_repr
from quire.model.messages import Message
from quire.model.pages import MAX_NUMBER, Form
from quire.storage.contract import CODES, MAX_KEY, NOTE, PAGE, Loaded, Storage
from quire.storage.overlay import OverlayStorage

if TYPE_CHECKING:
    from quire.core.commit import Changes
    from quire.core.plan import Plan

_UNKNOWN = -1
_LOG_LENGTH = 256
_MIN_SCAN = 3
_PURGED_MESSAGE = MessageRecord(MAX_KEY, 0, Message(role="system", content="[purged]"))
"""Replaces a purged message, because the numbers of other messages do not change."""
_MESSAGE_OVERHEAD = 600  # the rough size of a decoded message without its texts


class State(Reader):
    """One context as stored, read lazily. It changes only by `load`, `apply` and `reserve`."""

    def __init__(
        self, storage: Storage, context: str, *, max_pages: int, max_bytes: int, reserved: Sequence[Counter] = ()
    ) -> None:
        self.context = context
        self.max_pages = max_pages
        self.max_bytes = max_bytes
        self.storage = storage
        self.version = 0
        self._counters = list(reserved)
        self.load()

    def reopen(self, storage: Storage) -> "State":
        """Return the same context, loaded from another storage that holds it."""
        return State(storage, self.context, max_pages=self.max_pages, max_bytes=self.max_bytes, reserved=self.counters)

    def adopt_storage(self, storage: Storage, id: int) -> None:
        """Continue with another storage that holds this state, such as the one below an overlay."""
        self.storage = storage
        self.id = id
        self.stored = Stored(storage, self.context, id)

    def newest(self) -> Loaded | None:
        """Return the context as it is stored now; its notes are None if this state is the newest."""
        return self.storage.load(self.context, (self.id, self.version) if self.version else None)

    def load(self) -> None:
        """Load the stored head and drop what was cached. If loading fails, nothing is dropped.

        Raises `NoSuchContext` if the context was deleted: a commit must not create it again without its pages.
        """
        found = self.storage.load(self.context)
        if found is None and self.version:
            raise deleted_context(self.context)
        try:
            head = decode_head(found.seq, found.head) if found else HeadRecord()
            notes = {each.key: decode_note(each) for each in (found.notes or ())} if found else {}
        except Corrupt as error:
            raise Corrupt(f"Context {short_repr(self.context)}: {error}") from error
        self._check_notes(head, notes)
        self.head = head
        self.version = found.seq if found else 0
        self.adopt_storage(self.storage, found.id if found else 0)
        self._notes = _by_kind(notes)
        self._counters = self._with_reserved(head.counters)
        self._numbers = {counter.segment: number for number, counter in enumerate(self._counters)}
        self._memory = Memory(self.max_pages, self.max_bytes)
        self._new_messages: Mapping[int, tuple[MessageRecord, int]] = {}  # of the last commit, with their sizes
        self.settled_version = self.version
        """The last version at which a deferred change was applied, as far as this handle knows."""
        self._numbering: tuple[NoteRecord | None, Numbering] | None = None
        self._last_ranks: dict[int, int] = {}
        self._child_counts: dict[int, int] = {}
        self._log: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=_LOG_LENGTH)
        self._whole_version = _UNKNOWN
        self._live: list[tuple[int, SegmentRecord]] | None = None
        self._conversation = _UNKNOWN
        self._waiting: int | None = _UNKNOWN
        self._above_pins: set[int] | None = None

    def _check_notes(self, head: HeadRecord, notes: Mapping[int, Note]) -> None:
        """Raise `Corrupt` if a note is missing or outdated. All notes are loaded, so this costs no read."""
        found = digest_of((key, note.seq) for key, note in notes.items())
        if found != head.digests[CODES[NOTE]]:
            segments = {key - SEGMENTS for key in notes if note_kind(key) == SEGMENTS}
            lost = [counter.segment for number, counter in enumerate(head.counters) if number not in segments]
            named = f" (segment {lost[0]!r})" if lost else ""
            counts = f"there are {found.count} of {head.digests[CODES[NOTE]].count}"
            fact = (
                f"note record{named} is missing: {counts}."
                if found.count < head.digests[CODES[NOTE]].count
                else (f"note records are wrong{named}: {counts}, or one is out of date.")
            )
            raise Corrupt(f"Context {short_repr(self.context)}: {fact}", Hint("doctor", purpose="to list all damage"))

    @property
    def counters(self) -> Sequence[Counter]:
        return self._counters

    def number_of(self, segment_id: str) -> int | None:
        return self._numbers.get(segment_id)

    def segment(self, number: int) -> SegmentRecord | None:
        return cast("SegmentRecord | None", self._notes[SEGMENTS].get(number))

    def live_segments(self) -> list[tuple[int, SegmentRecord]]:
        if self._live is None:
            self._live = super().live_segments()
        return list(self._live)

    def conversation(self) -> int | None:
        if self._conversation < 0:
            found = super().conversation()
            if found is None:
                return None
            self._conversation = found
        return self._conversation

    # Pages

    def page(self, key: int) -> PageRecord | Gone | None:
        found = self._memory.page(key)
        if found is None:
            found = self.stored.page(key)
            if found is not None:
                self._memory.keep(key, found)
            elif self._was_used(key):
                self.require_whole(f"page {self.index(key)!r} is missing.")
        return found

    def _was_used(self, key: int) -> bool:
        number = segment_number(key)
        return number < len(self.head.counters) and page_number(key) < self.head.counters[number].next

    def require_whole(self, text: str) -> None:
        """Raise `Corrupt` with this text if the context has lost pages. A number can also be reserved and never used.

        All pages are read, at most once for each version.
        """
        if self._whole_version != self.version:
            found = digest_of((key, page_seq(page)) for key, page in self.stored.pages())
            if found != self.head.digests[CODES[PAGE]]:
                raise self.damage_error(text)
            self._whole_version = self.version

    def members(
        self, folder: int, *, after: Slot | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        if not cold:
            kept = self._memory.row(folder, after, reverse=reverse)
            if kept is not None:
                yield from kept
                return
        version, row = self.version, list[PageRecord]()
        for page in self.stored.members(folder, after=after, reverse=reverse, cold=cold):
            if len(row) <= LONGEST_ROW:
                row.append(page)
            yield page
        if after is None and not cold and version == self.version:
            self._memory.keep_row(folder, row[::-1] if reverse else row)

    def damage_error(self, text: str) -> QuireError:
        return self.outdated_error() or self.stored.corrupt(text)

    def require_page(self, index: object) -> PageRecord:
        try:
            return super().require_page(index)
        except NoSuchPage:
            if deleted := self.deletion_error():
                raise deleted from None
            raise

    def deletion_error(self) -> NoSuchContext | None:
        """Return the error for a context that existed and was deleted; None if it exists."""
        return deleted_context(self.context) if self.version and self.newest() is None else None

    def outdated_error(self) -> Conflict | NoSuchContext | None:
        """Return the error for a state that is not the newest, or was deleted; None if it is the newest."""
        if self.is_newest():
            return None
        return self.deletion_error() or Conflict(
            f"Context {self.context!r} was changed by another writer.", Hint("refresh", purpose="and retry")
        )

    def is_newest(self) -> bool:
        """Return whether this state is what is stored now, also below an overlay."""
        if isinstance(self.storage, OverlayStorage) and self.storage.is_outdated():
            return False
        found = self.newest()
        return (found.id, found.seq) == (self.id, self.version) if found else not self.version

    def segment_pages(self, number: int | None = None, start: int = 0) -> Iterator[PageRecord]:
        """Yield all pages of a segment, or of the context, by key, archived ones included.

        `start` is the number of the first page of the segment.
        """
        first, last = (0, len(self._counters) - 1) if number is None else (number, number)
        for _, page in self.stored.pages(page_key(first, start), page_key(last, MAX_NUMBER)):
            if isinstance(page, PageRecord):
                yield page

    def actor(self, number: int) -> str:
        """Return the name of an author."""
        if number >= len(self.head.actors):
            raise self.damage_error(f"Author {number} is not one of {len(self.head.actors)} known actors.")
        return self.head.actors[number]

    def pins(self) -> set[int]:
        """Return the keys of all pinned pages."""
        return set(self._notes[PINS])

    def pinned_below(self, key: int) -> bool:
        if self._above_pins is None:
            pinned = [self._require_pinned(key) for key in self._notes[PINS]]
            self._above_pins = {above.key for pin in pinned for above in self.ancestors(pin)}
        return key in self._above_pins

    def _require_pinned(self, key: int) -> PageRecord:
        page = self.page(key)
        if isinstance(page, PageRecord) and page.header.pinned:
            return page
        raise self.damage_error(f"pin record {key} names a page that is not pinned.")

    def last_rank(self, folder: int) -> int:
        """Return the highest rank of the children of a folder, cold ones included; 0 if it has none."""
        found = self._last_ranks.get(folder)
        if found is None:
            both = (next(self.stored.members(folder, reverse=True, cold=cold), None) for cold in (False, True))
            found = self._last_ranks[folder] = max(page.rank if page else 0 for page in both)
        return found

    def child_count(self, key: int) -> int:
        """Return a folder's number of children."""
        found = self._child_counts.get(key)
        if found is None:
            found = self._child_counts[key] = sum(1 for _ in self.members(key))
        return found

    # Texts

    def body(self, key: int) -> str:
        if not key:
            return ""
        text: str | None = self._memory.texts.get(key)
        if text is None:
            text = self.stored.body(key)
            if text is None:
                raise self.damage_error(f"body record {key} is missing.")
            self._memory.texts.put(key, text, getsizeof(text))
        return text

    @property
    def next_message(self) -> int:
        return self.head.next_message

    def message(self, number: int) -> MessageRecord:
        found: MessageRecord | None = self._memory.texts.get(~number)
        if found is None:
            found, size = self._new_messages.get(number) or self._stored_message(number)
            self._memory.texts.put(~number, found, size + _MESSAGE_OVERHEAD)
        return found

    def prefetch(self, numbers: Sequence[int]) -> None:
        missing = {n for n in numbers if ~n not in self._memory.texts and n not in self._new_messages}
        if len(missing) < _MIN_SCAN or max(missing) - min(missing) > 2 * len(missing):
            return
        for number, found, size in self.stored.messages(min(missing), max(missing)):
            if number in missing:
                self._memory.texts.put(~number, found, size + _MESSAGE_OVERHEAD)

    def _stored_message(self, number: int) -> tuple[MessageRecord, int]:
        found = self.stored.message(number)
        if found is None and self._is_gone(number, PURGED):
            return _PURGED_MESSAGE, 0
        if found is None:
            raise self.damage_error(f"message record {number} is missing.")
        return found

    def has_message(self, number: int) -> bool:
        """Return whether a message was not destroyed."""
        return not self._is_gone(number, GAPS, PURGED)

    def _is_gone(self, number: int, *notes: int) -> bool:
        """Return whether one of these notes says that a message was destroyed."""
        found = (note.gaps for key in notes if (note := self.note(key)))
        return any(first <= number <= last for gaps in found for first, last in gaps)

    def message_records(self, start: int, stop: int) -> Iterator[tuple[int, MessageRecord]]:
        """Yield the messages with these numbers in order, without caching them. Raises `Corrupt` if one is missing."""
        expected = start
        for number, found, _ in self.stored.messages(start, stop):
            self._check_destroyed(expected, number)
            expected = number + 1
            yield number, found
        self._check_destroyed(expected, min(stop + 1, self.next_message))

    def _check_destroyed(self, start: int, stop: int) -> None:
        for number in range(start, stop):
            if not self._is_gone(number, GAPS, PURGED):
                raise self.damage_error(f"message record {number} is missing.")

    def numbering(self) -> Numbering:
        gaps = self.note(GAPS)
        if self._numbering is None or self._numbering[0] is not gaps:
            self._numbering = (gaps, Numbering(gaps.gaps if gaps else ()))
        return self._numbering[1].ending_at(self.next_message)

    def waiting_exchange(self) -> int | None:
        """Return the key of the open exchange, if any."""
        if self._waiting == _UNKNOWN:
            page = self.open_exchange()
            self._waiting = None if page is None else page.key
        return self._waiting

    def callers(self, key: int) -> tuple[int, ...]:
        return self.stored.callers(key)

    # Notes

    def note(self, key: int) -> NoteRecord | None:
        kind = note_kind(key)
        return cast("NoteRecord | None", self._notes[kind].get(key - kind))

    def note_keys(self) -> Set[int]:
        """Return the keys of the notes about the whole context."""
        return self._notes[0].keys()

    def checkpoints(self) -> Mapping[int, NoteRecord]:
        """Return the checkpoints by seq."""
        return cast("Mapping[int, NoteRecord]", self._notes[CHECKPOINTS])

    def deferred_changes(self) -> Mapping[int, DeferredChange]:
        """Return the deferred changes by page, in the order in which the pages were changed or opened."""
        return cast("Mapping[int, DeferredChange]", self._notes[DEFERRED])

    def layouts(self) -> Mapping[int, LayoutRecord]:
        """Return the layouts by segment."""
        return cast("Mapping[int, LayoutRecord]", self._notes[LAYOUTS])

    def layout(self, number: int) -> LayoutRecord | None:
        return self.layouts().get(number)

    def stored_note(self, key: int) -> Note | None:
        """Return a note of any kind."""
        kind = note_kind(key)
        return self._notes[kind].get(key - kind)

    # Numbers that this handle has reserved, and what it keeps in memory

    def reserve(self, number: int) -> int:
        """Take the next page number of a segment for this handle; the next commit stores that it is used."""
        counter = self._counters[number]
        if counter.next > MAX_NUMBER:
            raise numbers_used_up(counter.segment)
        self._counters[number] = Counter(counter.segment, counter.next + 1)
        return counter.next

    def _with_reserved(self, stored: Sequence[Counter]) -> list[Counter]:
        """Return the stored counters, raised to the numbers that this handle has reserved."""
        taken = {counter.segment: counter.next for counter in self._counters}
        return [Counter(counter.segment, max(counter.next, taken.get(counter.segment, 0))) for counter in stored]

    def evict(self, key: int) -> None:
        """Drop a page and its texts from memory."""
        self._memory.evict(key)
        self._last_ranks.pop(key, None)

    def evict_lru(self, keep: int) -> int:
        """Drop the least recently used pages until `keep` are left; return how many were dropped."""
        self._memory.clear_rows()
        return self._memory.trim(keep)

    def cached_pages(self) -> Sequence[tuple[int, PageRecord | Gone]]:
        """Return the pages in memory, least recently used first."""
        return self._memory.items()

    def apply(self, plan: "Plan", changes: "Changes", head: HeadRecord) -> None:
        """Apply a commit. Its messages are kept: the next view is likely to read them."""
        self.version = plan.seq
        self._log.append((plan.seq, (*plan.pages, *[page_key(number, 0) for number in plan.segments])))
        self.head = head
        self._counters = list(head.counters)
        if len(self._numbers) < len(head.counters):
            self._numbers = {counter.segment: number for number, counter in enumerate(head.counters)}
        if changes.notes:
            self._take_notes(plan.seq, changes.notes)
        self._new_messages = changes.messages
        for number in plan.destroyed_messages:
            self._memory.texts.drop(~number)
        self._take_pages(plan.pages, changes.old_pages)

    def _take_notes(self, version: int, notes: Mapping[int, Note | None]) -> None:
        for kind in set(map(note_kind, notes)):
            self._notes[kind] = dict(self._notes[kind])  # a view may hold the old ones
        for key, note in sorted(notes.items()):
            kind = note_kind(key)
            self._notes[kind].pop(key - kind, None)  # the order of deferred changes is that of their seqs
            if note is not None:
                self._notes[kind][key - kind] = note
            elif kind == DEFERRED:
                self.settled_version = version
            if kind == SEGMENTS:
                self._live, self._conversation = None, _UNKNOWN
            elif kind == PINS:
                self._above_pins = None

    def _take_pages(
        self, pages: Mapping[int, PageRecord | Gone], old_pages: Mapping[int, PageRecord | Gone | None]
    ) -> None:
        conversation = self.conversation()
        changed = [(key, old_pages[key], page) for key, page in pages.items()]
        for key, old, page in changed:
            if old is None and isinstance(page, PageRecord) and page.header.folder:
                self._memory.keep_row(key, [])
        for key, old, page in changed:
            if old is not None:
                self._follow_folder(old, -1)
                if _place(old) != _place(page):
                    self._above_pins = None
            self._follow_folder(page, 1)
            self._memory.follow(key, old, page)
            self._memory.keep(key, page)
            if segment_number(key) == conversation:
                self._follow_waiting(old, page)

    def _follow_waiting(self, old: PageRecord | Gone | None, page: PageRecord | Gone) -> None:
        """Update the open exchange after a page of the conversation changed; forget it unless that is simple."""
        if not isinstance(page, PageRecord) or page.is_root:
            self._waiting = _UNKNOWN
            return
        is_last = page.rank == self._last_ranks.get(page.parent or 0) and page.is_below_root
        is_newest = old is None and is_last and page.header.form in (Form.USER, Form.ASSISTANT)
        if is_newest or (page.key == self._waiting and _place(old) == _place(page)):
            self._waiting = page.key if page.header.pending and not page.header.closed else None
        else:
            self._waiting = _UNKNOWN

    def _follow_folder(self, page: PageRecord | Gone | None, by: int) -> None:
        """Update what is known of the folder that a page enters or leaves."""
        if not isinstance(page, PageRecord) or page.parent is None:
            return
        if page.parent in self._child_counts and not page.is_cold:
            self._child_counts[page.parent] += by
        known = self._last_ranks.get(page.parent)
        if known is not None and by > 0 and page.rank > known:
            self._last_ranks[page.parent] = page.rank

    def pages_changed_since(self, version: int) -> list[int] | None:
        """Return the keys of the pages changed after a version; None if the log does not go back so far."""
        if version == self.version:
            return []
        found: list[int] = []
        for changed, keys in reversed(self._log):
            if changed <= version:
                return found
            found.extend(reversed(keys))
            if changed == version + 1:
                return found[::-1]
        return None


def _by_kind(notes: Mapping[int, Note]) -> dict[int, dict[int, Note]]:
    """Return the notes by kind, and by key within the kind; deferred changes in the order of their seqs."""
    found: dict[int, dict[int, Note]] = {kind: {} for kind in (0, SEGMENTS, PINS, LAYOUTS, DEFERRED, CHECKPOINTS)}
    for key, note in sorted(notes.items(), key=lambda item: (item[1].seq, item[0])):
        found[note_kind(key)][key - note_kind(key)] = note
    return found


def digest_of(records: Iterable[tuple[int, int]]) -> Digest:
    """Return the digest of records with these keys and seqs."""
    count = total = 0
    for key, seq in records:
        count, total = count + 1, total + stamp(key, seq)
    return Digest().plus(count, total)


def page_seq(page: PageRecord | Gone) -> int:
    """Return the entry that last changed a page."""
    return page.header.seq if isinstance(page, PageRecord) else page.seq


def _place(page: PageRecord | Gone | None) -> tuple[int | None, int]:
    return (page.stored_parent, page.rank) if isinstance(page, PageRecord) else (None, 0)


def deleted_context(context: str) -> NoSuchContext:
    """Return the error for a context that was deleted."""
    return NoSuchContext(f"Context {short_repr(context)} was deleted.", Hint("open", purpose="to create it again"))
