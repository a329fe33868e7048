"""Undo: take back what some entries changed, except what is protected.

Undo, rollback, the end of a batch or of a temporary block, and a failed turn all call `take_back`. They differ in their
entries and in what they protect. Permissions, the budget, and a prompt that was there before always stay.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from quire.core.codec import decode_touched
from quire.core.entries import read_entries
from quire.core.exchanges import exchange_fields
from quire.core.plan import Plan
from quire.core.reader import slot_of
from quire.core.records import (
    CHECKPOINTS,
    GAPS,
    NOTE_CODE,
    PAGE_CODE,
    SEGMENT_CODE,
    UNDONE_FOLD,
    Batch,
    EntryRecord,
    Gone,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Touched,
    page_key,
    segment_number,
)
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, short_repr
from quire.model.pages import Form, Lifecycle, Mark, Permission
from quire.system.checkpoints import resolve_seq
from quire.system.compressed_summaries import SUMMARY_FIELDS, remake_summary
from quire.system.journal import Entry, page_before, stored_entry
from quire.system.rules import check_conversation_kept, check_plan, check_unpinned

_SECURITY = ("pin", "unpin", "set_segment_permission")
_CONTENT = (*SUMMARY_FIELDS, "meta", "numbers", "pending", "closed")
"""What a pinned page says: this is taken back although the page stays."""
_MESSAGES = ("name", "numbers", "messages", "pending", "tokens")
_RIGHTS = (Permission.PRIVATE, Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED)
"""The permissions, ordered from the fewest rights of an agent to the most."""


class Protection(Struct, frozen=True, kw_only=True):
    """What stays although it came with the entries that are taken back."""

    pages: bool = False
    """Pages stay as they are, folds too: only messages leave, and only marks are undone."""
    pins: bool = True
    """Pins do not change. Pinned pages and the folders above them stay where they are, with their earlier content."""


class Earlier(Struct):
    """The records that some entries changed, as they were before the first of these entries."""

    pages: dict[int, PageRecord | Gone | None] = field(default_factory=dict)
    records: dict[tuple[int, int], Touched] = field(default_factory=dict)
    """All records, by family and key."""
    unpinned: set[int] = field(default_factory=set)
    """The pages that were not pinned before their last change."""
    stale: dict[int, int | None] = field(default_factory=dict)
    """The summaries of messages that `cut` left out, with the folders of these messages."""

    def add(self, changes: Iterable[Touched]) -> None:
        """Add the changes of the next entry."""
        for touched in changes:
            self.records.setdefault((touched.family, touched.key), touched)
            if touched.family == PAGE_CODE:
                page = page_before(touched)
                self.pages.setdefault(touched.key, page)
                if isinstance(page, PageRecord):
                    (self.unpinned.discard if page.header.pinned else self.unpinned.add)(touched.key)

    def cut(self, plan: Plan, boundary: int) -> None:
        """Leave out all messages from a boundary on, as if they had arrived with the entries. Prompts stay."""
        numbering = plan.numbering()
        for number in range(boundary, plan.next_message):
            page = plan.page_of(number) if numbering.index(number) is not None else None
            if page is not None:
                self.pages.setdefault(page.key, page)
        for key, old in self.pages.items():
            if not isinstance(old, PageRecord) or plan.in_system(old) or max(old.header.numbers, default=-1) < boundary:
                continue
            kept = [number for number in old.header.numbers if number < boundary]
            if old.header.numbers[0] < boundary:
                self.pages[key] = replace(old, header=replace(old.header, **exchange_fields(plan, kept)))
            else:
                self.pages[key] = None
                self.stale[old.header.standin] = old.parent


def earlier_than(state: State, batch: Batch) -> Earlier:
    """Return the records that changed since a batch was opened, as they were then."""
    earlier = Earlier()
    earlier.add(batch.before)
    for _, entry in read_entries(state, batch.seq + 1):
        earlier.add(entry.touched)
    return earlier


def take_back(plan: Plan, earlier: Earlier, protection: Protection) -> None:
    """Plan to return all records in `earlier` to their state there.

    Raises `InvalidOperation` if that would break a rule, such as a folder that must go and has other pages.
    """
    work = _TakeBack(plan, earlier, protection)
    (work.take_messages if protection.pages else work.take_records)()
    check_plan(plan)
    if protection.pins:
        check_conversation_kept(plan)


class _TakeBack:
    """One call of `take_back`."""

    def __init__(self, plan: Plan, earlier: Earlier, protection: Protection) -> None:
        self._plan = plan
        self._earlier = earlier
        self._protection = protection
        self._held = _pinned_pages(plan) if protection.pins else {}
        self._leaving = earlier.pages.keys() - self._held.keys()
        self._homes = _homes(plan, earlier.pages)
        self._stale = dict(earlier.stale)  # summaries whose messages changed, with the folder of these

    # Records

    def take_records(self) -> None:
        """Return whole records: pages, segments and notes."""
        taken = {_place(page) for page in self._held.values() if page.parent is not None}
        pages = self._earlier.pages
        for key in sorted(pages, key=lambda key: _place(pages[key]) in taken):  # last: a pinned page has their place
            if key in self._held:
                self._revert_content(self._held[key])
            elif self._plan.state.current_key(key) not in self._held:
                self._revert_page(key, pages[key])
        for (family, key), touched in self._earlier.records.items():
            if family == SEGMENT_CODE:
                self._revert_segment(key, cast("SegmentRecord | None", decode_touched(touched)))
            elif family == NOTE_CODE and key < CHECKPOINTS:
                self._revert_note(key, cast("NoteRecord | None", decode_touched(touched)) or NoteRecord(0))

    def _revert_content(self, now: PageRecord) -> None:
        pages = self._earlier.pages
        old = pages[now.key] or pages.get(self._homes.get(now.key, -1))
        if isinstance(old, PageRecord):
            self._plan.change(now, **{name: getattr(old.header, name) for name in _CONTENT})

    def _revert_page(self, key: int, old: PageRecord | Gone | None) -> None:
        plan, now = self._plan, self._plan.page(key)
        if not isinstance(old, PageRecord):
            back = old.moved_to if old else self._homes.get(key, -1)
            if isinstance(now, PageRecord) or (now is not None and now.moved_to != back):
                plan.remove(key, back)
            return
        pinned = old.header.pinned
        if self._protection.pins:
            pinned = now.header.pinned if isinstance(now, PageRecord) else pinned and key not in self._earlier.unpinned
        old = replace(old, header=replace(old.header, pinned=pinned))
        if not isinstance(now, PageRecord) or _place(now) != _place(old):
            if old.parent is not None and not old.is_cold:
                old = replace(old, rank=plan.free_rank(old.parent, slot_of(old), self._leaving))
        elif replace(old.header, seq=now.header.seq, age=now.header.age) == now.header:
            return
        plan.restore(old)

    def _revert_segment(self, key: int, old: SegmentRecord | None) -> None:
        now = self._plan.segment(key)
        is_held = (old is None or old.gone) and page_key(key, 0) in self._held
        if now is None or is_held:
            return
        permission = now.permission
        if old is not None and old.position != now.position:  # another segment with the same id: the fewer rights
            permission = min(old.permission, permission, key=_RIGHTS.index)
        old = replace(now, gone=True) if old is None else replace(old, permission=permission)
        if replace(old, seq=now.seq, updated=now.updated) != now:
            self._plan.put_segment(key, old)

    def _revert_note(self, key: int, old: NoteRecord) -> None:
        now = self._plan.note(key)
        if now is None or replace(old, seq=now.seq) != now:
            self._plan.put_note(key, batches=old.batches, gaps=old.gaps, name=old.name)

    # Messages and marks only

    def take_messages(self) -> None:
        """Take messages out of the conversation, and undo marks, without a change of anything else."""
        plan, pages = self._plan, self._earlier.pages
        for key, old in pages.items():
            now = plan.page(key)
            if isinstance(now, PageRecord):
                found = old or pages.get(self._homes.get(key, -1))
                self._revert_marks(now, found if isinstance(found, PageRecord) else None)
            elif now is None or now.moved_to >= 0:
                continue
            elif isinstance(old, PageRecord) and _is_message(old):
                self._bring_back(old)
            elif old is None and segment_number(key) == plan.conversation():
                plan.remove(key, purged=now.purged)  # so that the undo of its removal is refused
        for key, folder in self._stale.items():
            summary = plan.page(plan.current_key(key))
            if isinstance(summary, PageRecord) and not self._stays(summary):
                remake_summary(plan, key, folder, pinned_too=True)

    def _revert_marks(self, now: PageRecord, old: PageRecord | None) -> None:
        """Return the messages of an exchange, or the text of a summary, and its mark."""
        plan = self._plan
        if not _is_message(now):
            return
        if old is None:
            self._end(now)
            return
        mark, standin = old.header.mark, old.header.standin
        names = SUMMARY_FIELDS if now.header.form is Form.SUMMARY else _MESSAGES
        if now.header.numbers != old.header.numbers or names is SUMMARY_FIELDS:
            now = plan.change(now, **{name: getattr(old.header, name) for name in names})
        if (now.header.mark, now.header.standin) != (mark, standin):
            if mark is not Mark.NONE and self._stays(now):
                self._stale[standin] = old.parent
                return
            now = plan.change(now, mark=mark, standin=standin, lifecycle=old.header.lifecycle)
            if old.is_cold:
                plan.change(now, pinned=False)
            else:
                plan.place_home(now)
        if mark is Mark.NONE:  # the message that closed it may have left
            plan.change(plan.require_referenced(now.key, now.key), closed=old.header.closed)

    def _end(self, now: PageRecord) -> None:
        """Take the messages of a new exchange out of the conversation for good, or remove a new summary."""
        if self._stays(now):
            return
        if now.header.form is Form.SUMMARY:
            self._plan.remove(now.key)
            return
        if now.header.standin:
            self._stale[now.header.standin] = now.parent
        self._plan.change(now, mark=Mark.ENDED, standin=0, pinned=False, lifecycle=Lifecycle.COLD_ARCHIVED)

    def _stays(self, page: PageRecord) -> bool:
        """Return whether a page is protected by its pin. A prompt that came with the entries is not."""
        return self._protection.pins and page.header.pinned and not self._plan.in_system(page)

    def _bring_back(self, old: PageRecord) -> None:
        """Restore a page that was removed, with the folders above it."""
        plan = self._plan
        segment = plan.segment(segment_number(old.key))
        if segment is None or segment.gone:  # the page was moved out of the conversation, to this segment
            return
        above = self._earlier.pages.get(-1 if old.parent is None else old.parent)
        if isinstance(above, PageRecord) and isinstance(plan.page(above.key), Gone):
            self._bring_back(above)
        page = plan.restore(replace(old, header=replace(old.header, pinned=False)))
        if not page.is_cold:
            plan.place_home(page)


def _place(page: PageRecord | Gone | None) -> object:
    """Return a value that no two children of a folder share; None for a page that is gone."""
    return (page.parent, page.rank, page.is_cold) if isinstance(page, PageRecord) else None


def _is_message(page: PageRecord) -> bool:
    return bool(page.header.numbers) or page.header.form is Form.SUMMARY


def _pinned_pages(plan: Plan) -> dict[int, PageRecord]:
    """Return the pinned pages and the folders above them."""
    pinned = [page for key in plan.state.pins() if isinstance(page := plan.state.page(key), PageRecord)]
    return {page.key: page for pin in pinned for page in (pin, *plan.state.ancestors(pin))}


def _homes(plan: Plan, pages: Mapping[int, PageRecord | Gone | None]) -> dict[int, int]:
    """Map every key of a page that moved between segments to the key that it had before the moves."""
    same: defaultdict[int, set[int]] = defaultdict(set)
    for key, old in pages.items():
        for page in (old, plan.page(key)):
            if isinstance(page, Gone) and page.moved_to >= 0:
                same[key].add(page.moved_to)
                same[page.moved_to].add(key)
    homes = {key: key for key in same if isinstance(pages.get(key), PageRecord)}
    reached = list(homes)
    for key in reached:
        others = same[key] - homes.keys()
        homes |= dict.fromkeys(others, homes[key])
        reached += others
    return homes


def undo(plan: Plan, entry: "Entry | int") -> int:
    """Take back what an entry changed and keep later changes; return the seq of the undone entry.

    Raises `InvalidOperation` if a later entry changed the same record, and names it.
    """
    seq = entry.seq if isinstance(entry, Entry) else entry
    record = stored_entry(plan.state, seq)
    try:
        _undo(plan, seq, record)
    except InvalidOperation as error:
        raise InvalidOperation(f"Cannot undo entry {seq} ({record.operation}): {error.fact}", *error.hints) from None
    return seq


def _undo(plan: Plan, seq: int, record: EntryRecord) -> None:
    if seq <= plan.horizon:
        raise InvalidOperation(
            f"nothing up to entry {plan.horizon} (a cleanup, a purge or the start of a fork) can be undone."
        )
    if record.operation == "temporary":
        raise InvalidOperation(
            "the messages of a temporary block cannot be brought back.",
            Hint("messages", arguments="all=True", purpose="to read its messages"),
        )
    changes = [touched for touched in record.touched if (touched.family, touched.key) != (NOTE_CODE, UNDONE_FOLD)]
    _check_unchanged(plan, seq, changes)
    original, is_redo = _original(plan.state, record)
    earlier = Earlier()
    earlier.add(changes)
    take_back(plan, earlier, Protection(pins=original.operation != "unmarshal"))  # that replaced the pins too
    if not changes:
        _close_opened(plan, seq)
    if not plan.pages and not plan.segments and not plan.notes:
        raise _no_change_error(plan, record)
    if original.operation == "fold":  # an undone fold is not repeated until the budget requires it
        plan.put_note(UNDONE_FOLD, name="" if is_redo else "undone")


def rollback(plan: Plan, to: "str | int | Entry") -> int:
    """Return the whole context to an earlier entry; return its seq.

    Permissions and pins do not change. Pinned pages and the folders above them stay where they are.
    """
    seq = resolve_seq(plan.state, to)
    if seq < plan.horizon:
        raise InvalidOperation(
            f"Cannot go back to {short_repr(to)}: nothing before entry {plan.horizon} can be restored."
        )
    earlier = Earlier()
    for key, entry in read_entries(plan.state, seq + 1):
        if entry.operation == "temporary" and 0 < entry.undoes <= seq:
            raise InvalidOperation(
                f"Cannot go back to entry {seq}: it is in a temporary block. The last entry before it is"
                f" {entry.undoes - 1}, the first one after it is {key}."
            )
        earlier.add(entry.touched)
    take_back(plan, earlier, Protection())
    plan.apply_deferred()
    return seq


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


def _check_unchanged(plan: Plan, seq: int, changes: Sequence[Touched]) -> None:
    """Raise `InvalidOperation` if a later entry is in effect that changed one of the records; name the newest one.

    An entry that was undone is not in effect, nor is its undo. A change of a pin or permission is in nobody's way.
    """
    records = {(touched.family, touched.key) for touched in changes}
    undone: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for later, entry in read_entries(plan.state, seq + 1, reverse=True):
        changed = {(touched.family, touched.key): touched for touched in entry.touched}
        in_effect = changed.keys() - undone.pop(later, set())
        if entry.operation == "undo" and entry.undoes > seq:
            undone[entry.undoes] |= in_effect
        elif entry.operation not in _SECURITY and not in_effect.isdisjoint(records):
            name = _name(plan, changed[min(in_effect & records)])
            raise InvalidOperation(
                f"{name} was changed later by entry {later} ({entry.operation}).",
                Hint("undo", arguments=str(later), purpose="to undo that first"),
            )


def _name(plan: Plan, touched: Touched) -> str:
    if touched.family == PAGE_CODE:
        return repr(plan.index(touched.key))
    if touched.family == SEGMENT_CODE:
        return f"segment {plan.counters[touched.key].segment!r}"
    return "the checkpoint" if touched.key >= CHECKPOINTS else "the list of batches"


def _original(state: State, record: EntryRecord) -> tuple[EntryRecord, bool]:
    """Return the operation at the start of a chain of undos, and whether the undo of `record` repeats it."""
    is_redo = False
    while record.operation == "undo":
        record, is_redo = stored_entry(state, record.undoes), not is_redo
    return record, is_redo


def _close_opened(plan: Plan, seq: int) -> None:
    """Close the pages that an entry opened. Such pages would otherwise stay open until the next fold."""
    for key, change in plan.state.deferred_changes().items():
        page = plan.page(key)
        if change.seq == seq and change.opened and isinstance(page, PageRecord):
            plan.restore(page)


def _no_change_error(plan: Plan, record: EntryRecord) -> InvalidOperation:
    """Return the error for an entry of which everything is protected, or is not stored."""
    if not record.touched:
        return InvalidOperation("it changed no page, and what it opened was closed again by a later fold or change.")
    for touched in (touched for touched in record.touched if touched.family == PAGE_CODE):
        now, old = plan.state.page(touched.key), page_before(touched)
        if isinstance(now, PageRecord) and (not isinstance(old, PageRecord) or now.header.pinned == old.header.pinned):
            check_unpinned(plan, now, "change")
            index = plan.index(now.key)
            hide = Hint("hide", index, purpose="to show only its line")
            return InvalidOperation(
                f"it only opened or closed {index!r} until the next fold. The layout is made anew at every fold and is"
                " never undone.",
                Hint("expand", index, purpose="to open it") if record.operation == "undo" else hide,
            )
    return InvalidOperation("pins and permissions are security settings and are never undone; set them explicitly.")
