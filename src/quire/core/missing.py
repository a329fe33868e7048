"""Missing records: compare records with the counts in the head, name a missing record, and detect an outdated state.

The head has the number of pages, pins, notes, layouts and deferred changes; a tally is the number of children of a
folder; messages and journal entries are numbered without gaps. A reader compares what it read with these numbers. Only
if they differ, it calls these functions. A context that another writer changed meanwhile is never called damaged.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from quire.core.records import (
    CHECKPOINTS,
    GAPS,
    NOTE_CODE,
    PAGE_CODE,
    PURGED,
    ContextMark,
    Gone,
    HeadRecord,
    NoteRecord,
    PageRecord,
    Tally,
    decode_entry,
    decode_head,
    decode_page,
    page_key,
    page_number,
    segment_number,
)
from quire.core.records import Counter as SegmentCounter
from quire.errors import Conflict, Corrupt, Hint, NoSuchContext, QuireError, short_repr
from quire.model.pages import MAX_NUMBER
from quire.storage.base import JOURNAL, PAGE, Family, Head, Storage, StorageReader, SupportsCount
from quire.storage.overlay import OverlayStorage


class CountedState(Protocol):
    """A state, as far as it is needed to find missing records."""

    storage: Storage
    near: StorageReader
    context: str
    mark: ContextMark
    version: int
    head: HeadRecord
    child_counts: dict[int, int]
    whole_segments: set[int]

    @property
    def counters(self) -> Sequence[SegmentCounter]: ...
    def index(self, key: int) -> str: ...
    def page(self, key: int) -> PageRecord | Gone | None: ...
    def note(self, key: int) -> NoteRecord | None: ...
    def tally(self, key: int) -> Tally: ...
    def members(self, folder: int) -> Iterator[PageRecord]: ...
    def is_at(self, head: Head | None) -> bool: ...
    def outdated_error(self) -> QuireError | None: ...
    def damage_error(self, text: str) -> QuireError: ...


def deleted_context(context: str) -> NoSuchContext:
    """Return the error for a context that was deleted."""
    return NoSuchContext(f"Context {short_repr(context)} was deleted.", Hint("open", purpose="to create it again"))


def deletion_error(state: CountedState) -> NoSuchContext | None:
    """Return the error for a context that existed and was deleted; None if it exists."""
    below = state.storage
    while isinstance(below, OverlayStorage):
        below = below.below
    if not state.version or below.head(state.context) is not None:
        return None
    return deleted_context(state.context)


def outdated_error(state: CountedState) -> Conflict | NoSuchContext | None:
    """Return the error for a state that is not the newest, or was deleted; None if it is the newest."""
    is_outdated = isinstance(state.storage, OverlayStorage) and state.storage.is_outdated()
    if not is_outdated and state.is_at(state.storage.head(state.context)):
        return None
    return deletion_error(state) or Conflict(
        f"Context {state.context!r} was changed by another writer.", Hint("refresh", purpose="and retry")
    )


_REPAIR = Hint("doctor", arguments="repair=True", purpose="to make it again")


def check_folder(state: CountedState, key: int) -> None:
    """Raise `Corrupt` if a child of a folder is missing or not in its place.

    A storage without `SupportsCount` is not checked: it cannot lose single records.
    """
    storage = state.near
    if isinstance(storage, SupportsCount):
        count, orders = storage.sum_members(state.context, PAGE, key)
        tally = state.tally(key)
        if tally.orders != orders and count == tally.children and not state.outdated_error():
            for _ in state.members(key):  # raises an error that names the page, if one is damaged
                pass
            raise _corrupt(state, f"tally record {key} is wrong: the order of pages in {state.index(key)!r}.", _REPAIR)
        check_children(state, key, count, tally.children)


def check_children(state: CountedState, folder: int, count: int, counted: int | None = None) -> None:
    """Raise `Corrupt` if the found `count` of children (-1: one or more) is not the stored one. Cache a right count."""
    if counted is None:
        counted = state.child_counts.get(folder)
    if counted is None:
        counted = state.tally(folder).children
    if count == counted:
        state.child_counts[folder] = count
        return
    if state.outdated_error():
        return
    name = state.index(folder)
    if not counted:
        raise _corrupt(state, f"tally record {folder} is missing: the number of children of {name!r}.", _REPAIR)
    if count > counted:
        raise _corrupt(state, f"page {name!r} has {count} children, and {counted} are counted.", _REPAIR)
    lost = ", ".join(_lost_pages(state, segment_number(folder))) or f"of {name!r}: {counted - max(count, 0)}"
    raise _corrupt(state, f"pages are missing: {lost}. {name!r} has {max(count, 0)} of {counted} children.")


def check_pages(storage: Storage, context: str) -> None:
    """Raise `Corrupt` if a page record of a context is missing. Call it before all pages are read without a state."""
    head = storage.head(context)
    record = decode_head(head.value) if head is not None else None
    if record is None:
        return
    found = Counter(segment_number(page.key) for page in storage.scan(context, PAGE))
    for number, counted in enumerate(record.counts.pages):
        if found[number] < counted and storage.head(context) == head:
            name = record.counters[number].segment
            text = f"pages are missing: segment {name!r} has {found[number]} of {counted} page records."
            raise Corrupt(f"Context {short_repr(context)}: {text}")


def check_root(state: CountedState, folder: int) -> None:
    """Raise `Corrupt` if the root of a stored segment is missing or damaged."""
    number = segment_number(folder)
    if number < len(state.head.counters) and state.page(folder) is None:
        raise state.damage_error(f"page {state.index(folder)} is missing.")


def check_segment(state: CountedState, number: int, key: int | None = None) -> None:
    """Raise `Corrupt` if a page record of a segment is missing. `key` is a page that was not found, for the error."""
    counts = state.head.counts
    if number in state.whole_segments or number >= len(counts.pages):
        return
    span = page_key(number, 0), page_key(number, MAX_NUMBER)
    found = sum(1 for _ in state.near.scan(state.context, PAGE, *span))
    if found >= counts.pages[number]:
        state.whole_segments.add(number)
        return
    if state.outdated_error():
        return
    segment = state.counters[number].segment
    lost = [] if key is None else [state.index(key)]
    named = ", ".join(lost or _lost_pages(state, number)) or f"of {segment!r}"
    raise _corrupt(
        state, f"page {named} is missing: segment {segment!r} has {found} of {counts.pages[number]} page records."
    )


def check_gap(state: CountedState, expected: int, found: int) -> None:
    """Check the segments in which page numbers from the key `expected` to below `found` have no record."""
    start = page_number(expected)
    for number in range(segment_number(expected), min(segment_number(found) + 1, len(state.head.counters))):
        if start < state.head.counters[number].next and page_key(number, start) < found:
            check_segment(state, number)
        start = 0


def require_pinned(state: CountedState, key: int) -> PageRecord:
    """Return a page in the list of pins. Raises `Corrupt` (or `Conflict`) if it is not pinned."""
    page = state.page(key)
    if isinstance(page, PageRecord) and page.header.pinned:
        return page
    raise state.damage_error(f"pin record {key} names a page that is not pinned.")


def _lost_pages(state: CountedState, number: int) -> list[str]:
    """Return the indices of the first five pages of a segment that the journal names and that have no record."""
    lost: list[str] = []
    seen: set[int] = set()
    for record in state.storage.scan(state.context, JOURNAL):
        try:
            entry = decode_entry(record.key, record.value)
        except Corrupt:
            continue
        for touched in entry.touched:
            if touched.family != PAGE_CODE or touched.key in seen or segment_number(touched.key) != number:
                continue
            seen.add(touched.key)
            if state.storage.get(state.context, PAGE, touched.key) is None:
                lost.append(state.index(touched.key))
    return lost[:5]


def check_pins(state: CountedState, found: set[int]) -> set[int]:
    """Return the list of pins. Raise `Corrupt` if a pinned page is not in it."""
    for record in state.storage.scan(state.context, PAGE):
        page = decode_page(record, state.mark)
        is_pinned = isinstance(page, PageRecord) and page.header.pinned
        if is_pinned and record.key not in found and not state.outdated_error():
            raise _corrupt(state, f"pin record {record.key} ({state.index(record.key)}) is missing.", _REPAIR)
    return found


def check_number(state: CountedState, family: Family, found: int, counted: int) -> None:
    """Raise `Corrupt`: a family has fewer records than the head counts. Do nothing if the state is outdated."""
    if not state.outdated_error():
        hints = (_REPAIR,) if family == "layout" else ()
        raise _corrupt(state, f"{family} record is missing: there are {found} of {counted}.", *hints)


def check_checkpoints(state: CountedState, found: Collection[int]) -> None:
    """Raise `Corrupt` if a checkpoint is missing; `found` has the keys of the notes."""
    counts = state.head.counts
    if len(found) >= counts.checkpoints or state.outdated_error():
        return
    for record in state.storage.scan(state.context, JOURNAL):
        for touched in decode_entry(record.key, record.value, state.mark).touched:
            if touched.family == NOTE_CODE and touched.key >= CHECKPOINTS and touched.key not in found:
                raise _corrupt(state, f"note record {touched.key} (a checkpoint at entry {record.key}) is missing.")
    raise _corrupt(state, f"note record is missing: there are {len(found)} of {counts.checkpoints} checkpoints.")


def check_destroyed(state: CountedState, start: int, stop: int) -> None:
    """Raise `Corrupt` if a message in a range without records was not deleted by a cleanup or a purge."""
    gone = [gap for key in (GAPS, PURGED) if (note := state.note(key)) for gap in note.gaps]
    for number in range(start, stop):
        if not any(first <= number <= last for first, last in gone):
            raise state.damage_error(f"message record {number} is missing.")


def _corrupt(state: CountedState, text: str, *hints: Hint) -> Corrupt:
    return Corrupt(f"Context {short_repr(state.context)}: {text}", *hints)
