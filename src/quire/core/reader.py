"""Reader: queries on pages, segments and messages that work for every source of these records.

`State` reads what is stored. `Plan` reads what its changes would give. Both are readers, so each rule is written once.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Final

from quire.core.derived_records import LayoutRecord
from quire.core.records import (
    BATCHES,
    GAPS,
    Batch,
    Counter,
    Gone,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    page_key,
    page_number,
    segment_number,
)
from quire.errors import Hint, InvalidOperation, NoSuchPage, NoSuchSegment, QuireError
from quire.model.pages import Form, Lifecycle, Mark, PageIndex, SegmentType, Visibility, format_index, parse_index

_DEEPEST = 100_000
Slot = tuple[int, int]
"""A page's place among its siblings: (rank, key)."""


# Ranks order siblings. Appending leaves a gap after the last rank; inserting takes the middle of a gap, so that it
# never changes a neighbour. `rank_between` returns None without room; then crowded siblings get new ranks.
_FIRST_RANK: Final = 1 << 60
_LAST_RANK: Final = (1 << 62) - 1
_GAP: Final = 1 << 20
_LEAST_STEP: Final = 1 << 10
"""The least distance of new ranks for crowded siblings."""


def rank_after(last: int) -> int | None:
    """Return the rank after `last` (0: the first rank), or None if all numbers are used."""
    number = last + _GAP if last else _FIRST_RANK
    return number if number <= _LAST_RANK else None


def rank_between(low: int, high: int) -> int | None:
    """Return a rank between two neighbours (`low` 0: before all), or None if there is no room."""
    return (low + high) // 2 if high - low > 1 else None


def spread_ranks(low: int, high: int | None, count: int) -> list[int]:
    """Return `count` ranks, evenly spread between two neighbours; nothing if they are too near.

    `low` is 0 if there is no neighbour before, `high` is None if there is none after.
    """
    step = min(((_LAST_RANK if high is None else high) - low) // (count + 1), _GAP)
    return [low + step * place for place in range(1, count + 1)] if step >= _LEAST_STEP else []


def initial_ranks(count: int) -> Iterator[int]:
    """Yield the first ranks for `count` siblings, in order."""
    return (_FIRST_RANK + place * _GAP for place in range(count))


def slot_of(record: PageRecord) -> Slot:
    """Return the record's place among its siblings."""
    return record.rank, record.key


def numbers_used_up(segment_id: str) -> InvalidOperation:
    """Return the error for a segment without further page numbers."""
    return InvalidOperation(f"Segment {segment_id!r} has used all its page numbers; use another segment.")


Gap = tuple[int, int]
"""A run of deleted numbers: the first and the last."""


class Numbering:
    """The mapping between message numbers and message indices.

    The number of a message never changes. Its index is its position among the messages that no cleanup destroyed.
    """

    def __init__(self, gaps: Sequence[Gap] = (), end: int = 0) -> None:
        self.end = end
        self._firsts = [first for first, _ in gaps]
        self._lasts = [last for _, last in gaps]
        self._before: list[int] = []  # how many numbers are deleted before each gap
        gone = 0
        for first, last in gaps:
            self._before.append(gone)
            gone += last - first + 1
        self._gone = gone
        self.length = end - gone

    def ending_at(self, end: int) -> "Numbering":
        """Return the same gaps with another end."""
        if end == self.end:
            return self
        other = copy(self)
        other.end, other.length = end, end - self._gone
        return other

    def index(self, number: int) -> int | None:
        """Return the index of a message, or None if it was deleted."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return number
        first, last = self._firsts[place], self._lasts[place]
        return None if number <= last else number - self._before[place] - (last - first + 1)

    def number(self, index: int) -> int:
        """Return the number of the message with this index."""
        gaps = range(len(self._firsts))
        place = bisect_right(gaps, index, key=lambda gap: self._firsts[gap] - self._before[gap]) - 1
        return index if place < 0 else index + self._before[place] + self._lasts[place] - self._firsts[place] + 1

    def numbers(self) -> Iterator[int]:
        """Yield all numbers that are left, in order."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(start, first)
            start = last + 1
        yield from range(start, self.end)


def merge_gaps(gaps: Sequence[Gap], gone: Sequence[int]) -> tuple[Gap, ...]:
    """Return the gaps with further numbers deleted."""
    runs = sorted([*gaps, *((number, number) for number in gone)])
    merged: list[Gap] = []
    for first, last in runs:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


class Reader:
    """The pages, segments and messages of one context, read from another reader.

    A subclass overrides some of the methods. `State` overrides all that read records.
    """

    removal_hints: tuple[Hint, ...] = (Hint("undo", arguments="entry", purpose="with the entry that removed it"),)
    """The calls that bring a removed page back."""
    is_preview = False
    """True if some pages exist only for a preview and are never stored."""

    def __init__(self, reader: "Reader") -> None:
        self._reader = reader

    @property
    def counters(self) -> Sequence[Counter]:
        """The segment ids ever used, by segment number, with the next page number of each."""
        return self._reader.counters

    def number_of(self, segment_id: str) -> int | None:
        """Return the number of a segment id that was ever used, or None."""
        return self._reader.number_of(segment_id)

    def segment(self, number: int) -> SegmentRecord | None:
        """Return a segment, removed ones included, or None."""
        return self._reader.segment(number)

    def page(self, key: int) -> PageRecord | Gone | None:
        """Return a page, the `Gone` of a removed page, or None if the key was never used."""
        return self._reader.page(key)

    def current_page(self, key: int) -> PageRecord | Gone | None:
        """Return a page with its deferred change applied, even if this reader shows the page without it."""
        return self.page(key)

    def members(
        self, folder: int, *, after: Slot | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        """Yield the children of a folder in order, or with `cold` the pages that were archived cold from it."""
        return self._reader.members(folder, after=after, reverse=reverse, cold=cold)

    def pinned_below(self, key: int) -> bool:
        """Return True if any page below this one is pinned."""
        return self._reader.pinned_below(key)

    @property
    def next_message(self) -> int:
        """The number of the next message."""
        return self._reader.next_message

    def message(self, number: int) -> MessageRecord:
        """Return a message. Raises `Corrupt` if it is missing."""
        return self._reader.message(number)

    def prefetch(self, numbers: Sequence[int]) -> None:
        """Announce that these messages are read soon, so that they can be loaded together."""
        self._reader.prefetch(numbers)

    def body(self, key: int) -> str:
        """Return the text of a body; key 0 is the empty text. Raises `Corrupt` if it is missing."""
        return self._reader.body(key)

    def note(self, key: int) -> NoteRecord | None:
        """Return a note about the whole context, or None."""
        return self._reader.note(key)

    def layout(self, number: int) -> LayoutRecord | None:
        """Return how a segment is shown until the next fold; None if its pages are shown as they are."""
        return self._reader.layout(number)

    def is_hidden(self, page: PageRecord) -> bool:
        """Return whether a page outside the conversation was hidden."""
        return page.header.visibility is Visibility.HIDDEN

    def callers(self, key: int) -> tuple[int, ...]:
        """Return the keys of the exchanges that made a call with an id of this hash, oldest first."""
        return self._reader.callers(key)

    def damage_error(self, text: str) -> QuireError:
        """Return the error for inconsistent records: `Corrupt`, or `Conflict` if another writer committed since."""
        return self._reader.damage_error(text)

    def index(self, key: int) -> PageIndex:
        """Return the index of a page key."""
        return format_index(self.counters[segment_number(key)].segment, page_number(key))

    def live_segments(self) -> list[tuple[int, SegmentRecord]]:
        """Return the segments in display order, with their numbers."""
        found = ((number, self.segment(number)) for number in range(len(self.counters)))
        live = [(number, segment) for number, segment in found if segment and not segment.gone]
        return sorted(live, key=lambda item: item[1].position)

    def require_segment(self, segment_id: object) -> int:
        """Return the number of an existing segment. Raises `NoSuchSegment`."""
        number = self.number_of(segment_id) if isinstance(segment_id, str) else None
        segment = None if number is None else self.segment(number)
        if number is None or segment is None or segment.gone:
            known = [self.counters[n].segment for n, _ in self.live_segments()]
            raise NoSuchSegment(segment_id, known)
        return number

    def conversation(self) -> int | None:
        """Return the number of the conversation: the first USER segment."""
        return self.first_segment(SegmentType.USER)

    def first_segment(self, kind: SegmentType) -> int | None:
        """Return the number of the first segment of a type."""
        return next((n for n, segment in self.live_segments() if segment.type is kind), None)

    def in_system(self, record: PageRecord) -> bool:
        """Return True if a page is in a SYSTEM segment."""
        segment = self.segment(segment_number(record.key))
        return segment is not None and segment.type is SegmentType.SYSTEM

    def key_of(self, index: object) -> int | None:
        """Return the key of a canonical index, whether or not the page exists; None for any other spelling."""
        parts = parse_index(index)
        number = self.number_of(parts.segment) if parts else None
        return None if parts is None or number is None else page_key(number, parts.number)

    def require_page(self, index: object) -> PageRecord:
        """Return the page with this index. Raises `NoSuchPage`, with the new index of a page that moved."""
        key = self.key_of(index)
        found = None if key is None else self.page(key)
        if isinstance(found, PageRecord):
            return found
        if found is not None and found.moved_to >= 0:
            raise NoSuchPage(index, moved_to=self.index(self.current_key(found.moved_to)))
        if found is not None and found.purged:
            raise NoSuchPage(index, "It was purged; nothing of it is left.")
        if found is not None:
            raise NoSuchPage(index, "It was removed.", *self.removal_hints)
        first, span, _ = index.partition("…") if isinstance(index, str) else ("", "", "")
        if span and parse_index(first):
            hint = Hint("agent.read_page", str(index), purpose="to list them")
            raise NoSuchPage(index, f"These are several pages in one line: name one of them, such as {first!r}.", hint)
        raise NoSuchPage(index, suggestion=self._similar_index(index))

    def require_referenced(self, key: int, wanted_by: int) -> PageRecord:
        """Return a page that another one refers to. Raises `Corrupt` (or `Conflict`) if it does not exist."""
        found = self.page(key)
        if not isinstance(found, PageRecord):
            raise self.damage_error(
                f"Page {self.index(wanted_by)!r} refers to {self.index(key)!r}, which does not exist."
            )
        return found

    def ancestors(self, record: PageRecord) -> Iterator[PageRecord]:
        """Yield the folders above a page, nearest first. A cold page has none."""
        place, steps = record, 0
        while place.parent is not None and place.header.lifecycle is not Lifecycle.COLD_ARCHIVED:
            place = self.require_referenced(place.parent, place.key)
            yield place
            steps += 1
            if steps > _DEEPEST:
                raise self.damage_error(f"Page {self.index(record.key)!r} lies in its own subtree.")

    def effective_lifecycle(self, record: PageRecord) -> Lifecycle:
        """Return the page's lifecycle with that of its ancestors applied."""
        active = record.header.lifecycle is Lifecycle.ACTIVE
        top = record
        for top in self.ancestors(record):
            if top.header.lifecycle is not Lifecycle.ACTIVE or top.header.visibility is Visibility.HIDDEN:
                active = False
        if top.header.lifecycle is Lifecycle.COLD_ARCHIVED:
            return Lifecycle.COLD_ARCHIVED
        return Lifecycle.ACTIVE if active else Lifecycle.HOT_ARCHIVED

    def cold_top(self, record: PageRecord) -> PageRecord | None:
        """Return the page whose archiving made this one cold: itself or an ancestor; None if it is not cold."""
        if record.is_cold:
            return record
        return next((above for above in self.ancestors(record) if above.is_cold), None)

    def home_of(self, record: PageRecord) -> int:
        """Return the folder a cold page returns to: its old one if that is in the tree, else its segment's root."""
        home = None if record.parent is None else self.page(record.parent)
        if isinstance(home, PageRecord) and home.header.folder and self.cold_top(home) is None:
            return home.key
        return page_key(segment_number(record.key), 0)

    def subtree(self, record: PageRecord) -> Iterator[tuple[int, PageRecord]]:
        """Yield a page and the pages below it, parents first, each with its depth."""
        yield 0, record
        stack = [self.members(record.key)] if record.header.folder else []
        while stack:
            child = next(stack[-1], None)
            if child is None:
                stack.pop()
                continue
            yield len(stack), child
            if child.header.folder:
                stack.append(self.members(child.key))

    def pages_after(self, record: PageRecord) -> Iterator[PageRecord]:
        """Yield the pages of the segment that come after a page and its subtree, in order."""
        for place in (record, *self.ancestors(record)):
            if place.parent is not None:
                for sibling in self.members(place.parent, after=slot_of(place)):
                    yield from (page for _, page in self.subtree(sibling))

    # Messages

    def numbering(self) -> Numbering:
        """Return the mapping between message numbers and indices."""
        gaps = self.note(GAPS)
        return Numbering(gaps.gaps if gaps else (), self.next_message)

    def message_index(self, number: int) -> int:
        """Return the index of a message that was not destroyed."""
        if self.note(GAPS) is None:  # the usual case: no cleanup ever
            return number
        index = self.numbering().index(number)
        if index is None:
            raise self.damage_error(f"message {number} was destroyed by a cleanup.")
        return index

    def batches(self) -> tuple[Batch, ...]:
        """Return the open batches after batch 0, outermost first."""
        found = self.note(BATCHES)
        return found.batches if found else ()

    def page_of(self, number: int) -> PageRecord | None:
        """Return the page of a message, even if the page is marked; None if the page was removed."""
        found = self.page(self.current_key(self.message(number).page))
        return found if isinstance(found, PageRecord) else None

    def mark_of(self, number: int) -> Mark:
        """Return why a message is not in the conversation; `NONE` if it is in the conversation."""
        page = self.page_of(number)
        if page is None:
            return Mark.REMOVED
        if page.header.mark is not Mark.NONE:
            return page.header.mark
        return Mark.NONE if number in page.header.numbers else Mark.REPLACED

    def last_exchange(self) -> PageRecord | None:
        """Return the newest user or assistant exchange, by its place in the conversation."""
        turns = (page for page in self.newest_leaves() if page.header.form in (Form.USER, Form.ASSISTANT))
        return next(turns, None)

    def newest_leaves(self, folder: int | None = None) -> Iterator[PageRecord]:
        """Yield the leaves below a folder, by default of the conversation, from the last to the first."""
        if folder is None:
            conversation = self.conversation()
            if conversation is None:
                return
            folder = page_key(conversation, 0)
        stack = [self.members(folder, reverse=True)]
        while stack:
            page = next(stack[-1], None)
            if page is None:
                stack.pop()
            elif page.header.folder:
                stack.append(self.members(page.key, reverse=True))
            else:
                yield page

    def open_exchange(self) -> PageRecord | None:
        """Return the exchange that waits for results: the newest one, if it has open calls and was not closed."""
        last = self.last_exchange()
        return last if last is not None and last.header.pending and not last.header.closed else None

    def current_key(self, key: int) -> int:
        """Return the present key of a page that may have moved several times."""
        for _ in range(1_000):  # moving back and forth leaves a chain; an undone move leaves a pair
            found = self.page(key)
            if not isinstance(found, Gone) or found.moved_to < 0:
                break
            key = found.moved_to
        return key

    def _similar_index(self, index: object) -> str | None:
        """Return the canonical spelling of an index that has capitals, spaces, leading zeros or foreign digits."""
        if not isinstance(index, str) or len(index) >= 64:
            return None
        plain = index.strip().lower()
        head, dash, tail = plain.rpartition("-")
        if tail.isdecimal():
            plain = f"{head}{dash}{int(tail)}"
        return plain if plain != index and self.key_of(plain) is not None else None
