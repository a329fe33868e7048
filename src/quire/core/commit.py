"""Commit: the writes of a plan, with everything that is derived from the changed pages.

Derived are the number of children of each folder (tally), the pins, and the deferred changes: pages that an agent
changed and that the view shows unchanged until the next fold.
"""

from collections.abc import Iterator, Mapping
from zlib import crc32

from msgspec.structs import replace

from quire.core.derived_records import LayoutRecord
from quire.core.plan import Plan
from quire.core.reader import EMPTY_FOLDER, Folder
from quire.core.records import (
    CHECKPOINTS,
    FORMAT,
    NOTE_CODE,
    PAGE_CODE,
    SEGMENT_CODE,
    Counts,
    DeferredChange,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Touched,
    encode_body,
    encode_page,
    encode_record,
    head_stamp,
    is_undone,
    page_number,
    segment_number,
)
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    LAYOUT,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    Delete,
    Patch,
    Put,
    Write,
)


class _FolderChange:
    """The children that a folder gains or loses, the sum of their orders, and the highest rank of a new one."""

    __slots__ = ("children", "last", "orders")

    def __init__(self) -> None:
        self.children = 0
        self.orders = 0
        self.last = b""


class Changes:
    """The writes of a plan, the previous values for the journal, and the derived values for the state in memory."""

    def __init__(self, plan: Plan, mark: bytes) -> None:
        self._mark = mark
        self.writes: list[Write] = []
        self.touched: list[Touched] = []
        self.folders: dict[int, Folder] = {}
        self.pins: dict[int, bool] = {}
        self.deferred: dict[int, DeferredChange | None] = {}
        self.deferred_count = 0
        self.messages: dict[int, tuple[MessageRecord, int]] = {}
        self.moved = False
        self.layouts: dict[int, LayoutRecord | None] = dict(plan.layouts)
        self._plan = plan
        self._state = plan.state
        self.tally_of = plan.state.head.tally_of
        self.tally = plan.state.head.tally
        self._deltas: dict[int, _FolderChange] = {}
        self._new_pages: list[int] = []
        for number, segment in plan.segments.items():
            self._segment(number, segment)
        for key, page in plan.pages.items():
            self._page(key, page)
        for key, text in plan.bodies.items():
            self.writes.append(Put(BODY, key, encode_body(key, text, mark), is_new=True))
        for number, message in plan.messages.items():
            value = encode_record(number, message, mark)
            self.writes.append(Put(MESSAGE, number, value, is_new=True))
            self.messages[number] = (message, len(value))
        for key, pages in plan.calls.items():
            self.writes.append(Put(CALL, key, encode_record(key, pages, mark)))
        for key, note in plan.notes.items():
            self._note(key, note)
        for number in plan.destroyed_messages:
            self.writes.append(Delete(MESSAGE, number))
        self.writes += plan.erasures
        self._tallies()
        self._defer()
        self._lay_out()
        self.counts = self._count()

    def head(self, context: str, identity: bytes, *, budget: int, fold_budget: int, turn: int = 0) -> HeadRecord:
        """Return the head of the context after these changes. This upgrades the context to the current format."""
        plan, old = self._plan, self._state.head
        return HeadRecord(  # positional: by name it takes several times as long
            FORMAT,
            plan.created or old.created or plan.now,
            plan.now,
            old.next_body + len(plan.bodies),
            tuple(plan.counters),
            self.tally_of,
            self.tally,
            plan.actors,
            identity,
            plan.next_message,
            plan.horizon,
            self.deferred_count,
            old.family,
            budget,
            self.layout_count,
            fold_budget,
            self.counts,
            head_stamp(context, plan.seq),
            turn,
            old.lineage,
        )

    def _count(self) -> Counts:
        """Return the number of records after these changes."""
        old, notes = self._state.head.counts, self._plan.notes
        is_larger = self._new_pages or len(self._plan.counters) > len(old.pages)
        counts = self._with_new_pages(old) if is_larger else old
        if not notes and not self.pins:  # the usual case
            return counts
        known = {key for key in notes if key < CHECKPOINTS} - set(old.notes)
        checkpoints = [key for key in notes if key >= CHECKPOINTS and self._state.note(key) is None]
        return replace(
            counts,
            pins=old.pins + sum(1 if pinned else -1 for pinned in self.pins.values()),
            notes=tuple(sorted({*old.notes, *known})) if known else old.notes,
            checkpoints=old.checkpoints + len(checkpoints),
        )

    def _with_new_pages(self, counts: Counts) -> Counts:
        pages = [*counts.pages, *[0] * (len(self._plan.counters) - len(counts.pages))]
        for key in self._new_pages:
            pages[segment_number(key)] += 1
        return replace(counts, pages=tuple(pages))

    def _defer(self) -> None:
        """Store new deferred changes and delete those that this plan applies."""
        known = self._state.deferred_changes()
        if not known and not self._plan.is_deferred:
            return
        self.deferred = find_deferred_changes(self._plan, known)
        applied = sum(change is None for change in self.deferred.values())
        self.deferred_count = len(known.keys() | self.deferred.keys()) - applied
        for key, change in self.deferred.items():
            self.writes.append(
                Delete(ANCHOR, key) if change is None else Put(ANCHOR, key, encode_record(key, change, self._mark))
            )

    def _lay_out(self) -> None:
        """Store new layouts. Delete a layout if a developer moved, showed or hid a page that it contains."""
        known = self._state.layouts()
        if known and not self._plan.is_deferred and not self._plan.lays_out:
            applied = (key for key, change in self.deferred.items() if change is None)
            for key in (*self._plan.pages, *applied):
                layout = known.get(segment_number(key))
                if layout is not None and page_number(key) < layout.next and self._changes_layout(key):
                    self.layouts[segment_number(key)] = None
        if not self.layouts:
            self.layout_count = len(known)
            return
        for number, layout in self.layouts.items():
            value = b"" if layout is None else encode_record(number, layout, self._mark)
            self.writes.append(Put(LAYOUT, number, value) if value else Delete(LAYOUT, number))
        self.layout_count = len({*known, *self.layouts}) - sum(layout is None for layout in self.layouts.values())

    def _changes_layout(self, key: int) -> bool:
        """Return whether a change of a page makes the layout wrong.

        A change of the name or of the texts does not. A new state, a new place, or opening the page does.
        """
        old, page = self._plan.stored_page(key), self._plan.page(key)
        if key in self.deferred or not (isinstance(old, PageRecord) and isinstance(page, PageRecord)):
            return True
        one, two = old.header, page.header
        if replace(one, seq=two.seq, age=two.age) == two:  # only seq and age differ: the page was opened
            return True
        is_shown = (one.lifecycle, one.visibility, one.pinned) == (two.lifecycle, two.visibility, two.pinned)
        return not is_shown or _place_of(old) != _place_of(page)

    def _note(self, key: int, note: NoteRecord) -> None:
        old = self._state.note(key)
        if is_undone(key):
            self.touched.append(Touched(NOTE_CODE, key, None if old is None else encode_record(key, old, self._mark)))
        self.writes.append(Put(NOTE, key, encode_record(key, note, self._mark)))

    def _segment(self, number: int, segment: SegmentRecord) -> None:
        old = self._state.segment(number)
        before = None if old is None else encode_record(number, old, self._mark)
        self.touched.append(Touched(SEGMENT_CODE, number, before))
        self.writes.append(Put(SEGMENT, number, encode_record(number, segment, self._mark)))

    def _page(self, key: int, page: PageRecord | Gone) -> None:
        old = self._plan.stored_page(key)
        if old is None:
            self._new_page(key, page)
            return
        before, group, order = self._encode(key, old)
        if self._plan.omits_previous:
            self.touched.append(Touched(PAGE_CODE, key))
        else:
            self.touched.append(Touched(PAGE_CODE, key, before, group, order))
        value, new_group, new_order = self._encode(key, page)
        if group == new_group and order == new_order:
            self.writes.append(Patch(PAGE, key, value))
        else:
            self.writes.append(Put(PAGE, key, value, new_group, new_order))
            self.moved = True
            self._tally(old, -1)
            self._tally(page, +1)
        self._pin(key, old, page)

    def _encode(self, key: int, page: PageRecord | Gone) -> tuple[bytes, int | None, bytes]:
        """Return the value of a page, with its group and its order in the storage."""
        if isinstance(page, Gone):
            return encode_page(key, page, None, b"", self._mark), None, b""
        group, rank = page.group, page.rank
        return encode_page(key, page.header, group, rank, self._mark), group, rank

    def _new_page(self, key: int, page: PageRecord | Gone) -> None:
        self.touched.append(Touched(PAGE_CODE, key))
        self._new_pages.append(key)
        if isinstance(page, Gone):
            self.writes.append(Put(PAGE, key, encode_record(key, page, self._mark)))
            return
        value, group, rank = self._encode(key, page)
        self.writes.append(Put(PAGE, key, value, group, rank, is_new=True))
        self._tally(page, +1)
        if page.header.folder and key in self._plan.new_keys:
            self.folders[key] = EMPTY_FOLDER
        if page.header.pinned:
            self._pin(key, None, page)

    def _tally(self, page: PageRecord | Gone | None, by: int) -> None:
        if isinstance(page, PageRecord) and page.parent is not None:
            found = self._deltas.get(page.parent)
            if found is None:
                found = self._deltas[page.parent] = _FolderChange()
            if not page.is_cold:
                found.children += by
                found.orders += by * crc32(page.rank)
            if by > 0 and page.rank > found.last:
                found.last = page.rank

    def _tallies(self) -> None:
        for key, delta in self._deltas.items():
            known = self._plan.stored_folder(key)
            tally = known.tally.plus(delta.children, delta.orders)
            self.folders[key] = Folder(tally, max(known.last or b"", delta.last) or None)
            is_changed = bool(delta.children or delta.orders)
            if key == self.tally_of:
                self.tally = tally.pack()
            elif is_changed and len(self._deltas) == 1:  # the head keeps this folder's count from now on
                if self.tally_of >= 0:
                    self._write_tally(self.tally_of, self.tally)
                self.tally_of, self.tally = key, tally.pack()
            elif is_changed:
                self._write_tally(key, tally.pack())

    def _write_tally(self, key: int, tally: int) -> None:
        self.writes.append(Put(TALLY, key, encode_record(key, tally, self._mark)) if tally else Delete(TALLY, key))

    def _pin(self, key: int, old: PageRecord | Gone | None, page: PageRecord | Gone) -> None:
        was = isinstance(old, PageRecord) and old.header.pinned
        now = isinstance(page, PageRecord) and page.header.pinned
        if was is not now:
            self.pins[key] = now
            self.writes.append(Put(PIN, key, b"") if now else Delete(PIN, key))


def find_deferred_changes(plan: Plan, known: Mapping[int, DeferredChange]) -> dict[int, DeferredChange | None]:
    """Return the deferred changes of a plan by page: a new one, or None for a known one that is applied now."""
    if not plan.is_deferred:
        return dict.fromkeys(known if plan.applies_deferred else _applied_keys(plan, known)) if known else {}
    keys = (*plan.pages, *(key for key in plan.opened_pages if key not in plan.pages))
    found = {key: _defer_page(plan, key, known) for key in keys}
    return {key: change for key, change in found.items() if change is not None}


def _place_of(page: PageRecord | Gone | None) -> tuple[int | None, bytes]:
    """Return the group and the order of a page in the storage."""
    return (page.group, page.rank) if isinstance(page, PageRecord) else (None, b"")


def _defer_page(plan: Plan, key: int, deferred: Mapping[int, DeferredChange]) -> DeferredChange | None:
    """Return the deferred change of a page that a plan changes or opens; None if the stored one stays valid."""
    page, known = plan.page(key), deferred.get(key)
    opened, listed = b"", tuple[int, ...]()
    if key in plan.opened_pages and isinstance(page, PageRecord):
        opened, listed = encode_record(key, page.header), _deferred_below(plan, page, deferred)
    if known is None:
        old = plan.stored_page(key)
        place = _place_of(old)
        before = None if old is None else encode_page(key, old if isinstance(old, Gone) else old.header, *place)
        return DeferredChange(plan.seq, plan.next_message, before, *place, opened, listed)
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
    key = change.group
    while key is not None:
        yield key
        page = plan.stored_page(key)
        key = page.parent if isinstance(page, PageRecord) else None
