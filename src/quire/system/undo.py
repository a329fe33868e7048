"""Whose work stands on a record: which later entries keep one from being undone, and in what order they give way.

Planning the way back: undoing one entry, and rolling the whole context back to an earlier one.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import slot_of
from quire.core.records import (
    CHECKPOINTS,
    GAPS,
    NOTE_CODE,
    PAGE_CODE,
    SEGMENT_CODE,
    UNDONE_FOLD,
    EntryRecord,
    Gone,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Touched,
    decode_entry,
    decode_note,
    decode_segment,
    page_key,
)
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.pages import Lifecycle, Visibility
from quire.model.text import MAX_NAME, check_one_line
from quire.storage.base import JOURNAL, NOTE
from quire.storage.overlay import OverlayStorage
from quire.system.journal import Entry, page_before, stored_entry
from quire.system.rules import check_conversation_kept, check_pins, check_plan, check_segments
from quire.system.segments import check_conversation

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
    shown = plan.effective_lifecycle(page) is Lifecycle.ACTIVE
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


def undo(plan: Plan, entry: "Entry | int") -> int:
    """Bring back what an entry changed, keeping all that came after. Returns the seq of the undone entry.

    Raises `InvalidOperation` naming the later entry if one changed the same record since.
    """
    seq = entry.seq if isinstance(entry, Entry) else entry
    record = stored_entry(plan.state, seq)
    try:
        if seq <= plan.horizon:
            raise InvalidOperation(
                f"entry {plan.horizon} (a cleanup, a purge, or the making of a fork) ended undo up to there."
            )
        if record.operation == "temporary":
            raise InvalidOperation("what a temporary block took back stays away; messages(all=True) still has it.")
        _revert(plan, seq, record)
    except InvalidOperation as error:
        raise InvalidOperation(f"Cannot undo entry {seq} ({record.operation}): {error}") from None
    return seq


def checkpoint(plan: Plan, name: str) -> int:
    """Give the state of the context a name to roll back to; the seq of the entry that does."""
    label = check_one_line(name, "name", MAX_NAME, empty=False)
    if isinstance(plan.state.storage, OverlayStorage):
        raise InvalidOperation(f"Cannot set checkpoint {label!r} in a temporary block, whose work does not stay.")
    seq = checkpoints(plan.state).get(label)
    if seq is not None:
        raise InvalidOperation(f"Checkpoint {label!r} exists already, at entry {seq}; choose another name.")
    plan.put_note(CHECKPOINTS | plan.seq, name=label)
    return plan.seq


def checkpoints(state: State) -> dict[str, int]:
    """The names of all checkpoints with their seqs, oldest first."""
    scanned = state.storage.scan(state.context, NOTE, CHECKPOINTS)
    found = ((record.key - CHECKPOINTS, decode_note(record.key, record.value)) for record in scanned)
    return {note.name: seq for seq, note in found if note.name}


def moment(state: State, to: "str | int | Entry") -> int:
    """The seq that a checkpoint's name, a seq or an entry stands for. Raises `InvalidValue`."""
    if isinstance(to, str):
        known = checkpoints(state)
        if to not in known:
            names = ", ".join(map(repr, list(known)[-12:])) or "none yet: checkpoint(name) makes one"
            raise InvalidValue(f"No checkpoint {short_repr(to)}; checkpoints: {names}.")
        return known[to]
    seq = to.seq if isinstance(to, Entry) else to
    first = max(state.head.horizon, 1)
    if isinstance(seq, bool) or not isinstance(seq, int) or not first <= seq <= state.version:
        raise InvalidValue(
            f"Cannot go back to {short_repr(to)}; give a checkpoint's name or a seq, {first} to {state.version}."
        )
    return seq


def rollback(plan: Plan, to: "str | int | Entry") -> int:
    """Bring the whole context back to an earlier entry; its seq.

    Permissions and pins stay as they are, and what is pinned now stays where it is, with the folders above it.
    """
    seq = moment(plan.state, to)
    if seq < plan.horizon:
        raise InvalidOperation(
            f"Cannot go back to {short_repr(to)}: nothing before entry {plan.horizon} can be brought back."
        )
    touched, unpinned = _since(plan.state, seq)
    before = {t.key: page_before(t) for t in touched if t.family == PAGE_CODE}
    kept = _kept(plan)
    homes = _homes(plan, before)
    leaving = before.keys() - kept.keys()
    taken = {(page.parent, page.rank) for page in kept.values() if page.parent is not None}
    touched.sort(key=lambda item: (item.group, item.order) in taken)  # these have to find room among the others
    for item in touched:
        if item.family == PAGE_CODE:
            if item.key in kept:
                old = before[item.key]
                _revert_content(plan, kept[item.key], old or before.get(homes.get(item.key, -1)))
            elif plan.state.current_key(item.key) not in kept:
                _revert_page(plan, item, homes, leaving, unpinned=item.key in unpinned)
        elif item.family == SEGMENT_CODE:
            if page_key(item.key, 0) not in kept or _was_live(item):
                _revert_segment(plan, item)
        elif item.key < CHECKPOINTS:
            _revert_note(plan, item)
    plan.apply_deferred()
    check_plan(plan)
    check_segments(plan)
    check_conversation_kept(plan)
    check_conversation(plan)
    return seq


def messages_at(plan: Plan, seq: int) -> int:
    """How many messages a context that goes back to an entry needs: those that had arrived by then, and whatever
    stands on pages that stay because they are pinned."""
    state = plan.state
    left: Sequence[int] = range(state.next_message)
    if state.note(GAPS):
        left = list(state.numbering().numbers())
    arrived = bisect_right(left, seq, key=lambda number: state.message(number).seq)
    pinned = (plan.page(key) for key in state.pins())
    shown = (page.header.numbers for page in pinned if isinstance(page, PageRecord))
    needed = max((max(numbers) + 1 for numbers in shown if numbers), default=0)
    return max(needed, left[arrived] if arrived < len(left) else state.next_message)


def _since(state: State, seq: int) -> tuple[list[Touched], set[int]]:
    """Every record changed after an entry, with what it was then; and the pages that were unpinned when last there."""
    found: dict[tuple[int, int], Touched] = {}
    unpinned: set[int] = set()
    for record in state.storage.scan(state.context, JOURNAL, seq + 1, state.version):
        entry = decode_entry(record.key, record.value)
        if entry.operation == "temporary" and 0 < entry.undoes <= seq:
            raise InvalidOperation(
                f"Cannot go back to entry {seq}: it lies in a temporary block, whose work stays away. Entry"
                f" {entry.undoes - 1} is the one before it, {record.key} the one after."
            )
        for touched in entry.touched:
            found.setdefault((touched.family, touched.key), touched)
            if touched.family == PAGE_CODE and isinstance(page := page_before(touched), PageRecord):
                (unpinned.discard if page.header.pinned else unpinned.add)(touched.key)
    return list(found.values()), unpinned


def _kept(plan: Plan) -> dict[int, PageRecord]:
    """The pinned pages and the folders above them."""
    pinned = [page for key in plan.state.pins() if isinstance(page := plan.state.page(key), PageRecord)]
    return {page.key: page for pin in pinned for page in (pin, *plan.state.ancestors(pin))}


def _homes(plan: Plan, before: Mapping[int, PageRecord | Gone | None]) -> dict[int, int]:
    """For the keys that moves between segments gave a page: the key under which it stood before all of them."""
    same: dict[int, list[int]] = {}
    for key, old in before.items():
        for page in (old, plan.page(key)):
            if isinstance(page, Gone) and page.moved_to >= 0:
                same.setdefault(key, []).append(page.moved_to)
                same.setdefault(page.moved_to, []).append(key)
    homes = {key: key for key in same if isinstance(before.get(key), PageRecord)}
    reached = deque(homes)
    while reached:
        key = reached.popleft()
        for other in same[key]:
            if other not in homes:
                homes[other] = homes[key]
                reached.append(other)
    return homes


def _revert(plan: Plan, seq: int, record: EntryRecord) -> None:
    check_untouched(plan, seq, record)
    before = {touched.key: page_before(touched) for touched in record.touched if touched.family == PAGE_CODE}
    homes = _homes(plan, before)
    whole = _original(plan.state, record).operation == "unmarshal"  # a whole context may come and go
    for touched in record.touched:
        if touched.family == PAGE_CODE:
            _revert_page(plan, touched, homes, before.keys())
        elif touched.family == SEGMENT_CODE:
            _revert_segment(plan, touched)
        else:
            _revert_note(plan, touched)
    if not plan.pages and not plan.segments and not plan.notes:
        raise InvalidOperation(
            "Pins and permissions are security settings that no undo brings back. Set them with pin, unpin or"
            " set_segment_permission."
            if record.touched
            else "it changed nothing here."
        )
    if record.operation == "fold":
        plan.put_note(UNDONE_FOLD, name="undone")  # it is not made again until the budget forces it
    if whole:
        _unpin_what_is_not_shown(plan)
    check_plan(plan)
    check_segments(plan)
    if not whole:
        check_conversation_kept(plan)
        check_pins(plan)
    check_conversation(plan)


def _original(state: State, record: EntryRecord) -> EntryRecord:
    """The operation that an undo, or a chain of undos and redos, is about."""
    while record.operation == "undo":
        record = stored_entry(state, record.undoes)
    return record


def _revert_page(
    plan: Plan,
    touched: Touched,
    homes: Mapping[int, int],
    leaving: Container[int],
    *,
    unpinned: bool = False,
) -> None:
    now = plan.page(touched.key)
    before = page_before(touched)
    if not isinstance(before, PageRecord):
        back = before.moved_to if before else homes.get(touched.key, -1)
        if isinstance(now, PageRecord) or (now is not None and now.moved_to != back):
            plan.remove(touched.key, back)
        return
    if isinstance(now, PageRecord):
        before = replace(before, header=replace(before.header, pinned=now.header.pinned))
        same = replace(before.header, seq=now.header.seq, age=now.header.age)
        if (before.parent, before.rank, same) == (now.parent, now.rank, now.header):
            return
    elif unpinned:
        before = replace(before, header=replace(before.header, pinned=False))
    moved = not isinstance(now, PageRecord) or (now.group, now.rank) != (before.group, before.rank)
    if moved and before.parent is not None and not before.is_cold:
        before = replace(before, rank=plan.free_rank(before.parent, slot_of(before), leaving))
    plan.restore(before)


_CONTENT = (
    "name",
    "description",
    "summary_tokens",
    "tokens",
    "body",
    "messages",
    "meta",
    "numbers",
    "pending",
    "closed",
)


def _revert_content(plan: Plan, now: PageRecord, before: PageRecord | Gone | None) -> None:
    """Give a page that stays where it is what it said before."""
    if isinstance(before, PageRecord):
        fields: dict[str, Any] = {field: getattr(before.header, field) for field in _CONTENT}
        plan.change(now, **fields)


def _unpin_what_is_not_shown(plan: Plan) -> None:
    """A page that a document pinned and that was hidden before it goes back to being hidden."""
    for page in list(plan.pages.values()):
        if isinstance(page, PageRecord) and page.header.pinned:
            whole = page.header.visibility is Visibility.EXPANDED and plan.effective_lifecycle(page) is Lifecycle.ACTIVE
            if not whole:
                plan.change(page, pinned=False)


def _revert_segment(plan: Plan, touched: Touched) -> None:
    now = plan.segment(touched.key)
    if now is None:
        return
    before = None if touched.before is None else decode_segment(touched.key, touched.before)
    before = replace(now, gone=True) if before is None else replace(before, permission=now.permission)
    if replace(before, seq=now.seq, updated=now.updated) != now:
        plan.put_segment(touched.key, before)


def _was_live(touched: Touched) -> bool:
    return touched.before is not None and not decode_segment(touched.key, touched.before).gone


def _revert_note(plan: Plan, touched: Touched) -> None:
    now = plan.note(touched.key)
    before = NoteRecord(0) if touched.before is None else decode_note(touched.key, touched.before)
    if now is None or replace(before, seq=now.seq) != now:
        plan.put_note(touched.key, batches=before.batches, gaps=before.gaps, name=before.name)
