"""Whose work stands on a record: which later entries keep one from being undone, and in what order they give way."""

from collections.abc import Iterator

from msgspec.structs import replace

from quire.errors import InvalidOperation
from quire.pages import Lifecycle
from quire.plan import Plan
from quire.records import (
    CHECKPOINTS,
    NOTE_CODE,
    PAGE_CODE,
    SEGMENT_CODE,
    EntryRecord,
    Gone,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Touched,
    decode_note,
    decode_segment,
)
from quire.state import State
from quire.system.journal import page_before, stored_entry

_MOST_NAMED = 5
_MOST_FOLLOWED = 200
"""So many entries at most are followed to those that stand in their own way."""

_Any = PageRecord | Gone | SegmentRecord | NoteRecord | None


def check_untouched(plan: Plan, seq: int, entry: EntryRecord) -> None:
    """Refuse to undo an entry whose records were changed later. Raises `InvalidOperation`, with all to undo first."""
    for touched in entry.touched:
        record = _record(plan.state, touched)
        later = _standing(plan.state, record, seq, touched)
        if later != seq:
            named = later if later > seq else _seq_of(record)
            did = stored_entry(plan.state, named).operation
            first = _first(_chain(plan.state, seq, entry)) if later > seq else "Undo that first."
            name = _name(plan, touched)
            raise InvalidOperation(
                f"{name} was changed later by entry {named} ({did}). {first}{_instead(plan, touched)}"
            )


def _record(state: State, touched: Touched) -> _Any:
    """A touched record as it is now."""
    if touched.family == PAGE_CODE:
        return state.page(touched.key)
    return state.segment(touched.key) if touched.family == SEGMENT_CODE else state.note(touched.key)


def _name(plan: Plan, touched: Touched) -> str:
    if touched.family == PAGE_CODE:
        return repr(plan.index(touched.key))
    if touched.family == SEGMENT_CODE:
        return f"segment {plan.counters[touched.key].segment!r}"
    return "the checkpoint" if touched.key >= CHECKPOINTS else "the list of batches"


def _first(chain: list[int]) -> str:
    """What is to be undone first, in words; the newest comes first."""
    if len(chain) < 2:
        return "Undo that first."
    if len(chain) <= _MOST_NAMED:
        return f"Undo {', '.join(map(str, chain))} first, in this order."
    named = ", ".join(map(str, chain[:_MOST_NAMED]))
    return f"Undo {named}, … {chain[-1]} first, in this order, {len(chain)} entries in all."


def _instead(plan: Plan, touched: Touched) -> str:
    """What does much the same for a page of messages, and leaves the history alone."""
    page = plan.state.page(touched.key) if touched.family == PAGE_CODE else None
    if not isinstance(page, PageRecord) or not page.header.numbers:
        return ""
    numbering = plan.numbering()
    messages = [index for number in page.header.numbers if (index := numbering.index(number)) is not None]
    shown = plan.effective(page) is Lifecycle.ACTIVE
    hidden = f"hide({plan.index(touched.key)!r}) keeps it to a line, " if shown else ""
    return f" Or leave the history alone: {hidden}conversation.delete({messages}) takes its messages out."


def _chain(state: State, seq: int, entry: EntryRecord) -> list[int]:
    """All entries that must be undone before one can be, each after those that stand in its own way: newest first."""
    found: set[int] = set()
    waiting = [(seq, entry)]
    while waiting and len(found) < _MOST_FOLLOWED:
        at, record = waiting.pop()
        for touched in record.touched:
            for later in _standing_above(state, touched, at):
                if later not in found:
                    found.add(later)
                    waiting.append((later, stored_entry(state, later)))
    return sorted(found, reverse=True)


def _standing_above(state: State, touched: Touched, seq: int) -> Iterator[int]:
    """The entries after one whose work stands on a record, the newest first."""
    record = _record(state, touched)
    while (later := _standing(state, record, seq, touched)) > max(seq, state.head.horizon):
        yield later
        same = (t for t in stored_entry(state, later).touched if (t.family, t.key) == (touched.family, touched.key))
        found = next(same, None)
        if found is None:
            return
        record = _before(found)


def _standing(state: State, record: "_Any", wanted: int, touched: Touched) -> int:
    """The entry whose work on a record stands there, back to the wanted.

    An undo gives way to what it brought back, and a pin or a permission, which no undo touches, to what was before it.
    """
    while (now := _seq_of(record)) != wanted and now > state.head.horizon:
        entry = stored_entry(state, now)
        undone = stored_entry(state, entry.undoes) if entry.operation == "undo" else entry
        same = (t for t in undone.touched if (t.family, t.key) == (touched.family, touched.key))
        found = next(same, None)
        if found is None:
            break
        before = _before(found)
        if undone is entry and not _differ_in_security(before, record):
            break
        record = before
    return now


def _before(touched: Touched) -> _Any:
    """What a touched record was before the entry; None if there was nothing."""
    if touched.before is None:
        return None
    if touched.family == SEGMENT_CODE:
        return decode_segment(touched.key, touched.before)
    if touched.family == NOTE_CODE:
        return decode_note(touched.key, touched.before)
    return page_before(touched)


def _seq_of(record: _Any) -> int:
    """The entry that changed a record last; 0 if there is nothing."""
    if record is None:
        return 0
    return record.header.seq if isinstance(record, PageRecord) else record.seq


def _differ_in_security(one: _Any, other: _Any) -> bool:
    """Whether two states of a record have different pins or permissions at most."""
    if isinstance(one, PageRecord) and isinstance(other, PageRecord):
        header = replace(one.header, seq=other.header.seq, age=other.header.age, pinned=other.header.pinned)
        return (one.parent, one.rank, header) == (other.parent, other.rank, other.header)
    if isinstance(one, SegmentRecord) and isinstance(other, SegmentRecord):
        return replace(one, seq=other.seq, updated=other.updated, permission=other.permission) == other
    return False
