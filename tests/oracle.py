"""A context in plain Python, written from the contract: the oracle of the state machine in `test_machine.py`.

It has no storage, no ranks and no codec. A folder is a list of indices in which a cold page keeps its place. The
journal is a list of the earlier values of the touched pages and segments. An operation works on this state directly.
`Model.do` reverts everything if the operation is refused, and makes an entry of the changes otherwise.
"""

from collections.abc import Iterable
from dataclasses import replace

from tests.model_state import (
    ACTIVE,
    COLD,
    EXPANDED,
    HIDDEN,
    HOT,
    Entry,
    Gone,
    Kept,
    Orders,
    Page,
    Record,
    Refused,
    Saved,
    Segment,
    State,
    Unsettled,
)
from tests.model_values import Lifecycle, Permission, SegmentType, Visibility

RIGHTS = (Permission.PRIVATE, Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED)
"""The permissions, the one with the fewest rights first."""


class Model(Kept):
    """The operations of a context on the stored state."""

    # Segments

    def add_segment(self, name: str, kind: int, permission: int = Permission.READ_WRITE, capacity: int = 0) -> None:
        live = [segment.id for segment in self.live_segments()]
        if name in live or (live and (name == "" or "" in live)):
            raise Refused("the id is taken")
        segment = Segment(name, name or "Pages", "", SegmentType(kind), Permission(permission), capacity, self._tick())
        self.state.segments[name] = segment
        self._conversation_is_visible()
        self.counters.setdefault(name, 1)
        self._set(Page(self.root(name), name, folder=True, name=segment.name, place=self._tick()))
        self.state.orders[self.root(name)] = []

    def remove_segment(self, name: str) -> int:
        segment = self.segment(name)
        pages = [page for page in self.state.pages.values() if page.segment == name]
        if name == self.conversation() or any(page.pinned for page in pages):
            raise Refused("it holds the conversation or a pinned page")
        for page in pages:
            self._drop(page.index)
        self.state.segments[name] = replace(segment, live=False)
        return len(pages)

    def update_segment(self, name: str, new_name: str | None, description: str | None, capacity: int | None) -> None:
        segment = self.segment(name)
        self.state.segments[name] = replace(
            segment,
            name=segment.name if new_name is None else self._name(new_name),
            description=segment.description if description is None else self._line(description),
            capacity=segment.capacity if capacity is None else capacity,
        )

    def set_permission(self, name: str, permission: int) -> None:
        self.state.segments[name] = replace(self.segment(name), permission=Permission(permission))
        self._conversation_is_visible()

    def _conversation_is_visible(self) -> None:
        name = self.conversation()
        if name is not None and self.state.segments[name].permission == Permission.PRIVATE:
            raise Refused("the conversation is never private")

    def generate_index(self, name: str) -> str:
        return self._next(self.segment(name).id)

    def reopen(self) -> None:
        """Numbers that were generated and never used are free again in a new handle."""
        self.counters = dict(self.stored_counters)

    # Pages

    def _name(self, name: str) -> str:
        if not name.strip():
            raise Refused("an empty name")
        return self._line(name, 200)

    def _line(self, text: str, limit: int = 2_000) -> str:
        if len(text) > limit or "\0" in text:
            raise Refused("not one line of text")
        return text.replace("\n", " ")

    def _create(self, page: Page, parent: Page, pinned: bool | None, before: str | None = None) -> str:
        pin = self._in_system(parent) if pinned is None else pinned
        self._put(replace(page, pinned=pin), parent.index, before)
        if page.folder:
            self.state.orders[page.index] = []
        if pin:
            self._open(page.index)
        return page.index

    def create_detail_page(self, name: str, description: str, detail: str, parent: str, pinned: bool | None) -> str:
        above = self._folder(parent)
        index = self._next(above.segment)
        page = Page(
            index,
            above.segment,
            folder=False,
            name=self._name(name),
            description=self._line(description),
            detail=detail,
        )
        return self._create(page, above, pinned)

    def create_contents_page(self, name: str, parent: str, children: list[str], pinned: bool | None) -> str:
        above = self._folder(parent)
        gathered = [self._attached(child) for child in children]
        for child in gathered:
            self._loose(child)
            if child.segment != above.segment or child in [above, *self.above(above)]:
                raise Refused("not below this parent")
            if any(other in self.above(child) for other in gathered) or children.count(child.index) > 1:
                raise Refused("gathered twice")
        index = self._next(above.segment)
        before = children[0] if gathered and gathered[0].parent == above.index else None
        self._create(Page(index, above.segment, folder=True, name=self._name(name)), above, pinned, before)
        for child in gathered:
            self._leave(child.index)
            self._put(self.state.pages[child.index], index)
        return index

    def add_page(
        self,
        index: str,
        parent: str,
        *,
        folder: bool,
        name: str,
        detail: str,
        lifecycle: Lifecycle,
        visibility: Visibility,
        pinned: bool | None,
    ) -> str:
        above = self._folder(parent)
        segment, _, number = index.rpartition("-")
        if segment != above.segment or self.state.page_record(index) is not None or lifecycle == COLD:
            raise Refused("not a new index of this segment")
        self.counters[segment] = max(self.counters[segment], int(number) + 1)
        page = Page(
            index,
            segment,
            folder=folder,
            name=self._name(name),
            detail=detail,
            lifecycle=lifecycle,
            visibility=visibility,
        )
        return self._create(page, above, pinned)

    def update_page(self, index: str, name: str | None, description: str | None) -> None:
        page = self._attached(index)
        self._set(
            replace(
                page,
                name=page.name if name is None else self._name(name),
                description=page.description if description is None else self._line(description),
            )
        )

    def set_detail(self, index: str, detail: str) -> None:
        if self._attached(index).folder:
            raise Refused("a folder has no detail")
        self._change(index, detail=detail)

    def move_page(self, source: str, target: str, before: str | None) -> dict[str, str]:
        page, above = self._attached(source), self._folder(target)
        target = above.index
        self._loose(page)
        if page in [above, *self.above(above)]:
            raise Refused("into its own subtree")
        siblings = self.children(target)
        if before is not None and before not in siblings:
            raise Refused("before is no child of the target")
        if page.parent == target:
            following = [*siblings, None][siblings.index(source) + 1]
            if before in (source, following):
                return {}
        if page.segment == above.segment:
            self._leave(source)
            self._put(self.state.pages[source], target, before)
            return {}
        return self._emigrate(page, above, before)

    def _emigrate(self, page: Page, above: Page, before: str | None) -> dict[str, str]:
        """Give a whole subtree new indices; the old ones refer to the new ones."""
        moved = self.below(page)
        indices = {old.index: self._next(above.segment) for old in moved}
        pinned = self._in_system(above)
        for old in moved:
            new = replace(old, index=indices[old.index], segment=above.segment)
            if pinned:
                new = replace(new, pinned=True, lifecycle=ACTIVE, visibility=EXPANDED)
            self._drop(old.index, moved_to=new.index)
            first = old.index == page.index
            self._put(new, above.index if first else indices[old.parent or ""], before if first else None)
            if old.folder:
                self.state.orders[new.index] = []
        if pinned:
            self._open(above.index)
        return indices

    def remove_page(self, index: str) -> int:
        page = self._attached(index)
        self._loose(page)
        pages = self.below(page)
        for old in pages:
            self._drop(old.index)
        return len(pages)

    # What is shown

    def expand(self, index: str) -> None:
        page = self._attached(index)
        before = dict(self.state.pages)
        self._open(index)
        if page.segment == self.conversation() and self.state.pages != before and self.state.pages[index] == page:
            self._change(index, opened=self.seq + 1)  # a folder above it was opened: it is the newest page now

    def hide(self, index: str) -> None:
        page = self._attached(index)
        if self.effective(page) != ACTIVE:
            raise Refused("already archived")
        if self.is_root(page) and (self._in_system(page) or page.segment == self.conversation()):
            raise Refused("always shown")
        self._unpinned(page)
        self._change(index, visibility=HIDDEN)

    def archive(self, index: str, *, cold: bool) -> None:
        self._loose(self._attached(index))
        self._change(index, lifecycle=COLD if cold else HOT)

    def restore(self, index: str) -> None:
        self._attached(index)
        self._change(index, lifecycle=ACTIVE)
        self._open_above(index)

    def recall(self, index: str) -> None:
        page = self.page(index)
        top = next((p for p in [page, *self.above(page)] if p.lifecycle == COLD), None)
        if top is None:
            return
        home = self.home(top)
        if home == top.parent:  # it kept its place in the list
            self._change(top.index, lifecycle=ACTIVE)
        elif home is not None:
            self._leave(top.index)
            self._put(replace(top, lifecycle=ACTIVE), home)

    def pin(self, index: str) -> None:
        self._attached(index)
        self._change(index, pinned=True)
        self._open(index)

    def unpin(self, index: str) -> None:
        self._attached(index)
        self._change(index, pinned=False)

    # History and documents

    def undo(self, seq: int) -> None:
        """Restore the records of entry `seq`, unless a later entry touched them or the result breaks a rule."""
        if not 0 < seq <= self.seq:
            raise Refused("no such entry")
        entry = self.entries[seq - 1]
        touched = [*(("page", index) for index in entry.pages), *(("segment", name) for name in entry.segments)]
        standing = {key: self._standing(key, seq) for key in touched}
        later = {now if now > seq else self.changed[key] for key, now in standing.items() if now != seq}
        if later:
            raise Refused("changed later", *(f"entry {number} " for number in later))
        present, conversation = self.state.copy(), self.conversation()
        backward = {gone.moved_to: i for i, gone in present.gone.items() if gone.moved_to and i in entry.pages}
        for name, segment in entry.segments.items():
            self._revert_segment(name, segment)
        for index, old in entry.pages.items():
            if not isinstance(old, Page) and index in self.state.pages:
                self._drop(index, moved_to=old.moved_to if old else backward.get(index))
        put_back = [old for old in entry.pages.values() if isinstance(old, Page) and self._revert_page(old)]
        self._put_back(put_back, entry)
        if self.state == present:
            raise Refused("nothing to undo: pins and permissions are not brought back")
        whole = self._first_operation(entry) == "unmarshal"
        if whole:
            self._unpin_what_is_not_shown(entry.pages)
        self._judge()
        if not whole:
            self._keeps_pins_and_conversation(present, conversation)

    def _standing(self, record: tuple[str, str], wanted: int) -> int:
        """Return the entry that last changed a record. Undos, and what no undo reverts, count as the one before."""
        kind, name = record
        now = self.changed[record]
        found: Record = self.state.page_record(name) if kind == "page" else self.state.segments.get(name)
        while now not in (wanted, 0):
            entry = self.entries[now - 1]
            undone = self.entries[entry.undoes - 1] if entry.undoes is not None else entry
            if record not in undone.previous:
                break
            before: Record = undone.pages[name] if kind == "page" else undone.segments[name]
            if undone is entry and not _differ_in_security(before, found):
                break
            now, found = undone.previous[record], before
        return now

    def _unpin_what_is_not_shown(self, indices: Iterable[str]) -> None:
        """A document can always be undone: a pin that it set on a page that was not shown before is removed with it."""
        for page in [self.state.pages[index] for index in indices if index in self.state.pages]:
            if page.pinned and (self.effective(page) != ACTIVE or page.visibility != EXPANDED):
                self._change(page.index, pinned=False)

    def _first_operation(self, entry: Entry) -> str:
        while entry.undoes is not None:
            entry = self.entries[entry.undoes - 1]
        return entry.operation

    def _revert_segment(self, name: str, old: Segment | None) -> None:
        now = self.state.segments[name]
        if old is None:
            self.state.segments[name] = replace(now, live=False)
            return
        permission = now.permission
        if old.added != now.added:  # two segments with one id: neither gives rights to the other
            permission = min(old.permission, now.permission, key=RIGHTS.index)
        self.state.segments[name] = replace(old, permission=permission)

    def _revert_page(self, old: Page) -> bool:
        """Give a page its old fields. Return whether its place must be determined."""
        now = self.state.pages.get(old.index)
        if now is not None:
            old = replace(old, pinned=now.pinned, opened=now.opened)
            if now.place == old.place:
                self._set(old)
                return False
            self._leave(old.index)
        self._set(old)
        if old.folder:
            self.state.orders.setdefault(old.index, [])
        return old.parent is not None

    def _put_back(self, pages: list[Page], entry: Entry) -> None:
        """Put pages back among their old siblings; if new pages are between those, any place is accepted."""
        for folder in {page.parent for page in pages if page.parent is not None}:
            order = self.state.orders.setdefault(folder, [])
            kept = list(order)
            old = entry.orders.get(folder, [])
            back = {page.index for page in pages if page.parent == folder}
            stable = [i for i in old if i in back or (i in kept and self._stands_since(i, entry))]
            for index in old:
                if index in back:
                    left = [i for i in stable[: stable.index(index)] if i in order]
                    order.insert(order.index(left[-1]) + 1 if left else 0, index)
            self.unsettled[folder] = Unsettled(kept, stable)

    def _stands_since(self, index: str, entry: Entry) -> bool:
        """Return whether a page was never moved after the entry."""
        place = self.state.pages[index].place
        later = self.entries[entry.seq :]
        olds = (later_entry.pages.get(index) for later_entry in later)
        return all(isinstance(old, Page) and old.place == place for old in olds if old is not None)

    def settle(self, actual: Orders) -> None:
        """Accept the order that the system chose for restored pages, if it is correct."""
        for folder, must in self.unsettled.items():
            if folder not in self.state.pages:
                continue
            order = actual[folder]
            assert sorted(order) == sorted(self.state.orders[folder]), folder
            assert [i for i in order if i in must.kept] == must.kept, f"{folder}: an undo disturbed the others"
            assert [i for i in order if i in must.before] == must.before, f"{folder}: not between its old neighbours"
            self.state.orders[folder] = list(order)
        self.unsettled.clear()

    def _judge(self) -> None:
        """Refuse a state that breaks a rule of the contract."""
        live = {segment.id for segment in self.live_segments()}
        if "" in live and len(live) > 1:
            raise Refused("the empty id stands alone")
        self._conversation_is_visible()
        if any(self.root(name) not in self.state.pages for name in live):
            raise Refused("a segment without a root")
        for page in self.state.pages.values():
            self._judge_page(page, live)

    def _judge_page(self, page: Page, live: Iterable[str]) -> None:
        if page.segment not in live:
            raise Refused("a page without a segment")
        if page.parent is not None and page.lifecycle != COLD:
            parent = self.state.pages.get(page.parent)
            if parent is None or not parent.folder or parent.segment != page.segment:
                raise Refused("a page without a folder")
        effective = self.effective(page)
        if page.pinned and (effective != ACTIVE or page.visibility != EXPANDED):
            raise Refused("a pinned page is shown whole")
        fixed = self._in_system(page) or page.segment == self.conversation()
        if self.is_root(page) and fixed and page.visibility == HIDDEN:
            raise Refused("this root is always shown")

    def _keeps_pins_and_conversation(self, present: State, conversation: str | None) -> None:
        """Refuse an undo that removes or moves a pinned page, or makes another segment the conversation."""
        if conversation is not None and self.conversation() != conversation:
            raise Refused("the conversation stays")
        after, self.state = self.state, present
        try:
            held = [page for page in present.pages.values() if any(p.pinned for p in self.below(page))]
        finally:
            self.state = after
        for page in held:
            now = after.pages.get(page.index)
            if now is None or now.parent != page.parent:
                raise Refused("pinned")

    def saved(self) -> Saved:
        return Saved(self.state.copy(), dict(self.counters))

    def load(self, saved: Saved) -> None:
        """Replace everything with a document."""
        document = saved.state.copy()
        for index in list(self.state.pages):
            del self.state.pages[index]
            self.state.gone[index] = Gone()
        self.state.orders = {i: order for i, order in document.orders.items() if i in document.pages}
        for segment in self.live_segments():
            self.state.segments[segment.id] = replace(segment, live=False)
        for segment in sorted(document.segments.values(), key=lambda s: s.added):
            if segment.live:
                self.state.segments[segment.id] = replace(segment, added=self._tick())
                mine = self.counters.get(segment.id, 1)
                self.counters[segment.id] = max(mine, saved.counters[segment.id])
        for page in document.pages.values():
            self._set(replace(page, place=self._tick()))
        for segment in self.live_segments():
            for index in self.lost(segment.id):
                self._change(index, parent=self.root(segment.id))
                self.state.orders[self.root(segment.id)].append(index)


def _differ_in_security(one: Record, other: Record) -> bool:
    """Return whether two states of a record differ at most in what no undo reverts: pin, permission, opening."""
    if isinstance(one, Page) and isinstance(other, Page):
        return replace(one, pinned=other.pinned, opened=other.opened) == other
    if isinstance(one, Segment) and isinstance(other, Segment):
        return replace(one, permission=other.permission) == other
    return False
