"""The operations of the plain model on pages, segments and windows, and what an agent may do."""

import json
from collections.abc import Sequence
from dataclasses import replace

from quire import Lifecycle, Permission, SegmentType, Visibility
from tests.machine.state import ACTIVE, COLD, EXPANDED, HIDDEN, HOT, TALK, Kept, Page, Refused, Segment

WRITABLE = (Permission.READ_WRITE, Permission.SYSTEM_MANAGED)


class PageModel(Kept):
    """Segments, pages and windows."""

    # Segments

    def add_segment(self, name: str, kind: SegmentType, permission: Permission, capacity: int = 0) -> None:
        if name in self.state.segments or not name:
            raise Refused("the id is taken, or empty among others")
        self.state.segments[name] = Segment(name, kind, permission, capacity, name, added=self.tick())
        self.counters.setdefault(name, 1)
        self.state.pages[self.root(name)] = Page(self.root(name), name, folder=True, name=name)
        self.state.orders[self.root(name)] = []

    def remove_segment(self, name: str) -> int:
        self.segment(name)
        pages = [page for page in self.state.pages.values() if page.segment == name]
        if name == "usr" or any(page.pinned for page in pages):
            raise Refused("it holds the conversation or a pinned page")
        for page in pages:
            self.drop(page)
        del self.state.segments[name]
        return len(pages)

    def update_segment(self, name: str, new_name: str | None, description: str | None, capacity: int | None) -> None:
        segment = self.segment(name)
        self.state.segments[name] = replace(
            segment,
            name=segment.name if new_name is None else new_name,
            description=segment.description if description is None else description,
            capacity=segment.capacity if capacity is None else capacity,
        )

    def set_permission(self, name: str, permission: Permission) -> None:
        self.state.segments[name] = replace(self.segment(name), permission=permission)
        if name == "usr" and permission == Permission.PRIVATE:
            raise Refused("the conversation is never private")

    # Texts and folders

    def _attached(self, index: str) -> Page:
        page = self.page(index)
        if page.marked or self.effective(page) == COLD:
            raise Refused("cold")
        return page

    def _folder(self, index: str) -> Page:
        """Return a folder in the tree. The id of a segment is its root."""
        page = self._attached(self.root(index) if index in self.state.segments else index)
        if not page.folder:
            raise Refused("no folder")
        return page

    def _loose(self, page: Page) -> None:
        """Refuse a root, a pinned page or a folder above one, and an exchange that waits for results."""
        if self.is_root(page):
            raise Refused("a root stays")
        self._unpinned(page)

    def _unpinned(self, page: Page) -> None:
        if any(inner.pinned or inner == self.open_exchange() for inner in self.below(page)):
            raise Refused("pinned or open")

    def _name(self, name: str) -> str:
        if not name.strip():
            raise Refused("an empty name")
        return self._line(name, 200)

    def _line(self, text: str, limit: int = 2_000) -> str:
        if len(text) > limit or "\0" in text:
            raise Refused("not one line of text")
        return text.replace("\n", " ")

    def _create(self, page: Page, parent: Page, pinned: bool | None, before: str | None = None) -> str:
        pin = self.in_system(parent) if pinned is None else pinned
        self.put(replace(page, pinned=pin), parent.index, before)
        if pin:
            self.open(page)
        return page.index

    def create_detail_page(self, name: str, description: str, detail: str, parent: str, pinned: bool | None) -> str:
        above = self._folder(parent)
        page = Page(self.next(above.segment), above.segment, name=self._name(name), detail=detail)
        return self._create(replace(page, description=self._line(description)), above, pinned)

    def create_contents_page(self, name: str, parent: str, children: Sequence[str], pinned: bool | None) -> str:
        above = self._folder(parent)
        gathered = [self._attached(child) for child in children]
        for child in gathered:
            self._loose(child)
            if child.segment != above.segment or child in [above, *self.above(above)]:
                raise Refused("not below this parent")
            if any(other in self.above(child) for other in gathered) or children.count(child.index) > 1:
                raise Refused("gathered twice")
        page = Page(self.next(above.segment), above.segment, folder=True, name=self._name(name))
        before = children[0] if gathered and gathered[0].parent == above.index else None
        self._create(page, above, pinned, before)
        for child in gathered:
            self.leave(child)
            self.put(self.state.pages[child.index], page.index)
        return page.index

    def add_page(self, page: Page, parent: str, *, pinned: bool | None) -> str:
        """Add a page with its own index, which was never used."""
        above = self._folder(parent)
        number = int(page.index.rpartition("-")[2])
        if page.segment != above.segment or page.index in self.used or page.lifecycle == COLD:
            raise Refused("not a new index of this segment")
        self.counters[page.segment] = max(self.counters[page.segment], number + 1)
        return self._create(replace(page, name=self._name(page.name)), above, pinned)

    def update_page(self, index: str, name: str | None, description: str | None) -> None:
        page = self._attached(index)
        self.change(
            page,
            name=page.name if name is None else self._name(name),
            description=page.description if description is None else self._line(description),
        )

    def set_detail(self, index: str, detail: str) -> None:
        page = self._attached(index)
        if page.folder or page.role:
            raise Refused("it has no text of its own")
        self.change(page, detail=detail)

    def move_page(self, source: str, target: str, before: str | None) -> dict[str, str]:
        page, above = self._attached(source), self._folder(target)
        self._loose(page)
        if page in [above, *self.above(above)]:
            raise Refused("into its own subtree")
        siblings = self.children(above.index)
        if before is not None and before not in siblings:
            raise Refused("before is no child of the target")
        if page.parent == above.index:
            following = [*siblings, None][siblings.index(source) + 1]
            if before in (source, following):
                return {}
        if page.segment == above.segment:
            self.leave(page)
            self.put(page, above.index, before)
            return {}
        if any(inner.role for inner in self.below(page)):
            raise Refused("messages and windows stay in their segment")
        return self._emigrate(page, above, before)

    def _emigrate(self, page: Page, above: Page, before: str | None) -> dict[str, str]:
        """Give a whole subtree new indices; the old ones refer to the new ones."""
        moved = self.below(page)
        indices = {old.index: self.next(above.segment) for old in moved}
        self.moves |= indices
        pinned = self.in_system(above)
        for old in moved:
            new = replace(old, index=indices[old.index], segment=above.segment)
            if pinned:
                new = replace(new, pinned=True, lifecycle=ACTIVE, visibility=EXPANDED)
            self.drop(old)
            first = old is page
            self.put(new, above.index if first else indices[old.parent or ""], before if first else None)
        if pinned:
            self.open(above)
        return indices

    def remove_page(self, index: str) -> int:
        page = self._attached(index)
        self._loose(page)
        pages = self.below(page)
        for old in pages:
            self.drop(old)
        return len(pages)

    # What is shown

    def expand(self, index: str) -> None:
        self.open(self._attached(index))
        self.opened[index] = True

    def restore(self, index: str) -> None:
        page = self._attached(index)
        self.change(page, lifecycle=ACTIVE)
        self.opened[index] = True
        for folder in self.above(page):
            self.change(folder, lifecycle=ACTIVE, visibility=EXPANDED)

    def hide(self, index: str, *, folded: bool = False) -> None:
        """Hide a page; one below a folded chapter is archived already."""
        page = self._attached(index)
        if self.effective(page) != ACTIVE or folded:
            raise Refused("already archived")
        if self.is_root(page) and (self.in_system(page) or page.index == TALK):
            raise Refused("always shown")
        self._unpinned(page)
        self.change(page, visibility=HIDDEN)
        self.by_fold.pop(index, None)

    def archive(self, index: str, *, cold: bool) -> None:
        page = self._attached(index)
        self._loose(page)
        self.change(page, lifecycle=COLD if cold else HOT)

    def recall(self, index: str) -> None:
        page = self.page(index)
        if page.marked:
            raise Refused("not in the archive")
        top = next((each for each in [page, *self.above(page)] if each.lifecycle == COLD), None)
        if top is None:
            return
        self.opened[top.index] = True
        home = self.home_of(top)
        if home == top.parent:  # it kept its place in the list
            self.change(top, lifecycle=ACTIVE)
        elif home is not None:
            self.leave(top)
            self.put(replace(top, lifecycle=ACTIVE), home)

    def pin(self, index: str) -> None:
        page = self._attached(index)
        self.change(page, pinned=True)
        self.open(page)

    def unpin(self, index: str) -> None:
        self.change(self._attached(index), pinned=False)

    # Windows

    def open_window(self, window: str, text: str) -> None:
        if any(page.name == window for page in self.state.pages.values() if page.role == "window"):
            raise Refused("the id is taken")
        page = Page(self.next("win"), "win", name=window, description="A pad", role="window", detail=json_text(text))
        self._create(page, self.page("win-0"), pinned=False)

    def _window(self, window: str) -> Page:
        pages = [page for page in self.state.pages.values() if page.role == "window" and page.name == window]
        if not pages:
            raise Refused("no such window")
        return pages[0]

    def write_window(self, window: str, text: str) -> None:
        page = self._window(window)
        if page.closed:
            raise Refused("closed")
        self.change(page, detail=json_text(text))

    def close_window(self, window: str, summary: str) -> None:
        page = self._window(window)
        if page.pinned:
            raise Refused("pinned")
        if not page.closed:
            self.change(page, closed=True, lifecycle=HOT, description=summary, detail=summary)

    # The agent

    def allow(self, index: str, *, writing: bool, hiding: bool = False) -> None:
        """Refuse what an agent may not do with this page."""
        page = self._attached(self.root(index) if index in self.state.segments else index)
        permission = self.state.segments[page.segment].permission
        if permission == Permission.PRIVATE or (writing and permission not in WRITABLE):
            raise Refused("no right")
        if page.pinned and (writing or hiding):
            raise Refused("pinned")


def json_text(text: str) -> str:
    """Return the state that a pad saves, as its page has it."""
    return json.dumps(text, ensure_ascii=False)


def text_page(index: str, folder: bool, name: str, detail: str, life: Lifecycle, shown: Visibility) -> Page:
    """Return a page as `add_page` gets it."""
    segment = index.rpartition("-")[0]
    detail = "" if folder else detail
    return Page(index, segment, folder=folder, name=name, detail=detail, lifecycle=life, visibility=shown)
