"""State: one context in memory. The head and all segments are loaded; pages and bodies load when they are read.

The least recently used pages and bodies are evicted. Pinned pages stay.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from sys import getsizeof
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quire.core import missing
from quire.core.derived_records import LayoutRecord, decode_layout
from quire.core.loading import load_context
from quire.core.reader import LONGEST_ROW, Folder, FolderRows, Numbering, PageCache, Reader, Slot, numbers_used_up
from quire.core.records import (
    AGENTS,
    CHECKPOINTS,
    COLD_GROUP,
    GAPS,
    PURGED,
    Counter,
    Decode,
    DeferredChange,
    ForeignRecord,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Tally,
    decode_body,
    decode_call,
    decode_deferred_change,
    decode_message,
    decode_note,
    decode_page,
    decode_tally,
    mark_of,
    page_key,
    page_number,
    segment_number,
)
from quire.errors import Corrupt, NoSuchPage, QuireError, short_repr
from quire.model.messages import Message
from quire.model.pages import MAX_NUMBER
from quire.model.sized_cache import SizedCache
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    LAYOUT,
    MAX_KEY,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    TALLY,
    Head,
    Record,
    Storage,
    StorageReader,
)

if TYPE_CHECKING:
    from quire.core.commit import Changes
    from quire.core.plan import Plan

T = TypeVar("T")
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
        self._counters = list(reserved)
        self.version = 0
        self.adopt_storage(storage)
        self.load()

    def reopen(self, storage: Storage) -> "State":
        """Return the same context, loaded from another storage that holds it."""
        return State(storage, self.context, max_pages=self.max_pages, max_bytes=self.max_bytes, reserved=self.counters)

    def adopt_storage(self, storage: Storage) -> None:
        """Continue with another storage that holds this state, such as the one below an overlay."""
        self.storage = storage
        self.near: StorageReader = storage
        """The reader for small records: the records that were prefetched with the head, or else the storage."""
        self._prefetch = getattr(storage, "prefetch", None)  # quicker than `isinstance` with `SupportsPrefetch`

    def load(self) -> None:
        """Load the stored head and drop what was cached. If loading fails, nothing is dropped.

        Raises `NoSuchContext` if the context was deleted: a commit must not create it again without its pages.
        """
        loaded = load_context(self.storage, self._prefetch, self.context, may_be_new=not self.version)
        head, found = loaded.head, loaded.found
        self._segments = loaded.segments
        self.mark = mark_of(head)
        self.near = loaded.near
        self.version = found.version if found else 0
        self.head = head
        self.head_value = found.value if found else b""
        self._counters = self._with_reserved(head.counters)
        self._numbers = {counter.segment: number for number, counter in enumerate(self._counters)}
        self._rows = FolderRows()
        self._bodies: SizedCache[int, Any] = SizedCache(self.max_bytes)  # texts by key, messages by ~number
        self._pages = PageCache(self.max_pages, self._bodies)
        self._new_messages: Mapping[int, tuple[MessageRecord, int]] = {}  # of the last commit, with their sizes
        self._notes: dict[int, NoteRecord | None] | None = None  # those below AGENTS are loaded together
        self._deferred: dict[int, DeferredChange] | None = None
        self._layouts: dict[int, LayoutRecord] | None = None
        self.settled_version = self.version
        """The last version at which a deferred change was applied, as far as this handle knows."""
        self._numbering: tuple[NoteRecord | None, Numbering] | None = None
        self._folders: OrderedDict[int, Folder] = OrderedDict()
        self._log: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=_LOG_LENGTH)
        self._live: list[tuple[int, SegmentRecord]] | None = None
        self._conversation = -1  # unknown yet
        self._waiting: int | None = _UNKNOWN
        self._pins: set[int] | None = None
        self._above_pins: set[int] | None = None
        self.child_counts: dict[int, int] = {}
        """The number of children of folders of which no child is missing."""
        self.whole_segments: set[int] = set()
        """Segments of which no page is missing."""
        self._read_segments: set[int] = set()  # of which all pages were read and are in their places

    @property
    def counters(self) -> Sequence[Counter]:
        return self._counters

    def number_of(self, segment_id: str) -> int | None:
        return self._numbers.get(segment_id)

    def segment(self, number: int) -> SegmentRecord | None:
        return self._segments.get(number)

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

    def page(self, key: int) -> PageRecord | Gone | None:
        found = self._pages.recent.get(key)
        if found is not None:
            self._pages.recent.move_to_end(key)
            return found
        if key in self._pages.pinned:
            return self._pages.pinned[key]
        record = self.near.get(self.context, PAGE, key)
        if record is None:
            number = segment_number(key)
            if number < len(self.head.counters) and page_number(key) < self.head.counters[number].next:
                missing.check_segment(self, number, key)
            return None
        page = self._decode_page(record)
        self._pages.keep(key, page)
        return page

    def members(
        self, folder: int, *, after: Slot | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        if not cold:
            kept = () if self.child_counts.get(folder) == 0 else self._rows.members(folder, after, reverse=reverse)
            if kept is not None:
                yield from kept
                return
        group = folder | COLD_GROUP if cold else folder
        version, count = self.version, 0
        row: list[PageRecord] = []
        for record in self.near.members(self.context, PAGE, group, after=after, reverse=reverse):
            count += 1
            page = self._decode_page(record)
            if isinstance(page, PageRecord):
                if count <= LONGEST_ROW:
                    row.append(page)
                yield page
        if after is not None or cold or version != self.version:
            return
        if count != self.child_counts.get(folder):
            missing.check_children(self, folder, count)
        if not count and not page_number(folder):
            missing.check_root(self, folder)
        if len(row) == count:
            self._rows.keep(folder, row[::-1] if reverse else row)

    def check_folder(self, key: int) -> None:
        if key not in self.child_counts:
            missing.check_folder(self, key)

    def check_segment(self, number: int) -> None:
        """Raise `Corrupt` if a page of a segment is missing or not in its place, also one that is cold."""
        if number not in self._read_segments:
            for _ in self.segment_pages(number):
                pass
            self._read_segments.add(number)

    def damage_error(self, text: str) -> QuireError:
        return self.outdated_error() or self._corrupt(text)

    def require_page(self, index: object) -> PageRecord:
        try:
            return super().require_page(index)
        except NoSuchPage:
            if deleted := self.deletion_error():
                raise deleted from None
            raise

    deletion_error = missing.deletion_error
    outdated_error = missing.outdated_error

    def segment_pages(self, number: int | None = None, start: int = 0) -> Iterator[PageRecord]:
        """Yield all pages of a segment, or of the context, by key, archived ones included.

        `start` is the number of the first page of the segment.
        """
        first, last = (0, len(self._counters) - 1) if number is None else (number, number)
        expected, end = page_key(first, start), page_key(last, MAX_NUMBER)
        for record in self.near.scan(self.context, PAGE, expected, end):
            if record.key != expected:
                missing.check_gap(self, expected, record.key)
            expected = record.key + 1
            page = self._decode_page(record)
            if isinstance(page, PageRecord):
                yield page
        if last < len(self.head.counters) and expected < end:
            missing.check_gap(self, expected, end)

    def pinned_below(self, key: int) -> bool:
        if self._above_pins is None:
            pinned = [missing.require_pinned(self, key) for key in self.pins()]
            self._above_pins = {above.key for pin in pinned for above in self.ancestors(pin)}
        return key in self._above_pins

    def actor(self, number: int) -> str:
        """Return the name of an author."""
        if number >= len(self.head.actors):
            raise self.damage_error(f"Author {number} is not one of {len(self.head.actors)} known actors.")
        return self.head.actors[number]

    def pins(self) -> set[int]:
        """Return the keys of all pinned pages."""
        if self._pins is None:
            self._pins = {record.key for record in self.near.scan(self.context, PIN)}
            if len(self._pins) < self.head.counts.pins:
                self._pins = missing.check_pins(self, self._pins)
        return self._pins

    def folder(self, key: int) -> Folder:
        """Return a folder's number of children and highest rank."""
        found = self._folders.get(key)
        if found is None:
            last, cold = self._last_rank(key), self._last_rank(key | COLD_GROUP)
            tally = self.tally(key)
            if bool(tally.children) is (last is None):
                missing.check_children(self, key, 0 if last is None else -1)
            found = Folder(tally, max(last or b"", cold or b"") or None)
            self._keep_folder(key, found)
        else:
            self._folders.move_to_end(key)
        return found

    def _last_rank(self, group: int) -> bytes | None:
        last = next(self.near.members(self.context, PAGE, group, reverse=True), None)
        return None if last is None else cast(PageRecord, self._decode_page(last)).rank

    def child_count(self, key: int) -> int:
        """Return a folder's number of children."""
        found = self._folders.get(key)
        count = (self.tally(key) if found is None else found.tally).children
        if not count and found is None and next(self.members(key), None) is not None:
            missing.check_children(self, key, -1)
        return count

    def body(self, key: int) -> str:
        if not key:
            return ""
        text: str | None = self._bodies.get(key)
        if text is None:
            record = self.storage.get(self.context, BODY, key)
            if record is None:
                raise self.damage_error(f"body record {key} is missing.")
            text = self.decode(decode_body, key, record.value)
            self._bodies.put(key, text, getsizeof(text))
        return text

    @property
    def next_message(self) -> int:
        return self.head.next_message

    def message(self, number: int) -> MessageRecord:
        found: MessageRecord | None = self._bodies.get(~number)
        if found is None:
            found, size = self._new_messages.get(number) or self._stored_message(number)
            self._bodies.put(~number, found, size + _MESSAGE_OVERHEAD)
        return found

    def prefetch(self, numbers: Sequence[int]) -> None:
        missing = [number for number in numbers if ~number not in self._bodies and number not in self._new_messages]
        if len(missing) < _MIN_SCAN or max(missing) - min(missing) > 2 * len(missing):
            return
        wanted = set(missing)
        for record in self.storage.scan(self.context, MESSAGE, min(missing), max(missing)):
            found = self.decode(decode_message, record.key, record.value)
            if record.key in wanted:
                self._bodies.put(~record.key, found, len(record.value) + _MESSAGE_OVERHEAD)

    def _stored_message(self, number: int) -> tuple[MessageRecord, int]:
        record = self.storage.get(self.context, MESSAGE, number)
        if record is not None:
            return self.decode(decode_message, number, record.value), len(record.value)
        purged = self.note(PURGED)
        if purged is not None and any(first <= number <= last for first, last in purged.gaps):
            return _PURGED_MESSAGE, 0
        raise self.damage_error(f"message record {number} is missing.")

    def numbering(self) -> Numbering:
        gaps = self.note(GAPS)
        if self._numbering is None or self._numbering[0] is not gaps:
            self._numbering = (gaps, Numbering(gaps.gaps if gaps else ()))
        return self._numbering[1].ending_at(self.next_message)

    def waiting_exchange(self) -> int | None:
        """Return the key of the open exchange, if any. It is searched once and then updated by each commit."""
        if self._waiting == _UNKNOWN:
            page = self.open_exchange()
            self._waiting = None if page is None else page.key
        return self._waiting

    def _follow_waiting(self, version: int, page: PageRecord | Gone) -> None:
        """Update the open exchange after a page of the conversation changed."""
        if not isinstance(page, PageRecord) or page.is_cold:
            self._waiting = _UNKNOWN
        elif page.key == self._waiting:
            self._waiting = page.key if page.header.pending and not page.header.closed else None
        elif page.header.pending:
            folder = self._folders.get(page.parent or 0)
            newest = folder is not None and folder.last == page.rank and page.header.born == version
            self._waiting = page.key if newest and page_number(page.parent or 0) == 0 else _UNKNOWN
        elif page.header.born == version and self._waiting is not None:  # it may come after the open exchange
            self._waiting = _UNKNOWN

    def message_records(self, start: int, stop: int) -> Iterator[tuple[int, MessageRecord]]:
        """Yield the messages with these numbers in order, without caching them. Raises `Corrupt` if one is missing."""
        expected = start
        for record in self.storage.scan(self.context, MESSAGE, start, stop):
            if record.key > expected:
                missing.check_destroyed(self, expected, record.key)
            expected = record.key + 1
            yield record.key, self.decode(decode_message, record.key, record.value)
        if expected <= stop:
            missing.check_destroyed(self, expected, min(stop + 1, self.next_message))

    def note(self, key: int) -> NoteRecord | None:
        if self._notes is None:
            stored = self.near.scan(self.context, NOTE, 0, AGENTS - 1) if self.version else ()
            notes = {record.key: self.decode(decode_note, record.key, record.value) for record in stored}
            for counted in self.head.counts.notes:
                if counted < AGENTS and counted not in notes:
                    raise self.damage_error(f"note record {counted} is missing.")
            self._notes = {**notes}
        if key < AGENTS or key in self._notes:
            return self._notes.get(key)
        record = self.near.get(self.context, NOTE, key)
        if record is None and key in self.head.counts.notes:
            raise self.damage_error(f"note record {key} is missing.")
        found = None if record is None else self.decode(decode_note, key, record.value)
        if key < CHECKPOINTS:
            self._notes[key] = found
        return found

    def deferred_changes(self) -> Mapping[int, DeferredChange]:
        """Return the deferred changes by page, in the order in which the pages were changed or opened."""
        if self._deferred is None:
            stored = self.near.scan(self.context, ANCHOR) if self.head.deferred_count else ()
            found = [(record.key, self.decode(decode_deferred_change, record.key, record.value)) for record in stored]
            if len(found) < self.head.deferred_count:
                missing.check_number(self, ANCHOR, len(found), self.head.deferred_count)
            self._deferred = dict(sorted(found, key=lambda item: (item[1].seq, item[0])))
        return self._deferred

    def layouts(self) -> Mapping[int, LayoutRecord]:
        """Return the layouts by segment."""
        if self._layouts is None:
            stored = list(self.near.scan(self.context, LAYOUT)) if self.head.layouts else ()
            if len(stored) < self.head.layouts:
                missing.check_number(self, LAYOUT, len(stored), self.head.layouts)
            self._layouts = {record.key: self.decode(decode_layout, record.key, record.value) for record in stored}
        return self._layouts

    def layout(self, number: int) -> LayoutRecord | None:
        return self.layouts().get(number)

    def callers(self, key: int) -> tuple[int, ...]:
        record = self.storage.get(self.context, CALL, key)
        return self.decode(decode_call, key, record.value) if record else ()

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
        """Drop a page and its body from memory."""
        self._rows.clear()
        self._pages.evict(key)
        self._folders.pop(key, None)

    def evict_lru(self, keep: int) -> int:
        """Drop the least recently used pages until `keep` are left; return how many were dropped."""
        self._rows.clear()
        return self._pages.trim(keep)

    def cached_pages(self) -> Sequence[tuple[int, PageRecord | Gone]]:
        """Return the pages in memory, least recently used first."""
        return [*self._pages.pinned.items(), *self._pages.recent.items()]

    def apply(self, plan: "Plan", changes: "Changes", head: HeadRecord, head_value: bytes) -> None:
        """Apply a commit. Its messages are kept: the next view is likely to read them."""
        self.near = self.storage
        self.version = plan.seq
        self._log.append((plan.seq, (*plan.pages, *[page_key(number, 0) for number in plan.segments])))
        self.head = head
        self.head_value = head_value
        self._counters = list(head.counters)
        if not self.mark:
            self.mark = mark_of(head)
        if len(self._numbers) < len(head.counters):
            self._numbers = {counter.segment: number for number, counter in enumerate(head.counters)}
        if plan.segments:
            self._segments.update(plan.segments)
            self._live = None
            self._conversation = -1
        if plan.notes and self._notes is not None:
            self._notes.update((key, note) for key, note in plan.notes.items() if key < CHECKPOINTS)
        if changes.deferred:
            self._take_deferred(plan.seq, changes.deferred)
        if changes.layouts:
            kept = {**self.layouts(), **changes.layouts}
            self._layouts = {number: layout for number, layout in kept.items() if layout is not None}
        self._new_messages = changes.messages
        for number in plan.destroyed_messages:
            self._bodies.drop(~number)
        self._take_pages(plan.seq, plan.pages, changes.folders)
        if changes.pins or changes.moved:
            self._above_pins = None
            self._waiting = _UNKNOWN if changes.moved else self._waiting
            if self._pins is not None:
                pinned = {key for key, is_pinned in changes.pins.items() if is_pinned}
                self._pins = (self._pins - changes.pins.keys()) | pinned

    def _take_pages(self, version: int, pages: Mapping[int, PageRecord | Gone], folders: Mapping[int, Folder]) -> None:
        for key, folder in folders.items():
            self._keep_folder(key, folder)
            page = pages.get(key)
            if key in self.child_counts or (isinstance(page, PageRecord) and page.header.born == version):
                self.child_counts[key] = folder.tally.children
        self._rows.follow(version, pages, folders)
        conversation = self.conversation()
        for key, page in pages.items():
            self._pages.keep(key, page)
            if segment_number(key) == conversation:
                self._follow_waiting(version, page)

    def _take_deferred(self, version: int, deferred: Mapping[int, DeferredChange | None]) -> None:
        known = dict(self.deferred_changes())
        for key, change in sorted(deferred.items()):
            known.pop(key, None)
            if change is None:
                self.settled_version = version
            else:
                known[key] = change
        self._deferred = known

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

    def is_at(self, head: Head | None) -> bool:
        """Return True if this is the state of that head."""
        return (head.version, head.value) == (self.version, self.head_value) if head else self.version == 0

    def tally(self, key: int) -> Tally:
        """Return the stored number of children of a folder, and the sum of their orders."""
        if key == self.head.tally_of:
            return Tally.unpack(self.head.tally)
        record = self.near.get(self.context, TALLY, key)
        return Tally.unpack(self.decode(decode_tally, key, record.value)) if record else Tally()

    def _keep_folder(self, key: int, folder: Folder) -> None:
        self._folders[key] = folder
        self._folders.move_to_end(key)
        while len(self._folders) > self.max_pages:
            self._folders.popitem(last=False)

    def _decode_page(self, record: Record) -> PageRecord | Gone:
        try:
            return decode_page(record, self.mark)
        except Corrupt as error:
            is_known = segment_number(record.key) < len(self._counters)
            text = f"page {self.index(record.key)} {error.fact}" if is_known else str(error)
            raise self._decode_error(error, text) from error

    def decode(self, decode: Decode[T], key: int, value: bytes) -> T:
        """Return the value of a record. Raises `Corrupt` with the name of the context."""
        try:
            return decode(key, value, self.mark)
        except Corrupt as error:
            raise self._decode_error(error, str(error)) from error

    def _decode_error(self, error: Corrupt, text: str) -> QuireError:
        """Return the error for a record that cannot be decoded.

        A record of another context is not damage if this context was deleted and created again.
        """
        return self.damage_error(text) if isinstance(error, ForeignRecord) else self._corrupt(text)

    def _corrupt(self, text: str) -> Corrupt:
        return Corrupt(f"Context {short_repr(self.context)}: {text}")
