"""Undo and rollback: plan to revert one entry, or the whole context, to an earlier state.

Undoing one entry keeps later ones. It is refused if a later entry changed the same record; the error names all entries
that must be undone first.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from quire.core.entries import read_entries
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
    decode_note,
    decode_segment,
    page_key,
    segment_number,
)
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, short_repr
from quire.model.pages import Lifecycle, Mark, Permission, Visibility
from quire.system.checkpoints import resolve_seq
from quire.system.compressed_summaries import SUMMARY_FIELDS
from quire.system.journal import Entry, page_before, stored_entry
from quire.system.rules import check_conversation_kept, check_pins, check_plan, check_segments
from quire.system.segments import check_conversation

_MAX_NAMED = 5
_MAX_SEARCHED = 200
"""Limit of the search for entries that must be undone first."""

_Any = PageRecord | Gone | SegmentRecord | NoteRecord | None


def check_untouched(plan: Plan, seq: int, entry: EntryRecord) -> None:
    """Raise `InvalidOperation` if a later entry changed the same records, with all entries to undo first."""
    entries = _Entries(plan.state)
    for touched in _records_to_check(entry):
        record = _record(plan.state, touched)
        later = entries.effective(record, seq, touched)
        if later != seq:
            named = later if later > seq else _last_change(record)
            did = stored_entry(plan.state, named).operation
            chain = entries.blockers(seq, entry) if later > seq else []
            fact = f"{_name(plan, touched)} was changed later by entry {named} ({did}). {_undo_first(chain)}"
            raise InvalidOperation(fact, *_alternatives(plan, seq, entry, is_long=len(chain) > _MAX_NAMED))


def _records_to_check(entry: EntryRecord) -> Iterator[Touched]:
    """Yield the records of an entry that a later entry may not have changed. The note of undone folds is not one."""
    return (touched for touched in entry.touched if (touched.family, touched.key) != (NOTE_CODE, UNDONE_FOLD))


def _record(state: State, touched: Touched) -> _Any:
    """Return a touched record as it is now."""
    if touched.family == PAGE_CODE:
        return state.page(touched.key)
    if touched.family == SEGMENT_CODE:
        return state.segment(touched.key)
    note = state.note(touched.key)
    if note is None:
        raise state.damage_error(f"note record {touched.key} is missing.")
    return note


def _name(plan: Plan, touched: Touched) -> str:
    if touched.family == PAGE_CODE:
        return repr(plan.index(touched.key))
    if touched.family == SEGMENT_CODE:
        return f"segment {plan.counters[touched.key].segment!r}"
    return "the checkpoint" if touched.key >= CHECKPOINTS else "the list of batches"


def _undo_first(chain: list[int]) -> str:
    """Return a sentence with the entries to undo first, newest first."""
    if len(chain) < 2:
        return "Undo that first."
    if len(chain) <= _MAX_NAMED:
        return f"Undo {', '.join(map(str, chain))} first, in this order."
    named = ", ".join(map(str, chain[:_MAX_NAMED]))
    least = "at least " if len(chain) >= _MAX_SEARCHED else ""
    return f"Undo {named}, … {chain[-1]} first, in this order, {least}{len(chain)} entries in all."


def _alternatives(plan: Plan, seq: int, entry: EntryRecord, *, is_long: bool) -> list[Hint]:
    """Return calls that have a similar effect without undo. `is_long`: many entries must be undone first."""
    hints: list[Hint] = []
    touched = [t for t in entry.touched if t.family == PAGE_CODE]
    pages = [page for t in touched if isinstance(page := plan.state.page(t.key), PageRecord) and page.header.numbers]
    if pages and len(pages) == len(touched) == 1 and plan.effective_lifecycle(pages[0]) is Lifecycle.ACTIVE:
        hints.append(Hint("hide", plan.index(pages[0].key), purpose="to show only its line instead"))
    if pages and all(t.before is None for t in touched):
        numbering = plan.numbering()
        indices = [numbering.index(number) for page in pages for number in page.header.numbers]
        messages = sorted(index for index in indices if index is not None)
        if messages:
            purpose = "to take its messages out instead"
            hints.append(Hint("conversation.delete", arguments=_python_list(messages), purpose=purpose))
    if is_long and seq > max(plan.horizon, 1):
        hints.append(Hint("rollback", arguments=str(seq - 1), purpose="to undo it and everything after it"))
    return hints


def _python_list(numbers: Sequence[int]) -> str:
    """Return ascending numbers as Python source: `range(2, 60)` if they are many without a gap."""
    is_range = len(numbers) > _MAX_NAMED and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"range({numbers[0]}, {numbers[-1] + 1})" if is_range else str(list(numbers))


class _Entries:
    """Reads entries while one undo is checked, each of them once: an import and a fold change many records."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._read: dict[int, tuple[EntryRecord, dict[tuple[int, int], Touched]]] = {}

    def blockers(self, seq: int, entry: EntryRecord) -> list[int]:
        """Return all entries that must be undone before this one, newest first."""
        found: set[int] = set()
        waiting = [(seq, entry)]
        while waiting and len(found) < _MAX_SEARCHED:
            at, record = waiting.pop()
            for touched in _records_to_check(record):
                for later in self._later_changes(touched, at):
                    if later not in found:
                        found.add(later)
                        waiting.append((later, self._entry(later)))
        return sorted(found, reverse=True)

    def _later_changes(self, touched: Touched, seq: int) -> Iterator[int]:
        """Yield the later entries whose changes to a record are in effect, newest first."""
        record = _record(self._state, touched)
        while (later := self.effective(record, seq, touched)) > max(seq, self._state.head.horizon):
            yield later
            found = self._change(later, touched)
            if found is None:
                return
            record = _before(found)

    def effective(self, record: _Any, wanted: int, touched: Touched) -> int:
        """Return the entry whose change to a record is in effect, going back as far as `wanted`.

        An undo counts as the entry before the one it undid. A change of a pin or permission, which undo never reverts,
        is skipped.
        """
        while (now := _last_change(record)) != wanted and now > self._state.head.horizon:
            entry = self._entry(now)
            is_undo = entry.operation == "undo"
            found = self._change(entry.undoes if is_undo else now, touched)
            if found is None:
                break
            before = _before(found)
            if not is_undo and not _differ_only_in_security(before, record):
                break
            record = before
        return now

    def _entry(self, seq: int) -> EntryRecord:
        if seq not in self._read:
            entry = stored_entry(self._state, seq)
            changes: dict[tuple[int, int], Touched] = {}
            for touched in entry.touched:
                changes.setdefault((touched.family, touched.key), touched)
            self._read[seq] = entry, changes
        return self._read[seq][0]

    def _change(self, seq: int, touched: Touched) -> Touched | None:
        """Return the change that an entry made to the same record."""
        self._entry(seq)
        return self._read[seq][1].get((touched.family, touched.key))


def _before(touched: Touched) -> _Any:
    """Return a touched record as it was before the entry; None if it did not exist."""
    if touched.before is None:
        return None
    if touched.family == SEGMENT_CODE:
        return decode_segment(touched.key, touched.before)
    if touched.family == NOTE_CODE:
        return decode_note(touched.key, touched.before)
    return page_before(touched)


def _last_change(record: _Any) -> int:
    """Return the entry that last changed a record; 0 if it does not exist."""
    if record is None:
        return 0
    return record.header.seq if isinstance(record, PageRecord) else record.seq


def _differ_only_in_security(one: _Any, other: _Any) -> bool:
    """Return True if two states of a record differ only in pins or permissions."""
    if isinstance(one, PageRecord) and isinstance(other, PageRecord):
        header = replace(one.header, seq=other.header.seq, age=other.header.age, pinned=other.header.pinned)
        return (one.parent, one.rank, header) == (other.parent, other.rank, other.header)
    if isinstance(one, SegmentRecord) and isinstance(other, SegmentRecord):
        return replace(one, seq=other.seq, updated=other.updated, permission=other.permission) == other
    return False


def undo(plan: Plan, entry: "Entry | int") -> int:
    """Revert what an entry changed and keep later changes; return the seq of the undone entry.

    Raises `InvalidOperation` if a later entry changed the same record, and names it.
    """
    seq = entry.seq if isinstance(entry, Entry) else entry
    record = stored_entry(plan.state, seq)
    try:
        if seq <= plan.horizon:
            raise InvalidOperation(
                f"nothing up to entry {plan.horizon} (a cleanup, a purge or the start of a fork) can be undone."
            )
        if record.operation != "temporary":
            _revert(plan, seq, record)
        if record.operation == "temporary" or _returns_temporary(plan, seq):
            raise InvalidOperation(
                "the messages of a temporary block cannot be brought back.",
                Hint("messages", arguments="all=True", purpose="to read its messages"),
            )
    except InvalidOperation as error:
        raise InvalidOperation(f"Cannot undo entry {seq} ({record.operation}): {error.fact}", *error.hints) from None
    return seq


def _returns_temporary(plan: Plan, seq: int) -> bool:
    """Return whether undoing an entry brings back a message that arrived in a temporary block, which has ended."""
    born = [
        page.header.born
        for key, page in plan.pages.items()
        if isinstance(page, PageRecord) and page.header.numbers and page.header.mark is Mark.NONE
        if not isinstance(was := plan.state.page(key), PageRecord) or was.header.mark is not Mark.NONE
    ]
    entries = read_entries(plan.state, seq + 1) if born else ()
    return any(entry.operation == "temporary" and 0 < entry.undoes <= max(born) for _, entry in entries)


def rollback(plan: Plan, to: "str | int | Entry") -> int:
    """Return the whole context to an earlier entry; return its seq.

    Permissions and pins do not change. Pinned pages and the folders above them stay where they are.
    """
    seq = resolve_seq(plan.state, to)
    if seq < plan.horizon:
        raise InvalidOperation(
            f"Cannot go back to {short_repr(to)}: nothing before entry {plan.horizon} can be restored."
        )
    touched, before, unpinned = _changes_since(plan.state, seq)
    kept = _pinned_pages(plan)
    homes = _homes(plan, before)
    leaving = before.keys() - kept.keys()
    taken = {(page.parent, page.rank) for page in kept.values() if page.parent is not None}
    touched.sort(key=lambda item: (item.group, item.order) in taken)  # last: a kept page has their old place
    for item in touched:
        if item.family == PAGE_CODE:
            if item.key in kept:
                old = before[item.key]
                _revert_content(plan, kept[item.key], old or before.get(homes.get(item.key, -1)))
            elif plan.state.current_key(item.key) not in kept:
                _revert_page(plan, item.key, before[item.key], homes, leaving, unpinned=item.key in unpinned)
        elif item.family == SEGMENT_CODE:
            was_live = item.before is not None and not decode_segment(item.key, item.before).gone
            if was_live or page_key(item.key, 0) not in kept:
                _revert_segment(plan, item)
        elif item.key < CHECKPOINTS:
            _revert_note(plan, item)
    plan.apply_deferred()
    check_plan(plan)
    check_segments(plan)
    check_conversation_kept(plan)
    check_conversation(plan)
    return seq


def take_back(plan: Plan, before: int, turns: Container[int], *, messages_only: bool = False) -> None:
    """Revert the entries of turns after the entry `before`, pins included.

    These changes are not reverted: a record that another writer changed later; a folder or segment with pages of
    another writer; the folds of the turns, if another writer changed one of their pages (half a fold would change the
    order of messages); and changes from before a cleanup or a purge. Messages that the turns added leave the
    conversation in any case. With `messages_only`, nothing else is taken back.
    """
    early, touched, shared, folded = _changes_of_turns(plan.state, before, turns)
    if messages_only:
        early, touched = [*early, *touched], []
    old = {item.key: page_before(item) for item in touched if item.family == PAGE_CODE}
    homes = _homes(plan, old)
    shared |= _folders_in_use(plan, old)
    if not shared.isdisjoint(folded):
        shared |= folded
    for item in touched:
        if (item.family, item.key) in shared:
            _take_messages_out(plan, item, before)
        elif item.family == PAGE_CODE:
            _revert_page(plan, item.key, old[item.key], homes, old.keys(), restores_pin=True)
        elif item.family == SEGMENT_CODE:
            _revert_segment(plan, item)
        elif item.key < CHECKPOINTS:
            _revert_note(plan, item)
    for item in early:
        _take_messages_out(plan, item, before)
    check_plan(plan)
    check_segments(plan)
    check_conversation_kept(plan)
    check_conversation(plan)


def _changes_of_turns(
    state: State, before: int, turns: Container[int]
) -> tuple[list[Touched], list[Touched], set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the records that turns changed, before and after the horizon, and the keys that are shared or folded.

    The third result has the records that other writers changed later, the fourth those that folds of the turns changed.
    Each record is as it was before its first change. Changes that an earlier entry already took back are left out. If
    the user undid that entry, they are not taken back again.
    """
    early: dict[tuple[int, int], Touched] = {}
    touched: dict[tuple[int, int], Touched] = {}
    shared: set[tuple[int, int]] = set()
    folded: set[tuple[int, int]] = set()
    for seq, entry in read_entries(state, before + 1):
        if entry.operation == "turn":
            for found in (early, touched, shared, folded):
                found.clear()
            continue
        for item in entry.touched:
            place = (item.family, item.key)
            if entry.turn in turns:
                (touched if seq > state.head.horizon else early).setdefault(place, item)
                if entry.operation == "fold":
                    folded.add(place)
            elif place in touched:
                shared.add(place)
    return list(early.values()), list(touched.values()), shared, folded


def _folders_in_use(plan: Plan, old: Mapping[int, PageRecord | Gone | None]) -> set[tuple[int, int]]:
    """Return the new folders with pages that the turn did not touch, with the folders above and their segments."""
    found: set[tuple[int, int]] = set()
    for key, before in old.items():
        page = plan.state.page(key)
        if not isinstance(page, PageRecord) or isinstance(before, PageRecord) or not page.header.folder:
            continue
        if any(child.key not in old for child in plan.state.members(key)):
            found |= {(PAGE_CODE, folder.key) for folder in (page, *plan.state.ancestors(page))}
            found.add((SEGMENT_CODE, segment_number(key)))
    return found


def _take_messages_out(plan: Plan, touched: Touched, before: int) -> None:
    """Take a page with messages out of the conversation if the turn added it."""
    page = plan.page(touched.key) if touched.family == PAGE_CODE else None
    if not isinstance(page, PageRecord) or not page.header.numbers or page.header.mark is not Mark.NONE:
        return
    if page_before(touched) is None and page.header.born > before:
        plan.change(page, mark=Mark.ENDED, pinned=False, lifecycle=Lifecycle.COLD_ARCHIVED)


def messages_at(plan: Plan, seq: int) -> int:
    """Return how many messages a context keeps when it goes back to an entry.

    It keeps the messages that had arrived by then, and all messages up to the last one on a pinned page.
    """
    state = plan.state
    left: Sequence[int] = range(state.next_message)
    if state.note(GAPS):
        left = list(state.numbering().numbers())
    arrived = bisect_right(left, seq, key=lambda number: state.message(number).seq)
    pinned = (plan.page(key) for key in state.pins())
    shown = (page.header.numbers for page in pinned if isinstance(page, PageRecord))
    needed = max((max(numbers) + 1 for numbers in shown if numbers), default=0)
    return max(needed, left[arrived] if arrived < len(left) else state.next_message)


def _changes_since(state: State, seq: int) -> tuple[list[Touched], dict[int, PageRecord | Gone | None], set[int]]:
    """Return the records that changed after an entry, the pages among them, and the keys of some of these pages.

    Records and pages are as they were at the entry. The keys are those of pages that were not pinned before their last
    change.
    """
    found: dict[tuple[int, int], Touched] = {}
    pages: dict[int, PageRecord | Gone | None] = {}
    unpinned: set[int] = set()
    for key, entry in read_entries(state, seq + 1):
        if entry.operation == "temporary" and 0 < entry.undoes <= seq:
            raise InvalidOperation(
                f"Cannot go back to entry {seq}: it is in a temporary block. The last entry before it is"
                f" {entry.undoes - 1}, the first one after it is {key}."
            )
        for touched in entry.touched:
            found.setdefault((touched.family, touched.key), touched)
            if touched.family != PAGE_CODE:
                continue
            page = page_before(touched)
            pages.setdefault(touched.key, page)
            if isinstance(page, PageRecord):
                (unpinned.discard if page.header.pinned else unpinned.add)(touched.key)
    return list(found.values()), pages, unpinned


def _pinned_pages(plan: Plan) -> dict[int, PageRecord]:
    """Return the pinned pages and the folders above them."""
    pinned = [page for key in plan.state.pins() if isinstance(page := plan.state.page(key), PageRecord)]
    return {page.key: page for pin in pinned for page in (pin, *plan.state.ancestors(pin))}


def _homes(plan: Plan, before: Mapping[int, PageRecord | Gone | None]) -> dict[int, int]:
    """Map every key of a page that moved between segments to the key that it had before the moves."""
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
    original, is_redo = _original(plan.state, record)
    whole = original.operation == "unmarshal"  # it replaced the whole context
    for touched in _records_to_check(record):
        if touched.family == PAGE_CODE:
            _revert_page(plan, touched.key, before[touched.key], homes, before.keys())
        elif touched.family == SEGMENT_CODE:
            _revert_segment(plan, touched)
        else:
            _revert_note(plan, touched)
    if not record.touched:
        _close_opened(plan, seq)
    if not plan.pages and not plan.segments and not plan.notes:
        raise _no_change_error(plan, record)
    if original.operation == "fold":  # an undone fold is not repeated until the budget requires it
        plan.put_note(UNDONE_FOLD, name="" if is_redo else "undone")
    if whole:
        _unpin_hidden(plan)
    check_plan(plan)
    check_segments(plan)
    if not whole:
        check_conversation_kept(plan)
        check_pins(plan)
    check_conversation(plan)


def _close_opened(plan: Plan, seq: int) -> None:
    """Close the pages that an entry opened. Such pages would otherwise stay open until the next fold."""
    for key, change in plan.state.deferred_changes().items():
        page = plan.page(key)
        if change.seq == seq and change.opened and isinstance(page, PageRecord):
            plan.restore(page)


def _no_change_error(plan: Plan, record: EntryRecord) -> InvalidOperation:
    """Return the error for an entry that undo cannot revert."""
    if not record.touched:
        return InvalidOperation("it changed no page, and what it opened was closed again by a later fold or change.")
    for touched in record.touched:
        now, before = plan.state.page(touched.key), _before(touched)
        if isinstance(now, PageRecord) and isinstance(before, PageRecord) and now.header.pinned == before.header.pinned:
            index = plan.index(touched.key)
            if record.operation == "undo":
                hint = Hint("expand", index, purpose="to open it")
                return InvalidOperation(f"it only closed {index!r} before the next fold.", hint)
            return InvalidOperation(
                f"it only opened {index!r}, which the layout had shown as a line. The layout is made anew at every"
                " fold and is never undone.",
                Hint("hide", index, purpose="to show only its line"),
            )
    return InvalidOperation("pins and permissions are security settings and are never undone; set them explicitly.")


def _original(state: State, record: EntryRecord) -> tuple[EntryRecord, bool]:
    """Return the operation at the start of a chain of undos, and whether the undo of `record` repeats it."""
    is_redo = False
    while record.operation == "undo":
        record, is_redo = stored_entry(state, record.undoes), not is_redo
    return record, is_redo


def _revert_page(
    plan: Plan,
    key: int,
    before: PageRecord | Gone | None,
    homes: Mapping[int, int],
    leaving: Container[int],
    *,
    unpinned: bool = False,
    restores_pin: bool = False,
) -> None:
    now = plan.page(key)
    if not isinstance(before, PageRecord):
        back = before.moved_to if before else homes.get(key, -1)
        if isinstance(now, PageRecord) or (now is not None and now.moved_to != back):
            plan.remove(key, back)
        return
    if isinstance(now, PageRecord):
        pinned = before.header.pinned if restores_pin else now.header.pinned
        before = replace(before, header=replace(before.header, pinned=pinned))
        same = replace(before.header, seq=now.header.seq, age=now.header.age)
        if (before.parent, before.rank, same) == (now.parent, now.rank, now.header):
            return
    elif unpinned:
        before = replace(before, header=replace(before.header, pinned=False))
    moved = not isinstance(now, PageRecord) or (now.group, now.rank) != (before.group, before.rank)
    if moved and before.parent is not None and not before.is_cold:
        before = replace(before, rank=plan.free_rank(before.parent, slot_of(before), leaving))
    plan.restore(before)


_CONTENT = (*SUMMARY_FIELDS, "meta", "numbers", "pending", "closed")


def _revert_content(plan: Plan, now: PageRecord, before: PageRecord | Gone | None) -> None:
    """Restore the content of a page that stays where it is."""
    if isinstance(before, PageRecord):
        fields: dict[str, Any] = {field: getattr(before.header, field) for field in _CONTENT}
        plan.change(now, **fields)


def _unpin_hidden(plan: Plan) -> None:
    """Unpin pages that a document pinned and that are hidden again."""
    for page in list(plan.pages.values()):
        if isinstance(page, PageRecord) and page.header.pinned:
            is_active = plan.effective_lifecycle(page) is Lifecycle.ACTIVE
            if not is_active or page.header.visibility is not Visibility.EXPANDED:
                plan.change(page, pinned=False)


def _revert_segment(plan: Plan, touched: Touched) -> None:
    now = plan.segment(touched.key)
    if now is None:
        return
    before = None if touched.before is None else decode_segment(touched.key, touched.before)
    before = replace(now, gone=True) if before is None else replace(before, permission=_permission(before, now))
    if replace(before, seq=now.seq, updated=now.updated) != now:
        plan.put_segment(touched.key, before)


_RIGHTS = (Permission.PRIVATE, Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED)
"""The permissions, ordered from the fewest rights of an agent to the most."""


def _permission(before: SegmentRecord, now: SegmentRecord) -> Permission:
    """Return the permission of a restored segment: the present permission.

    If the present record belongs to another segment with the same id, return the permission with fewer rights.
    """
    if before.position == now.position:
        return now.permission
    return min(before.permission, now.permission, key=_RIGHTS.index)


def _revert_note(plan: Plan, touched: Touched) -> None:
    now = plan.note(touched.key)
    before = NoteRecord(0) if touched.before is None else decode_note(touched.key, touched.before)
    if now is None or replace(before, seq=now.seq) != now:
        plan.put_note(touched.key, batches=before.batches, gaps=before.gaps, name=before.name)
