"""The state of the plain model: pages, segments, batches and messages in dicts and lists, and a copy for every entry.

`pages.py` and `messages.py` have the operations, `model.py` the ways back and whole contexts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from quire import Lifecycle, Permission, SegmentType, Visibility

T = TypeVar("T")

ACTIVE, HOT, COLD = Lifecycle.ACTIVE, Lifecycle.HOT_ARCHIVED, Lifecycle.COLD_ARCHIVED
EXPANDED, HIDDEN = Visibility.EXPANDED, Visibility.HIDDEN
PROMPT = "System prompt"
TALK = "usr-0"
"""The root of the conversation."""


class Refused(Exception):
    """The model refuses this."""


class Said(NamedTuple):
    """A message as it was added."""

    role: str
    content: str | None
    calls: tuple[str, ...] = ()
    answers: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Page:
    """A page. One of the conversation has a role, and the numbers of its messages; a summary has no numbers."""

    index: str
    segment: str
    folder: bool = False
    name: str = ""
    description: str = ""
    detail: str = ""
    parent: str | None = None
    lifecycle: Lifecycle = ACTIVE
    visibility: Visibility = EXPANDED
    pinned: bool = False
    role: str = ""
    numbers: tuple[int, ...] = ()
    mark: str = "NONE"
    standin: str | None = None
    closed: bool = False
    written: int = 0
    """A new number each time that a summary is written or a page is put somewhere: the record has changed."""

    @property
    def marked(self) -> bool:
        return self.mark != "NONE"


@dataclass(frozen=True)
class Segment:
    """A segment. `added` orders the display."""

    id: str
    type: SegmentType
    permission: Permission
    capacity: int
    name: str
    description: str = ""
    added: int = 0


class Batch(NamedTuple):
    """An open batch: the number of its first message, and the entry that opened it."""

    boundary: int
    seq: int


@dataclass
class State:
    """Everything that a commit can change, except data that only grows. An order has the cold pages at their places."""

    pages: dict[str, Page] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    orders: dict[str, list[str]] = field(default_factory=dict)
    batches: tuple[Batch, ...] = ()
    checkpoints: dict[int, str] = field(default_factory=dict)
    destroyed: frozenset[int] = frozenset()

    def copy(self) -> "State":
        orders = {folder: list(order) for folder, order in self.orders.items()}
        return replace(
            self,
            pages=dict(self.pages),
            segments=dict(self.segments),
            orders=orders,
            checkpoints=dict(self.checkpoints),
        )


@dataclass
class Turn:
    """A turn: the last entry before it, its key, how many messages it added, and an earlier turn with its key."""

    start: int
    key: str = ""
    keep: bool = False
    added: int = 0
    known: int = 0


class Kept:
    """The whole context: how to look at it, and how to change one thing."""

    def __init__(self, seq: int = 1) -> None:
        self.state = State()
        self.messages: list[Said] = []
        self.home: list[str] = []
        """The page with which each message arrived."""
        self.arrived: list[int] = []
        self.ids: dict[int, str] = {}
        self.used: dict[str, bool] = {}
        """The indices of all pages that ever existed here, or in the context of which this is a fork."""
        self.callers: dict[str, tuple[str, ...]] = {}
        self.counters: dict[str, int] = {}
        self.turn: Turn | None = None
        self.finished: dict[str, tuple[bool, int]] = {}
        """The turns with a key that ended: whether they finished, and how many messages they added."""
        self.seq = seq
        self.horizon = seq
        self.in_block = 0
        self.loads: dict[int, bool] = {}
        """The entries that loaded a document, and their undos."""
        self.moves: dict[str, str] = {}
        """The new index of each page that moved to another segment."""
        self.states: dict[int, State] = {}
        self.blocks: list[tuple[int, int]] = []
        """The first and the last entry of each temporary block."""
        self.chapters: dict[str, str] = {}
        """The folder of each page of the conversation, as quire shows it after the last fold."""
        self.by_fold: dict[str, bool] = {}
        """The pages that a fold hid, not the developer."""
        self.loose: dict[str, list[str]] = {}
        """Folders into which an operation put pages back, each with the pages whose order it must keep."""
        self.opened: dict[str, bool] = {}
        """The pages that the user opened since the last fold: the next one leaves them open."""
        self.displaced: dict[str, bool] = {}
        """The pages of the conversation that were cold when a fold was made or taken back."""
        self._ticks = 0

    # All or nothing

    def do(self, action: Callable[[], T], *, always: bool = False) -> T:
        """Run one operation completely or not at all, and add an entry if it changed anything, or `always`."""
        with self.all_or_nothing():
            before = self.state.copy()
            result = action()
        if always or self.state != before:
            self.note_entry()
        return result

    def note_entry(self) -> None:
        """Add an entry with the current state."""
        self.seq += 1
        self.states[self.seq] = self.state.copy()
        self.used |= dict.fromkeys(self.state.pages, True)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Take everything back if the block is refused."""
        saved = self.saved()
        try:
            yield
        except Refused:
            self.take_over(saved)
            raise

    def saved(self) -> dict[str, Any]:
        """Return a copy of everything; entries are not copied, because they never change."""
        copies = {name: value.copy() for name, value in vars(self).items() if isinstance(value, dict | list | State)}
        turn = replace(self.turn) if self.turn else None
        return {**vars(self), **copies, "turn": turn}

    def take_over(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)

    # Segments and pages

    def live_segments(self) -> list[Segment]:
        return sorted(self.state.segments.values(), key=lambda segment: segment.added)

    def segment(self, name: str) -> Segment:
        if name not in self.state.segments:
            raise Refused("no such segment")
        return self.state.segments[name]

    def page(self, index: str) -> Page:
        if index not in self.state.pages:
            raise Refused("no such page")
        return self.state.pages[index]

    def above(self, page: Page) -> list[Page]:
        """Return the folders above an attached page, nearest first."""
        found: list[Page] = []
        while page.parent is not None and page.lifecycle != COLD and page.parent in self.state.pages:
            page = self.state.pages[page.parent]
            found.append(page)
        return found

    def below(self, page: Page) -> list[Page]:
        """Return the page and all attached pages below it, parents first."""
        return [page, *(inner for child in self.children(page.index) for inner in self.below(self.state.pages[child]))]

    def children(self, folder: str) -> list[str]:
        return [index for index in self.state.orders.get(folder, []) if self.state.pages[index].lifecycle != COLD]

    def effective(self, page: Page) -> Lifecycle:
        """Return the lifecycle that follows from the folders above; chapters are not in the model."""
        chain = self.above(page)
        if any(each.lifecycle == COLD for each in [page, *chain]):
            return COLD
        shown = all(each.lifecycle == ACTIVE and each.visibility == EXPANDED for each in chain)
        return ACTIVE if shown and page.lifecycle == ACTIVE else HOT

    def home_of(self, page: Page) -> str | None:
        """Return the folder to which recall would bring a cold page."""
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
        return f"{segment}-0"

    def is_root(self, page: Page) -> bool:
        return page.parent is None

    def in_system(self, page: Page) -> bool:
        return self.state.segments[page.segment].type == SegmentType.SYSTEM

    # Messages

    def alive(self) -> list[int]:
        """Return the numbers of all remaining messages: the position of each is its index."""
        return [number for number in range(len(self.messages)) if number not in self.state.destroyed]

    def number(self, index: int) -> int:
        alive = self.alive()
        if not 0 <= index < len(alive):
            raise Refused("no such message")
        return alive[index]

    def indices(self, numbers: Iterable[int]) -> tuple[int, ...]:
        alive = self.alive()
        return tuple(alive.index(number) for number in numbers)

    def page_of(self, number: int) -> Page | None:
        return self.state.pages.get(self.home[number])

    def mark_of(self, number: int) -> str:
        page = self.page_of(number)
        if page is None:
            return "REMOVED"
        return page.mark if page.marked or number in page.numbers else "REPLACED"

    def attached(self, segment: str) -> list[Page]:
        """Return the pages of a segment that are not cold, in their order."""
        return [page for page in self.below(self.state.pages[self.root(segment)])[1:] if not page.folder]

    def in_place(self) -> list[int]:
        """Return the numbers of all messages of the conversation in their order."""
        return [number for segment in ("sys", "usr") for page in self.attached(segment) for number in page.numbers]

    def pending(self, page: Page) -> list[str]:
        """Return the calls of an exchange without a result."""
        missing = [call for number in page.numbers for call in self.messages[number].calls]
        for number in page.numbers:
            if self.messages[number].answers in missing:
                missing.remove(str(self.messages[number].answers))
        return missing

    def open_exchange(self) -> Page | None:
        talk = [page for page in self.attached("usr") if page.role in ("user", "assistant")]
        last = talk[-1] if talk else None
        return last if last and self.pending(last) and not last.closed else None

    def pending_calls(self) -> list[str]:
        page = self.open_exchange()
        return self.pending(page) if page else []

    def boundaries(self) -> list[int]:
        alive = [*self.alive(), len(self.messages)]
        return [0, *(alive.index(batch.boundary) for batch in self.state.batches)]

    # Single changes

    def tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def change(self, page: Page, **fields: Any) -> None:
        self.state.pages[page.index] = replace(self.state.pages[page.index], **fields)

    def put(self, page: Page, folder: str, before: str | None = None) -> None:
        """Put a page into a folder, at its end or directly before a sibling."""
        order = self.state.orders[folder]
        order.insert(len(order) if before is None else order.index(before), page.index)
        self.state.pages[page.index] = replace(page, parent=folder, written=self.tick())
        if page.folder:
            self.state.orders.setdefault(page.index, [])

    def leave(self, page: Page) -> None:
        """Remove a page from its folder's list."""
        order = self.state.orders.get(page.parent or "", [])
        if page.index in order:
            order.remove(page.index)

    def drop(self, page: Page) -> None:
        self.leave(page)
        del self.state.pages[page.index]

    def next(self, segment: str) -> str:
        self.counters[segment] += 1
        return f"{segment}-{self.counters[segment] - 1}"

    def open(self, page: Page) -> None:
        """Open a page and everything above it."""
        self.change(page, lifecycle=ACTIVE, visibility=EXPANDED)
        for folder in self.above(self.state.pages[page.index]):
            self.change(folder, lifecycle=ACTIVE, visibility=EXPANDED)
