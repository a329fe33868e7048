"""The journal as a user reads it, and planning the undoing of one entry."""

from collections.abc import Container, Iterator
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from quire.clock import as_datetime
from quire.errors import InvalidOperation, InvalidValue, shown
from quire.pages import Lifecycle, PageIndex, Visibility
from quire.plan import Plan
from quire.reader import Reader, slot
from quire.records import (
    PAGE_CODE,
    EntryRecord,
    Gone,
    PageRecord,
    Touched,
    decode_entry,
    decode_page,
    decode_segment,
)
from quire.state import State
from quire.storage.base import JOURNAL, Record
from quire.system.rules import verify, verify_conversation, verify_pins, verify_segments
from quire.system.segments import check_conversation
from quire.text import decode_meta


class Change(Struct, frozen=True, kw_only=True):
    """One page or segment an entry touched, and what it was before: None if it did not exist or was gone."""

    index: PageIndex = ""
    segment: str = ""
    before: dict[str, object] | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One journal entry: who did what when, to which pages and segments. `undoes` names the entry an undo undid."""

    seq: int
    time: datetime
    actor: str
    operation: str
    pages: tuple[PageIndex, ...] = ()
    segments: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    undoes: int | None = None


def history(state: State, after: int = 0, *, reverse: bool = False) -> Iterator[Entry]:
    """The entries with a seq above `after`, oldest first. Streams."""
    for record in state.storage.scan(state.context, JOURNAL, after + 1, state.version, reverse=reverse):
        yield to_entry(state, record.key, decode_entry(record.key, record.value))


def to_entry(reader: Reader, seq: int, entry: EntryRecord) -> Entry:
    """A stored entry as a value."""
    changes = tuple(_change(reader, touched) for touched in entry.touched)
    return Entry(
        seq=seq,
        time=as_datetime(entry.time),
        actor=entry.actor,
        operation=entry.operation,
        pages=tuple(change.index for change in changes if change.index),
        segments=tuple(reader.counters[t.key].segment for t in entry.touched if t.family != PAGE_CODE),
        changes=changes,
        undoes=entry.undoes or None,
    )


def undo(plan: Plan, entry: "Entry | int") -> int:
    """Bring back what an entry changed, keeping all that came after. Returns the seq of the undone entry.

    Raises `InvalidOperation` naming the later entry if one changed the same record since.
    """
    seq = entry.seq if isinstance(entry, Entry) else entry
    record = _entry(plan.state, seq)
    try:
        _revert(plan, seq, record)
    except InvalidOperation as error:
        raise InvalidOperation(f"Cannot undo entry {seq} ({record.operation}): {error}") from None
    return seq


def _revert(plan: Plan, seq: int, record: EntryRecord) -> None:
    for touched in record.touched:
        _untouched_since(plan, seq, touched)
    forwarding = _forwarding(plan, record)
    keys = {touched.key for touched in record.touched if touched.family == PAGE_CODE}
    whole = _original(plan.state, record).operation == "unmarshal"  # a whole context may come and go
    for touched in record.touched:
        if touched.family == PAGE_CODE:
            _revert_page(plan, touched, forwarding, keys)
        else:
            _revert_segment(plan, touched)
    if not plan.pages and not plan.segments:
        raise InvalidOperation(
            "Pins and permissions are security settings that no undo brings back. Set them with pin, unpin or"
            " set_segment_permission."
        )
    if whole:
        _unpin_what_is_not_shown(plan)
    verify(plan)
    verify_segments(plan)
    if not whole:
        verify_conversation(plan)
        verify_pins(plan)
    check_conversation(plan)


def _change(reader: Reader, touched: Touched) -> Change:
    if touched.family == PAGE_CODE:
        before = _before(touched)
        fields = _fields(reader, before) if isinstance(before, PageRecord) else None
        return Change(index=reader.index(touched.key), before=fields)
    old = None if touched.before is None else decode_segment(touched.key, touched.before)
    named = {field: getattr(old, field) for field in old.__struct_fields__} if old and not old.gone else None
    return Change(segment=reader.counters[touched.key].segment, before=named)


def _fields(reader: Reader, record: PageRecord) -> dict[str, object]:
    header = record.header
    fields: dict[str, object] = {field: getattr(header, field) for field in header.__struct_fields__}
    fields["meta"] = decode_meta(header.meta)
    fields["parent"] = None if record.parent is None else reader.index(record.parent)
    return fields


def _entry(state: State, seq: object) -> EntryRecord:
    whole = isinstance(seq, int) and not isinstance(seq, bool) and 0 < seq <= state.version
    found = state.storage.get(state.context, JOURNAL, seq) if whole and isinstance(seq, int) else None
    if found is None:
        raise InvalidValue(f"No journal entry {shown(seq)}; history() lists them, up to {state.version}.")
    return decode_entry(found.key, found.value)


def _untouched_since(plan: Plan, seq: int, touched: Touched) -> None:
    if touched.family == PAGE_CODE:
        page = plan.state.page(touched.key)
        now = page.header.seq if isinstance(page, PageRecord) else page.seq if page else 0
        name = repr(plan.index(touched.key))
    else:
        segment = plan.state.segment(touched.key)
        now = segment.seq if segment else 0
        name = f"segment {plan.counters[touched.key].segment!r}"
    if now != seq:
        later = _entry(plan.state, now).operation
        raise InvalidOperation(f"{name} was changed later by entry {now} ({later}). Undo that first.")


def _original(state: State, record: EntryRecord) -> EntryRecord:
    """The operation that an undo, or a chain of undos and redos, is about."""
    while record.undoes:
        record = _entry(state, record.undoes)
    return record


def _before(touched: Touched) -> PageRecord | Gone | None:
    if touched.before is None:
        return None
    return decode_page(Record(touched.key, touched.before, touched.group, touched.order))


def _forwarding(plan: Plan, record: EntryRecord) -> dict[int, int]:
    """For a move between segments undone: from each new key back to the old one."""
    pages = {touched.key: plan.page(touched.key) for touched in record.touched if touched.family == PAGE_CODE}
    return {page.moved_to: key for key, page in pages.items() if isinstance(page, Gone) and page.moved_to >= 0}


def _revert_page(plan: Plan, touched: Touched, forwarding: dict[int, int], leaving: Container[int]) -> None:
    now = plan.page(touched.key)
    before = _before(touched)
    if not isinstance(before, PageRecord):
        if isinstance(now, PageRecord):
            back = before.moved_to if before else -1
            plan.remove(touched.key, forwarding.get(touched.key, back))
        return
    if isinstance(now, PageRecord):
        before = replace(before, header=replace(before.header, pinned=now.header.pinned))
        same = replace(before.header, seq=now.header.seq, age=now.header.age)
        if (before.parent, before.rank, same) == (now.parent, now.rank, now.header):
            return
    moved = not isinstance(now, PageRecord) or (now.group, now.rank) != (before.group, before.rank)
    if moved and before.parent is not None and not before.is_cold:
        before = replace(before, rank=plan.free_rank(before.parent, slot(before), leaving))
    plan.restore(before)


def _unpin_what_is_not_shown(plan: Plan) -> None:
    """A page that a document pinned and that was hidden before it goes back to being hidden."""
    for page in list(plan.pages.values()):
        if isinstance(page, PageRecord) and page.header.pinned:
            whole = page.header.visibility is Visibility.EXPANDED and plan.effective(page) is Lifecycle.ACTIVE
            if not whole:
                plan.change(page, pinned=False)


def _revert_segment(plan: Plan, touched: Touched) -> None:
    now = plan.segment(touched.key)
    if now is None:
        return
    before = None if touched.before is None else decode_segment(touched.key, touched.before)
    if before is None:
        before = replace(now, gone=True)
    elif not now.gone:
        before = replace(before, permission=now.permission)
    if replace(before, seq=now.seq, updated=now.updated) != now:
        plan.put_segment(touched.key, before)
