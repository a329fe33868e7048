"""Commit: the writes of a plan, with everything that is derived from the changed pages.

Derived are the pins, the layouts that the changes break, the digests, and the deferred changes: pages that an agent
changed and that the view shows unchanged until the next fold.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from quire.core.codec import (
    Note,
    encode_body,
    encode_call,
    encode_entry,
    encode_head,
    encode_message,
    encode_note,
    encode_page,
    note_kind,
    touched_page,
)
from quire.core.plan import Plan
from quire.core.records import (
    BATCHES,
    CHECKPOINTS,
    DEFERRED,
    FORMAT,
    LAYOUTS,
    MESSAGES,
    NOTE_CODE,
    PINS,
    SEGMENT_CODE,
    SEGMENTS,
    DeferredChange,
    Digest,
    EntryRecord,
    Gone,
    HeadRecord,
    MessageRecord,
    PageRecord,
    PinRecord,
    Touched,
    is_undone,
    page_number,
    segment_number,
    stamp,
)
from quire.core.state import page_seq
from quire.storage.contract import CALL, CODES, NOTE, PAGE, TEXT, Commit, Family, Record

_KEPT: Final = Record(0, b"")


class Changes:
    """The writes of a plan, the previous values for the journal, and the derived values for the state in memory."""

    def __init__(self, plan: Plan) -> None:
        self.touched: list[Touched] = []
        self.notes: dict[int, Note | None] = {}
        self.messages: dict[int, tuple[MessageRecord, int]] = {}
        self.old_pages: dict[int, PageRecord | Gone | None] = {}
        self._plan = plan
        self._state = plan.state
        self._writes: dict[tuple[Family, int], Record | None] = {}
        self._counts = [0] * len(plan.state.head.digests)
        self._sums = [0] * len(plan.state.head.digests)
        self._collect_notes()
        for key, page in plan.pages.items():
            self._page(key, page)
        self._texts()
        for key, pages in plan.calls.items():
            self._write(CALL, key, encode_call(key, pages), 0 if self._state.callers(key) else None, 0)
        self._defer()
        self._lay_out()
        for key, note in self.notes.items():
            old = self._state.stored_note(key)
            if note is not None:
                self._write(NOTE, key, encode_note(key, note), None if old is None else old.seq, note.seq)
            elif old is not None:
                self._write(NOTE, key, None, old.seq, None)
        self._erase()

    def commit(self, entry: EntryRecord, head: HeadRecord) -> Commit:
        """Return everything as one commit."""
        seq = self._plan.seq
        older = [(number, encode_entry(number, found)) for number, found in self._plan.rewritten.items()]
        put = [(family, record) for (family, _), record in self._writes.items() if record is not None]
        delete = [place for place, record in self._writes.items() if record is None]
        return Commit(seq, encode_head(seq, head), encode_entry(seq, entry), put, delete, older)

    def head(self, identity: bytes, *, budget: int, fold_budget: int, turn: int) -> HeadRecord:
        """Return the head of the context after these changes."""
        plan, old = self._plan, self._state.head
        return HeadRecord(
            format=FORMAT,
            identity=identity,
            origin=old.origin,
            created=plan.created or old.created or plan.now,
            updated=plan.now,
            counters=tuple(plan.counters),
            next_body=old.next_body + len(plan.bodies),
            next_message=plan.next_message,
            actors=plan.actors,
            digests=self.digests(),
            first=old.first,
            horizon=plan.horizon,
            budget=budget,
            fold_budget=fold_budget,
            turn=turn,
        )

    def digests(self) -> tuple[Digest, Digest, Digest, Digest]:
        """Return the digests of the families after these changes."""
        found = zip(self._state.head.digests, self._counts, self._sums, strict=True)
        pages, texts, notes, calls = [old.plus(count, change) if change else old for old, count, change in found]
        return pages, texts, notes, calls

    def leave_out(self, messages: int) -> None:
        """Make these the changes of a fork with the first `messages` messages, without batches and checkpoints."""
        for number in range(messages, self._state.next_message):
            if self._state.has_message(number):
                self._sum(TEXT, MESSAGES + number, 0, None)
        for seq, checkpoint in self._state.checkpoints().items():
            self._sum(NOTE, CHECKPOINTS + seq, checkpoint.seq, None)
        batches = self._state.note(BATCHES)
        if batches is not None:
            self._write(NOTE, BATCHES, None, batches.seq, None)

    def _write(self, family: Family, key: int, record: Record | None, old: int | None, new: int | None) -> None:
        """Put a record or delete it. `old` and `new` are its seqs before and after, None if it is not there."""
        self._writes[family, key] = record
        self._sum(family, key, old, new)

    def _sum(self, family: Family, key: int, old: int | None, new: int | None) -> None:
        code = CODES[family]
        if new is not None:
            self._counts[code] += 1
            self._sums[code] += stamp(key, new)
        if old is not None:
            self._counts[code] -= 1
            self._sums[code] -= stamp(key, old)

    def _collect_notes(self) -> None:
        """Collect the segments, notes and pins of the plan, and the previous versions of those that undo restores."""
        for number, segment in self._plan.segments.items():
            self.touched.append(_touched_note(SEGMENT_CODE, number, SEGMENTS + number, self._state.segment(number)))
            self.notes[SEGMENTS + number] = segment
        for key, note in self._plan.notes.items():
            if is_undone(key):
                self.touched.append(_touched_note(NOTE_CODE, key, key, self._state.note(key)))
            self.notes[key] = note

    def _page(self, key: int, page: PageRecord | Gone) -> None:
        old = self.old_pages[key] = self._plan.stored_page(key)
        is_omitted = self._plan.omits_previous and old is not None
        self.touched.append(touched_page(key, None if is_omitted else old))
        self._write(PAGE, key, encode_page(page, key), None if old is None else page_seq(old), page_seq(page))
        was, now = (isinstance(each, PageRecord) and each.header.pinned for each in (old, page))
        if was is not now:
            self.notes[PINS + key] = PinRecord(self._plan.seq) if now else None

    def _texts(self) -> None:
        plan = self._plan
        for key, text in plan.bodies.items():
            self._write(TEXT, key, encode_body(key, text), None, 0)
        for number, message in plan.messages.items():
            record = encode_message(number, message)
            self._write(TEXT, record.key, record, None, 0)
            self.messages[number] = (message, len(record.value))
        for number in plan.destroyed_messages:
            if self._state.has_message(number):
                self._write(TEXT, MESSAGES + number, None, 0, None)

    def _erase(self) -> None:
        """Rewrite or delete texts and calls that a purge erases."""
        for family, key, record in self._plan.erasures:
            if self._writes.get((family, key), record or _KEPT) is not None:  # a deleted one stays deleted
                self._write(family, key, record, 0, None if record is None else 0)

    def _defer(self) -> None:
        """Store new deferred changes and delete those that this plan applies."""
        known = self._state.deferred_changes()
        if known or self._plan.is_deferred:
            for key, change in find_deferred_changes(self._plan, known).items():
                self.notes[DEFERRED + key] = change

    def _lay_out(self) -> None:
        """Store new layouts. Delete a layout if a developer moved, showed or hid a page that it contains."""
        found = dict(self._plan.layouts)
        known = self._state.layouts()
        if known and not self._plan.is_deferred and not self._plan.lays_out:
            deferred = {key - DEFERRED: note for key, note in self.notes.items() if note_kind(key) == DEFERRED}
            applied = (key for key, change in deferred.items() if change is None)
            for key in (*self._plan.pages, *applied):
                layout = known.get(segment_number(key))
                if layout is not None and page_number(key) < layout.next and self._changes_layout(key, deferred):
                    found[segment_number(key)] = None
        self.notes.update((LAYOUTS + number, layout) for number, layout in found.items())

    def _changes_layout(self, key: int, deferred: Container[int]) -> bool:
        """Return whether a change of a page makes the layout wrong.

        A change of the name or of the texts does not. A new state, a new place, or opening the page does.
        """
        old, page = self._plan.stored_page(key), self._plan.page(key)
        if key in deferred or not (isinstance(old, PageRecord) and isinstance(page, PageRecord)):
            return True
        one, two = old.header, page.header
        if replace(one, seq=two.seq, age=two.age) == two:  # only seq and age differ: the page was opened
            return True
        is_shown = (one.lifecycle, one.visibility, one.pinned) == (two.lifecycle, two.visibility, two.pinned)
        return not is_shown or (old.stored_parent, old.rank) != (page.stored_parent, page.rank)


def _touched_note(code: int, number: int, key: int, old: Note | None) -> Touched:
    return Touched(code, number, None if old is None else encode_note(key, old).value)


def find_deferred_changes(plan: Plan, known: Mapping[int, DeferredChange]) -> dict[int, DeferredChange | None]:
    """Return the deferred changes of a plan by page: a new one, or None for a known one that is applied now."""
    if not plan.is_deferred:
        return dict.fromkeys(known if plan.applies_deferred else _applied_keys(plan, known)) if known else {}
    keys = (*plan.pages, *(key for key in plan.opened_pages if key not in plan.pages))
    found = {key: _defer_page(plan, key, known) for key in keys}
    return {key: change for key, change in found.items() if change is not None}


def _defer_page(plan: Plan, key: int, deferred: Mapping[int, DeferredChange]) -> DeferredChange | None:
    """Return the deferred change of a page that a plan changes or opens; None if the stored one stays valid."""
    page, known = plan.page(key), deferred.get(key)
    opened, listed = b"", tuple[int, ...]()
    if key in plan.opened_pages and isinstance(page, PageRecord):
        opened, listed = (
            encode_page(replace(page, parent=None, rank=0), key).value,
            _deferred_below(plan, page, deferred),
        )
    if known is None:
        old = touched_page(key, plan.stored_page(key))
        return DeferredChange(plan.seq, plan.next_message, old.before, old.parent, old.rank, opened, listed)
    if opened and not known.opened:
        return replace(known, seq=plan.seq, number=plan.next_message, opened=opened, listed=listed)
    return None


def _deferred_below(plan: Plan, folder: PageRecord, deferred: Mapping[int, DeferredChange]) -> tuple[int, ...]:
    """Return the keys of the pages below a folder whose change is deferred."""
    if not folder.header.folder:
        return ()
    pages = (plan.page(key) for key in sorted(deferred.keys() | plan.pages.keys()))
    live = (page for page in pages if isinstance(page, PageRecord) and not page.is_cold)
    return tuple(page.key for page in live if any(above.key == folder.key for above in plan.ancestors(page)))


def _applied_keys(plan: Plan, known: Mapping[int, DeferredChange]) -> set[int]:
    """Return the keys of the deferred changes that a plan without deferral applies.

    These are the keys of the pages that the plan changes, of the pages that the view shows below a changed folder, and
    of the folders above all of these. Without the folders, the view would not show the pages.
    """
    folders = {key for key, page in plan.pages.items() if isinstance(page, Gone) or page.header.folder}
    found = plan.pages.keys() & known.keys()
    if folders - plan.new_keys:
        found |= {key for key, change in known.items() if not folders.isdisjoint(_folders_above(plan, change))}
    for key in (*plan.pages, *found):
        page = plan.page(key)
        if isinstance(page, PageRecord):
            found |= {above.key for above in plan.ancestors(page) if above.key in known}
    return found


def _folders_above(plan: Plan, change: DeferredChange) -> Iterator[int]:
    """Yield the keys of the folders in which the view shows a page with a deferred change."""
    key = change.parent
    while key is not None:
        yield key
        page = plan.stored_page(key)
        key = page.parent if isinstance(page, PageRecord) else None
