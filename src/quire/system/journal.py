"""Journal: read, filter and export the entries."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypedDict

from msgspec import Struct
from msgspec.structs import asdict

from quire.core.codec import decode_touched
from quire.core.entries import read_entries, read_entry
from quire.core.reader import Reader
from quire.core.records import (
    NOTE_CODE,
    PAGE_CODE,
    SEGMENT_CODE,
    EntryRecord,
    Gone,
    PageRecord,
    SegmentRecord,
    Touched,
)
from quire.core.state import State
from quire.errors import Hint, InvalidValue, short_repr
from quire.model.clock import check_moment, to_datetime
from quire.model.pages import PageIndex
from quire.model.text import decode_meta
from quire.system.rules import check_bool, check_whole_number


class Change(Struct, frozen=True, kw_only=True):
    """One page or segment that an entry changed, and its previous fields: None if it did not exist."""

    index: PageIndex = ""
    segment: str = ""
    before: dict[str, object] | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One journal entry: its time, actor and operation, and the pages and segments that it changed.

    `undoes` is the entry that an undo undid, or the first entry of the temporary block that ended here.
    """

    seq: int
    time: datetime
    actor: str
    operation: str
    pages: tuple[PageIndex, ...] = ()
    segments: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    undoes: int | None = None

    def __repr__(self) -> str:
        changed = [*self.segments, *self.pages]
        more = f" and {len(changed) - 4:,} more" if len(changed) > 4 else ""
        pages = f": {', '.join(changed[:4])}{more}" if changed else ""
        return f"<Entry {self.seq}, {self.operation} by {self.actor!r}{pages}>"


class HistoryFilters(TypedDict, total=False):
    """The parameters of `history`, by name."""

    after: int
    actor: str | None
    operation: str | None
    page: PageIndex | None
    since: datetime | None
    until: datetime | None
    before: int | None
    reverse: bool


def history(
    state: State, after: int = 0, before: int | None = None, *, reverse: bool = False, **filters: Any
) -> Iterator[Entry]:
    """Yield the entries as `ContextHandle.history` documents it."""
    passes = _filter(state, **filters)
    first = check_whole_number(after, "after") + 1
    last = state.version if before is None else min(check_whole_number(before, "before") - 1, state.version)
    return (
        to_entry(state, seq, entry)
        for seq, entry in read_entries(state, first, last, reverse=check_bool(reverse, "reverse"))
        if passes(entry)
    )


def to_entry(reader: Reader, seq: int, entry: EntryRecord) -> Entry:
    """Return a stored entry as a value."""
    changes = tuple(_change(reader, touched) for touched in entry.touched if touched.family != NOTE_CODE)
    return Entry(
        seq=seq,
        time=to_datetime(entry.time),
        actor=entry.actor,
        operation=entry.operation,
        pages=tuple(change.index for change in changes if change.index),
        segments=tuple(reader.counters[t.key].segment for t in entry.touched if t.family == SEGMENT_CODE),
        changes=changes,
        undoes=entry.undoes or None,
    )


def stored_entry(state: State, seq: object) -> EntryRecord:
    """Return the entry with this seq. Raises `InvalidValue`."""
    is_seq = isinstance(seq, int) and not isinstance(seq, bool) and 0 < seq <= state.version
    found = read_entry(state, seq) if is_seq and isinstance(seq, int) else None
    if found is None:
        raise InvalidValue(
            f"No journal entry {short_repr(seq)}; the last one is {state.version}.",
            Hint("history", purpose="to list them"),
        )
    return found


def page_before(touched: Touched) -> PageRecord | Gone | None:
    """Return a page as it was before the entry; None if it did not exist."""
    found = decode_touched(touched)
    return found if isinstance(found, PageRecord | Gone) else None


def _filter(
    state: State, actor: Any = None, operation: Any = None, page: Any = None, since: Any = None, until: Any = None
) -> Callable[[EntryRecord], bool]:
    """Return a function that tells whether an entry passes every filter. Raises `InvalidValue`."""
    for field, value in (("actor", actor), ("operation", operation)):
        if value is not None and not isinstance(value, str):
            raise InvalidValue(f"is {short_repr(value)}; text is needed.", argument=field)
    key = None if page is None else state.key_of(page)
    if page is not None and (key is None or state.page(key) is None):
        raise InvalidValue(f"is {short_repr(page)}; an index that is or was in use is needed.", argument="page")
    first, last = check_moment(since, "since"), check_moment(until, "until")

    def passes(entry: EntryRecord) -> bool:
        return (
            actor in (None, entry.actor)
            and operation in (None, entry.operation)
            and (key is None or any(touched.family == PAGE_CODE and touched.key == key for touched in entry.touched))
            and (first is None or entry.time >= first)
            and (last is None or entry.time <= last)
        )

    return passes


def _change(reader: Reader, touched: Touched) -> Change:
    if touched.family == PAGE_CODE:
        before = page_before(touched)
        fields = _fields(reader, before) if isinstance(before, PageRecord) else None
        return Change(index=reader.index(touched.key), before=fields)
    old = decode_touched(touched)
    named = asdict(old) if isinstance(old, SegmentRecord) and not old.gone else None
    return Change(segment=reader.counters[touched.key].segment, before=named)


def _fields(reader: Reader, record: PageRecord) -> dict[str, object]:
    parent = None if record.parent is None else reader.index(record.parent)
    return {**asdict(record.header), "meta": decode_meta(record.header.meta), "parent": parent}
