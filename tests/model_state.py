"""The state of the oracle of the state machine: pages, segments, a journal; how to read and change one of them.

`tests/oracle.py` has the operations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tests.model_values import Lifecycle, Permission, SegmentType, Visibility

T = TypeVar("T")

ACTIVE, HOT, COLD = Lifecycle.ACTIVE, Lifecycle.HOT_ARCHIVED, Lifecycle.COLD_ARCHIVED
EXPANDED, HIDDEN = Visibility.EXPANDED, Visibility.HIDDEN


class Refused(Exception):
    """The contract refuses this; the error must contain one of `names`, if there are any."""

    def __init__(self, why: str, *names: str) -> None:
        super().__init__(why)
        self.names = names


@dataclass(frozen=True)
class Page:
    """A page. `place` is a new number each time the page is put somewhere; it does not define an order."""

    index: str
    segment: str
    folder: bool
    name: str
    description: str = ""
    detail: str = ""
    parent: str | None = None
    place: int = 0
    lifecycle: Lifecycle = ACTIVE
    visibility: Visibility = EXPANDED
    pinned: bool = False
    opened: int = 0
    """The entry that opened a folder above it for it."""


@dataclass(frozen=True)
class Segment:
    """A segment; a removed one stays with `live` False. `added` orders the display."""

    id: str
    name: str
    description: str
    type: SegmentType
    permission: Permission
    capacity: int
    added: int
    live: bool = True


@dataclass(frozen=True)
class Gone:
    """The remains of a removed page."""

    moved_to: str | None = None


Record = Page | Gone | Segment | None
Orders = dict[str, list[str]]


@dataclass
class Entry:
    """One journal entry: the earlier value of every record that it touched, and the order of all folders then."""

    seq: int
    operation: str
    pages: dict[str, Page | Gone | None]
    segments: dict[str, Segment | None]
    orders: Orders
    undoes: int | None = None
    previous: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class State:
    """Everything that a commit can change, except the counters, which only grow."""

    pages: dict[str, Page] = field(default_factory=dict)
    gone: dict[str, Gone] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    orders: Orders = field(default_factory=dict)

    def copy(self) -> "State":
        return State(
            dict(self.pages), dict(self.gone), dict(self.segments), {k: list(v) for k, v in self.orders.items()}
        )

    def page_record(self, index: str) -> Page | Gone | None:
        return self.pages.get(index) or self.gone.get(index)


@dataclass(frozen=True)
class Saved:
    """A document: its state and the counters at that time."""

    state: State
    counters: dict[str, int]


@dataclass
class Unsettled:
    """A folder into which an undo put pages back: the conditions for the order that the system chose."""

    kept: list[str]
    before: list[str]


class Kept:
    """The whole context."""

    def __init__(self) -> None:
        self.state = State()
        self.entries: list[Entry] = []
        self.changed: dict[tuple[str, str], int] = {}
        self.counters: dict[str, int] = {}
        self.stored_counters: dict[str, int] = {}
        self.unsettled: dict[str, Unsettled] = {}
        self._ticks = 0

    @property
    def seq(self) -> int:
        return len(self.entries)

    def do(self, operation: str, action: Callable[[], T], undoes: int | None = None) -> T:
        """Run one operation completely or not at all, and add an entry if it changed anything."""
        before, counters = self.state.copy(), dict(self.counters)
        try:
            result = action()
        except Refused:
            self.state, self.counters = before, counters
            self.unsettled.clear()
            raise
        indices = self.state.pages.keys() | self.state.gone.keys() | before.pages.keys() | before.gone.keys()
        pages = {
            index: before.page_record(index)
            for index in indices
            if before.page_record(index) != self.state.page_record(index)
        }
        segments = {
            name: before.segments.get(name)
            for name, segment in self.state.segments.items()
            if before.segments.get(name) != segment
        }
        if not pages and not segments:
            self.state = before
            return result
        touched = [*(("page", index) for index in pages), *(("segment", name) for name in segments)]
        previous = {record: self.changed.get(record, 0) for record in touched}
        self.entries.append(Entry(self.seq + 1, operation, pages, segments, before.orders, undoes, previous))
        self.changed |= {("page", index): self.seq for index in pages}
        self.changed |= {("segment", name): self.seq for name in segments}
        self.stored_counters = dict(self.counters)
        return result

    # Looking

    def live_segments(self) -> list[Segment]:
        return sorted((s for s in self.state.segments.values() if s.live), key=lambda s: s.added)

    def segment(self, name: str) -> Segment:
        found = self.state.segments.get(name)
        if found is None or not found.live:
            raise Refused(f"no segment {name}")
        return found

    def conversation(self) -> str | None:
        return next((s.id for s in self.live_segments() if s.type == SegmentType.USER), None)

    def page(self, index: str) -> Page:
        found = self.state.pages.get(index)
        if found is None:
            raise Refused(f"no page {index}", *filter(None, [self.forwarding(index)]))
        return found

    def forwarding(self, index: str) -> str | None:
        """Return the current index of a page that moved to another segment."""
        gone, now = self.state.gone.get(index), None
        while gone is not None and gone.moved_to is not None:
            now, gone = gone.moved_to, self.state.gone.get(gone.moved_to)
        return now

    def above(self, page: Page) -> list[Page]:
        """Return the folders above an attached page, nearest first."""
        found: list[Page] = []
        while page.parent is not None and page.lifecycle != COLD and page.parent in self.state.pages:
            page = self.state.pages[page.parent]
            if page in found:
                raise Refused("a cycle")
            found.append(page)
        return found

    def below(self, page: Page) -> list[Page]:
        """Return the page and all attached pages below it, parents first."""
        found = [page]
        for child in self.children(page.index):
            found += self.below(self.state.pages[child])
        return found

    def children(self, folder: str) -> list[str]:
        return [index for index in self.state.orders.get(folder, []) if self.state.pages[index].lifecycle != COLD]

    def effective(self, page: Page) -> Lifecycle:
        chain = self.above(page)
        if any(p.lifecycle == COLD for p in [page, *chain]):
            return COLD
        shown = page.lifecycle == ACTIVE and all(p.lifecycle == ACTIVE and p.visibility == EXPANDED for p in chain)
        return ACTIVE if shown else HOT

    def home(self, page: Page) -> str | None:
        """Return the place to which recall would bring a cold page."""
        if page.lifecycle != COLD or page.parent is None:
            return None
        folder = self.state.pages.get(page.parent)
        return page.parent if folder and self.effective(folder) != COLD else self.root(page.segment)

    def lost(self, segment: str) -> list[str]:
        """Return the cold pages of a segment that have lost their folder, by number."""
        pages = [page for page in self.state.pages.values() if page.segment == segment and page.parent is not None]
        lost = [page.index for page in pages if page.parent not in self.state.pages]
        return sorted(lost, key=lambda index: int(index.rpartition("-")[2]))

    def root(self, segment: str) -> str:
        return f"{segment}-0" if segment else "0"

    def is_root(self, page: Page) -> bool:
        return page.index == self.root(page.segment)

    def _attached(self, index: str) -> Page:
        page = self.page(index)
        if self.effective(page) == COLD:
            raise Refused(f"{index} is cold")
        return page

    def _folder(self, index: str) -> Page:
        """Return a folder in the tree. The id of a segment is its root."""
        is_segment = index and index in [segment.id for segment in self.live_segments()]
        page = self._attached(self.root(index) if is_segment else index)
        if not page.folder:
            raise Refused(f"{index} is no folder")
        return page

    def _loose(self, page: Page) -> None:
        if self.is_root(page):
            raise Refused("a root stays")
        self._unpinned(page)

    def _unpinned(self, page: Page) -> None:
        if any(p.pinned for p in self.below(page)):
            raise Refused("pinned")

    # Changing one thing

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _set(self, page: Page) -> None:
        self.state.pages[page.index] = page
        self.state.gone.pop(page.index, None)

    def _change(self, index: str, **fields: object) -> None:
        self._set(replace(self.state.pages[index], **fields))  # type: ignore[arg-type]

    def _leave(self, index: str) -> None:
        """Remove a page from its folder's list."""
        parent = self.state.pages[index].parent
        if parent is not None and index in self.state.orders.get(parent, []):
            self.state.orders[parent].remove(index)

    def _put(self, page: Page, folder: str, before: str | None = None) -> None:
        """Put a page into a folder, at its end or directly before a sibling."""
        order = self.state.orders.setdefault(folder, [])
        order.insert(len(order) if before is None else order.index(before), page.index)
        self._set(replace(page, parent=folder, place=self._tick()))

    def _drop(self, index: str, moved_to: str | None = None) -> None:
        self._leave(index)
        del self.state.pages[index]
        self.state.gone[index] = Gone(moved_to)

    def _open(self, index: str) -> None:
        """Open a page and everything above it."""
        self._change(index, lifecycle=ACTIVE, visibility=EXPANDED)
        self._open_above(index)

    def _open_above(self, index: str) -> None:
        for page in self.above(self.state.pages[index]):
            self._change(page.index, lifecycle=ACTIVE, visibility=EXPANDED)

    def _next(self, segment: str) -> str:
        number = self.counters[segment]
        self.counters[segment] = number + 1
        return f"{segment}-{number}" if segment else str(number)

    def _in_system(self, page: Page) -> bool:
        return self.state.segments[page.segment].type == SegmentType.SYSTEM
