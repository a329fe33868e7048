"""Plan: the changes of one operation, readable as if they were already made.

Planning reads the state and writes nothing. The engine commits a plan. A plan that is never committed changes nothing,
so a failed operation leaves no trace.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from quire.core.codec import encode_message
from quire.core.derived_records import LayoutRecord
from quire.core.reader import (
    Numbering,
    Reader,
    Slot,
    numbers_used_up,
    rank_after,
    rank_between,
    slot_of,
    spread_ranks,
)
from quire.core.records import (
    GAPS,
    MAX_CALLERS,
    Counter,
    EntryRecord,
    Gone,
    Header,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    SentView,
    call_keys,
    message_id_key,
    page_key,
    page_line,
    segment_number,
)
from quire.core.state import State
from quire.errors import InvalidOperation
from quire.model.messages import Message, ToolCall
from quire.model.pages import MAX_NUMBER, MAX_SEGMENTS, PageIndex
from quire.storage.contract import TEXT, Family, Record

if TYPE_CHECKING:  # imported when it is used
    from quire.core.redaction import Redaction

T = TypeVar("T")


class Erasure(NamedTuple):
    """A record that a purge rewrites without parts of it, or deletes (None)."""

    family: Family
    key: int
    record: Record | None = None


_CROWD = 32
"""The number of siblings on each side of a place that get new ranks first."""


class Plan(Reader):
    """The changes of one operation over a state. `seq` is the seq of the journal entry that it would become."""

    created: int | None = None
    """The time at which the whole context was created, if a document gives one."""
    lays_out = False
    """True if this plan makes the layouts itself. Otherwise its commit deletes the layouts that its changes break."""
    omits_previous = False
    """True if the journal entry does not store the previous versions of pages."""
    is_deferred = False
    """True if the view shows the changed pages unchanged until the next fold."""
    applies_deferred = False
    """True if all deferred changes become visible."""
    redaction: "Redaction | None" = None
    _waiting: int | None = None
    _waiting_is_set = False
    _counters: list[Counter] | None = None
    _added = 0

    def __init__(self, state: State, *, actor: str, now: int, count: Callable[[str], int]) -> None:
        self._reader = self.state = state
        self.actor = actor
        self.now = now
        self.moment = now
        """The time for planned pages: now, or the own time of the message that is being added."""
        self.seq = state.version + 1
        self.bodies: dict[int, str] = {}
        self.messages: dict[int, MessageRecord] = {}
        self.destroyed_messages: set[int] = set()
        """Numbers of the messages that this plan deletes."""
        self.erasures: list[Erasure] = []
        """Further writes of a purge."""
        self.rewritten: dict[int, EntryRecord] = {}
        """Older entries that a purge rewrites."""
        self.layouts: dict[int, LayoutRecord | None] = {}
        """New layouts of segments; None deletes one."""
        self.calls: dict[int, tuple[int, ...]] = {}
        self.notes: dict[int, NoteRecord] = {}
        self.horizon = state.head.horizon
        self.opened_pages: set[int] = set()
        """Pages that the view shows after the newest message until the next fold."""
        self.new_keys: set[int] = set()
        """Keys taken from a counter, and roots of new segments. Nothing is stored under them: they are never read."""
        self.actors = state.head.actors
        """All actors that ever wrote here. A header's author is an index into it."""
        self.count = count
        """Returns the number of tokens of a text."""
        self.pages: dict[int, PageRecord | Gone] = {}
        self._groups: dict[tuple[int, bool], list[tuple[int, int, PageRecord]]] = {}  # by folder, in order
        self._turns: dict[int, int] = {}
        self.segments: dict[int, SegmentRecord] = {}
        self._last: dict[int, int] = {}
        self._gaps: dict[int, tuple[int, int]] = {}  # by folder: a range of ranks without stored children
        self._pins: dict[int, bool] = {}

    # Reading, as if the changes were made

    @property
    def counters(self) -> Sequence[Counter]:
        return self.state.counters if self._counters is None else self._counters

    def index(self, key: int) -> PageIndex:
        """Return the index of a page. A folder of a preview is named by the first and the last page below it."""
        if self.is_preview and key in self.new_keys:
            page = self.pages.get(key)
            if isinstance(page, PageRecord):
                first, last = (self._outermost(page, reverse=reverse) for reverse in (False, True))
                if first is not None and last is not None:
                    return f"{self.state.index(first)}…{self.state.index(last)}"
        return super().index(key)

    def _outermost(self, page: PageRecord, *, reverse: bool) -> int | None:
        """Return the first (or last) leaf below a folder without reading those between."""
        if not page.header.folder:
            return page.key
        found = (self._outermost(child, reverse=reverse) for child in self.members(page.key, reverse=reverse))
        return next((leaf for leaf in found if leaf is not None), None)

    def number_of(self, segment_id: str) -> int | None:
        known = self.state.number_of(segment_id)
        if known is None and self._counters is not None:
            fresh = range(len(self.state.counters), len(self._counters))
            return next((n for n in fresh if self._counters[n].segment == segment_id), None)
        return known

    def segment(self, number: int) -> SegmentRecord | None:
        return self.segments.get(number) or self.state.segment(number)

    def conversation(self) -> int | None:
        return super().conversation() if self.segments else self.state.conversation()

    def page(self, key: int) -> PageRecord | Gone | None:
        found = self.pages.get(key)
        return self.state.page(key) if found is None and key not in self.new_keys else found

    def stored_page(self, key: int) -> PageRecord | Gone | None:
        """Return the page as it was before this plan."""
        return None if key in self.new_keys else self.state.page(key)

    def _stored_last_rank(self, folder: int) -> int:
        return 0 if folder in self.new_keys else self.state.last_rank(folder)

    def members(
        self, folder: int, *, after: Slot | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        if folder in self.new_keys:
            theirs: Iterator[PageRecord] = iter(())
        else:
            theirs = self.state.members(folder, after=after, reverse=reverse, cold=cold)
        if not self.pages:
            yield from theirs
            return
        here = self._groups.get((folder, cold), [])
        if after is None:
            here = here[::-1] if reverse else here[:]
        else:
            rank, key = after
            here = (
                here[: bisect_left(here, (rank, key))][::-1] if reverse else here[bisect_left(here, (rank, key + 1)) :]
            )
        if here and reverse and after is None:
            newest, count = self._stored_last_rank(folder), 0
            for rank, _, page in here:  # planned pages after all stored pages: no stored page is read for them
                if rank <= newest:
                    break
                yield page
                count += 1
            here = here[count:]
        mine = (page for _, _, page in here)
        planned, turns = len(self._turns), self._turns  # pages planned later do not change this iteration
        others = (page for page in theirs if turns.get(page.key, planned) >= planned)
        yield from merge(mine, others, key=slot_of, reverse=reverse) if here else others

    def body(self, key: int) -> str:
        planned = self.bodies.get(key)
        return self.state.body(key) if planned is None else planned

    def segment_pages(self, number: int | None = None) -> Iterator[PageRecord]:
        """Yield all pages of a segment, or of the context, planned or stored."""
        planned = dict(self.pages)
        for page in planned.values():
            if isinstance(page, PageRecord) and number in (None, segment_number(page.key)):
                yield page
        for page in self.state.segment_pages(number):
            if page.key not in planned:
                yield page

    def pinned_below(self, key: int) -> bool:
        if not self._pins:
            return self.state.pinned_below(key)
        pins = (self.page(pin) for pin in self.state.pins() | set(self._pins))
        live = (page for page in pins if isinstance(page, PageRecord) and page.header.pinned)
        return any(above.key == key for page in live for above in self.ancestors(page))

    @property
    def next_message(self) -> int:
        return self.state.head.next_message + len(self.messages)

    def message(self, number: int) -> MessageRecord:
        return self.messages.get(number) or self.state.message(number)

    def layout(self, number: int) -> LayoutRecord | None:
        return self.layouts[number] if number in self.layouts else self.state.layout(number)

    def prefetch(self, numbers: Sequence[int]) -> None:
        self.state.prefetch([number for number in numbers if number not in self.messages])

    def note(self, key: int) -> NoteRecord | None:
        return self.notes.get(key) or self.state.note(key)

    def numbering(self) -> Numbering:
        if GAPS in self.notes:
            return super().numbering()
        return self.state.numbering().ending_at(self.next_message)

    def waiting_exchange(self) -> int | None:
        """Return the key of the exchange that waits for results. Only `wait_for` changes it within a plan."""
        return self._waiting if self._waiting_is_set else self.state.waiting_exchange()

    def wait_for(self, page: int | None) -> None:
        """Set the exchange that waits for results."""
        self._waiting = page
        self._waiting_is_set = True

    def callers(self, key: int) -> tuple[int, ...]:
        found = self.calls.get(key)
        return self.state.callers(key) if found is None else found

    # Redaction of new values

    def redact(self, text: T) -> T:
        """Return a text without what `redact` removes."""
        return text if self.redaction is None else self.redaction.text(text)

    def redact_value(self, value: T) -> T:
        """Return JSON values without what `redact` removes."""
        return value if self.redaction is None else self.redaction.value(value, free=True)

    def redact_message(self, message: Message) -> Message:
        """Return a message without what `redact` removes."""
        return message if self.redaction is None else self.redaction.message(message)

    # Writing, into the plan only

    def add_message(self, page: int, message: Message) -> int:
        """Add a message for the page with this key; return its number."""
        number = self.next_message
        self.messages[number] = MessageRecord(page, self.seq, message)
        return number

    def set_sent(self, number: int, sent: SentView | None) -> None:
        """Store the view that a new message answers. A view with a digest is not replaced."""
        record = self.messages[number]
        if record.sent is None or not record.sent.digest:
            self.messages[number] = replace(record, sent=sent)

    def erase_tails(self, pages: Collection[int], numbers: Container[int]) -> None:
        """Remove the stored view texts that show these pages from the messages with these numbers.

        Messages keep the texts at the end of the view that they answer.
        """
        for number, record in self.state.message_records(0, self.state.next_message):
            left = record.sent.without_pages(pages) if record.sent is not None and number in numbers else record.sent
            if left != record.sent:
                changed = encode_message(number, replace(record, sent=left))
                self.erasures.append(Erasure(TEXT, changed.key, changed))

    def set_id(self, number: int, message_id: str) -> None:
        """Give a new message an id by which it is known."""
        record = self.messages[number]
        self.messages[number] = replace(record, ids=(*record.ids, message_id))
        self._make_findable(message_id_key(message_id), record.page)

    def add_caller(self, call: ToolCall, page: int) -> None:
        """Make an exchange findable by one of its calls: by the id, and by the spellings for a provider."""
        for key in call_keys(call):
            self._make_findable(key, page)

    def _make_findable(self, key: int, page: int) -> None:
        """Make an exchange findable by the key of a call or of an id."""
        self.calls[key] = with_caller(self.callers(key), page)

    def put_note(self, key: int, **fields: Any) -> None:
        """Write a note about the whole context."""
        self.notes[key] = NoteRecord(self.seq, **fields)

    def change(self, record: PageRecord, **fields: Any) -> PageRecord:
        """Change header fields of a page. Equal values are no change."""
        header = record.header
        for field, value in fields.items():
            if getattr(header, field) != value:
                if header.line_tokens:
                    fields = self._with_line_tokens(record, fields)
                return self._change(record, record.parent, record.rank, fields)
        return record

    def place(self, record: PageRecord, parent: int, rank: int, **fields: Any) -> PageRecord:
        """Move a page to another place, optionally with other header fields."""
        if rank > self._last.get(parent, 0):
            self._last[parent] = rank
        return self._change(record, parent, rank, fields)

    def place_home(self, record: PageRecord, **fields: Any) -> None:
        """Move a page back to its old place, or to the end of the root if its folder is gone."""
        home = self.home_of(record)
        rank = self.free_rank(home, slot_of(record)) if home == record.parent else self.append_rank(home)
        self.place(record, home, rank, **fields)

    def create(self, key: int, parent: int | None, rank: int, header: Header) -> PageRecord:
        """Add a page with a key that was never used."""
        if parent is not None:
            self._last[parent] = max(rank, self._last.get(parent, 0))
        record = PageRecord(key, parent, rank, header)
        if header.pinned or key not in self.new_keys:
            return self._write(record)
        self._set(key, record)
        return record

    def remove(self, key: int, moved_to: int = -1, *, purged: bool = False) -> None:
        """Replace a page by a `Gone`."""
        old = self.page(key)
        if isinstance(old, PageRecord) and old.header.pinned:
            self._pins[key] = False
        self._set(key, Gone(self.seq, moved_to, purged))

    def restore(self, record: PageRecord) -> PageRecord:
        """Write a page as it was in an earlier state, with a new seq and time."""
        return self._write(PageRecord(record.key, record.parent, record.rank, self._stamp(record.header, {})))

    def put_segment(self, number: int, segment: SegmentRecord) -> None:
        """Write a segment."""
        self.segments[number] = replace(segment, seq=self.seq)

    def discard_page_changes(self) -> None:
        """Drop all planned changes of pages, and layouts."""
        self.erasures.clear()
        for planned in (self.pages, self.bodies, self.layouts, self._groups, self._turns, self._last, self._pins):
            planned.clear()
        self.applies_deferred = False

    def next_position(self) -> int:
        """Return a display position after every segment ever added."""
        self._added += 1
        return self.seq * MAX_SEGMENTS + self._added

    def add_counter(self, segment_id: str) -> int:
        """Take a number for a segment id that was never used."""
        counters = self._own_counters()
        if len(counters) >= MAX_SEGMENTS:
            raise InvalidOperation(f"A context has at most {MAX_SEGMENTS:,} segments in its life; use an existing one.")
        counters.append(Counter(segment_id, 1))
        self.new_keys.add(page_key(len(counters) - 1, 0))
        return len(counters) - 1

    def next_key(self, number: int) -> int:
        """Take the next page number of a segment; return the key of the new page."""
        segment_id, number_next = self.counters[number].segment, self.counters[number].next
        if number_next > MAX_NUMBER:
            raise numbers_used_up(segment_id)
        self._own_counters()[number] = Counter(segment_id, number_next + 1)
        key = page_key(number, number_next)
        self.new_keys.add(key)
        return key

    def use_number(self, number: int, page_number: int) -> None:
        """Register a page number that the caller chose, so that the counter stays above it."""
        counter = self.counters[number]
        if page_number >= counter.next:
            self._own_counters()[number] = Counter(counter.segment, page_number + 1)

    def add_body(self, text: str) -> int:
        """Add a body; return its key, or 0 for the empty text."""
        if not text:
            return 0
        key = self.state.head.next_body + len(self.bodies)
        self.bodies[key] = text
        return key

    def author(self, name: str | None = None) -> int:
        """Return the number of an actor, by default of the plan's own."""
        actor = self.actor if name is None else name
        if actor not in self.actors:
            self.actors = (*self.actors, actor)
        return self.actors.index(actor)

    def origin(self) -> dict[str, Any]:
        """Return the header fields that record who created a page, when, and by which entry."""
        return {"author": self.author(), "created": self.moment, "age": 0, "born": self.seq, "seq": self.seq}

    # The view

    def defer(self, *opened: int) -> None:
        """Show the changes of this plan only after the next fold. `opened` pages are shown after the newest message."""
        self.is_deferred = True
        self.opened_pages.update(opened)

    def apply_deferred(self) -> None:
        """Make all deferred changes visible."""
        self.applies_deferred = bool(self.state.deferred_changes())

    # Ranks

    def append_rank(self, folder: int) -> int:
        """Return the rank after all children that a folder has or had."""
        rank = rank_after(max(self._last.get(folder, 0), self._stored_last_rank(folder)))
        if rank is None:
            raise InvalidOperation(f"Folder {self.index(folder)!r} is full: use another folder.")
        return rank

    def rank_before(self, folder: int, sibling: int) -> int:
        """Return a rank directly before a child of the folder, and after the cold pages that would return before it."""
        for _ in range(2):
            high = self.require_referenced(sibling, folder)
            low = next(self._all_members(folder, after=slot_of(high), reverse=True), None)
            rank = rank_between(low.rank if low else 0, high.rank)
            if rank is not None:
                return rank
            self._spread(folder, high)
        raise InvalidOperation(f"There is no room before {self.index(sibling)!r}; move that page, then try again.")

    def free_rank(self, folder: int, wanted: Slot, leaving: Container[int] = ()) -> int:
        """Return the wanted rank if no child has it, else one that keeps the order of ranks and keys.

        `leaving` are children that this plan moves away; their ranks are free.
        """
        rank = wanted[0]
        low, high = self._gaps.get(folder, (rank, rank))
        if low <= rank < high:
            return rank
        is_free = True
        for page in self.state.members(folder, after=(rank, -1)):
            if page.rank != rank:
                self._gaps[folder] = (rank + 1, page.rank)
                break
            is_free = is_free and (page.key in self.pages or page.key in leaving)
        if is_free:
            return rank
        following = next(self.members(folder, after=wanted), None)
        return self.append_rank(folder) if following is None else self.rank_before(folder, following.key)

    def _all_members(self, folder: int, *, after: Slot, reverse: bool) -> Iterator[PageRecord]:
        """Yield the children of a folder in order, with cold ones at the places they would return to."""
        both = (self.members(folder, after=after, reverse=reverse, cold=cold) for cold in (False, True))
        return merge(*both, key=slot_of, reverse=reverse)

    def _spread(self, folder: int, around: PageRecord) -> None:
        """Give the siblings around a place new ranks in the same order: as few of them as have room."""
        few, fresh, crowd = _CROWD, list[int](), [around]
        while not fresh:
            before, after = (
                list(islice(self._all_members(folder, after=slot_of(around), reverse=reverse), few))
                for reverse in (True, False)
            )
            low = before.pop().rank if len(before) == few else 0
            high = after.pop().rank if len(after) == few else None
            crowd = [*reversed(before), around, *after]
            fresh = spread_ranks(low, high, len(crowd))
            few *= 8
        for page, rank in zip(crowd, fresh, strict=True):
            self.place(page, folder, rank)

    def _change(self, record: PageRecord, parent: int | None, rank: int, fields: Mapping[str, Any]) -> PageRecord:
        """Write a page with another place or other header fields."""
        changed = PageRecord(record.key, parent, rank, self._stamp(record.header, fields))
        if record.header.pinned or changed.header.pinned:
            return self._write(changed)
        self._set(record.key, changed)
        return changed

    def _write(self, record: PageRecord) -> PageRecord:
        """Write a page that may be pinned or unpinned now."""
        old = self.page(record.key)
        pinned = isinstance(old, PageRecord) and old.header.pinned
        if record.header.pinned is not pinned:
            self._pins[record.key] = record.header.pinned
        self._set(record.key, record)
        return record

    def _set(self, key: int, page: PageRecord | Gone) -> None:
        """Write a page into the plan and update the planned children of its folder."""
        old = self.pages.get(key)
        if isinstance(old, PageRecord) and old.parent is not None:
            group = self._groups[old.parent, old.is_cold]
            del group[bisect_left(group, slot_of(old))]
        self.pages[key] = page
        self._turns.setdefault(key, len(self._turns))
        if isinstance(page, PageRecord) and page.parent is not None:
            insort(self._groups.setdefault((page.parent, page.is_cold), []), (page.rank, key, page))

    def _with_line_tokens(self, record: PageRecord, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields. If they change the line of a folded page, add the new number of tokens of that line."""
        if "line_tokens" in fields or fields.keys().isdisjoint(("name", "description", "tokens")):
            return fields
        line = page_line(self.index(record.key), replace(record.header, **fields))
        return {**fields, "line_tokens": self.count(line)}

    def _stamp(self, header: Header, fields: Mapping[str, Any]) -> Header:
        return replace(header, **fields, seq=self.seq, age=max(0, self.moment - header.created))

    def _own_counters(self) -> list[Counter]:
        if self._counters is None:
            self._counters = list(self.state.counters)
        return self._counters


def with_caller(callers: tuple[int, ...], page: int) -> tuple[int, ...]:
    """Return `callers` with `page` as the newest one, at most `MAX_CALLERS`."""
    return (*(other for other in callers if other != page), page)[-MAX_CALLERS:] if callers else (page,)
