"""The state of the oracle of conversations: messages, pages, batches, entries; how to read and change one of them.

`model.py` has the operations.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from tests.model_values import Lifecycle, Mark, Visibility

T = TypeVar("T")

ACTIVE, HOT, COLD = Lifecycle.ACTIVE, Lifecycle.HOT_ARCHIVED, Lifecycle.COLD_ARCHIVED
EXPANDED, HIDDEN = Visibility.EXPANDED, Visibility.HIDDEN
PROMPT = "System prompt"


class Refused(Exception):
    """The contract refuses this; the error must contain one of `names`, if there are any."""

    def __init__(self, why: str, *names: str) -> None:
        super().__init__(why)
        self.names = names


class Said(NamedTuple):
    """A message as it was added."""

    role: str
    content: str | None
    calls: tuple[str, ...] = ()
    answers: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Page:
    """An exchange, a prompt, or a summary. A summary has no numbers, but the count of its messages."""

    index: str
    form: str
    numbers: tuple[int, ...] = ()
    name: str = ""
    mark: Mark = Mark.NONE
    standin: str | None = None
    lifecycle: Lifecycle = ACTIVE
    visibility: Visibility = EXPANDED
    pinned: bool = False
    closed: bool = False
    summarises: int = 0
    written: int = 0

    @property
    def segment(self) -> str:
        return self.index.partition("-")[0]

    @property
    def attached(self) -> bool:
        return self.lifecycle != COLD


class Batch(NamedTuple):
    """An open batch: the number of its first message, and the entry that opened it."""

    boundary: int
    seq: int


Orders = dict[str, list[str]]
Record = tuple[str, object]
"""A record that undo compares: a page, the list of batches, a checkpoint."""


@dataclass
class State:
    """Everything that a commit can change, except data that only grows."""

    pages: dict[str, Page] = field(default_factory=dict)
    orders: Orders = field(default_factory=lambda: {"sys": [], "usr": []})
    batches: tuple[Batch, ...] = ()
    checkpoints: dict[int, str] = field(default_factory=dict)

    def copy(self) -> "State":
        orders = {segment: list(order) for segment, order in self.orders.items()}
        return State(dict(self.pages), orders, self.batches, dict(self.checkpoints))

    def records(self) -> dict[Record, object]:
        found: dict[Record, object] = {("page", index): page for index, page in self.pages.items()}
        found |= {("checkpoint", seq): name for seq, name in self.checkpoints.items()}
        return found | {("batches", None): self.batches}


@dataclass(frozen=True)
class Entry:
    """One journal entry: the earlier value of every record that it touched."""

    operation: str
    touched: dict[Record, object]
    undoes: int | None = None
    previous: dict[Record, int] = field(default_factory=dict)

    @property
    def pages(self) -> set[object]:
        return {key for kind, key in self.touched if kind == "page"}


@dataclass(frozen=True)
class Unsettled:
    """A segment with restored pages: the conditions for the order that the system chose."""

    kept: list[str]
    before: list[str]


class Change(NamedTuple):
    """The reported effect of a modification."""

    covered: tuple[int, ...] = ()
    inserted: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    summaries: tuple[str, ...] = ()
    batch: int = 0
    boundary: int | None = None


@dataclass
class Turn:
    """A turn: the last entry before it, its key, how many messages it added, and an earlier turn with its key."""

    start: int
    key: str = ""
    keep: bool = False
    added: int = 0
    known: int = 0


class Kept:
    """The whole context."""

    def __init__(self, seq: int = 1) -> None:
        self.state = State()
        self.messages: list[Said] = []
        self.home: list[str] = []
        self.arrived: list[int] = []
        self.ids: dict[int, str] = {}
        """The ids of messages, by their numbers."""
        self.turn: Turn | None = None
        self.finished: dict[str, tuple[bool, int]] = {}
        """The turns with a key that ended: whether they finished, and how many messages they added."""
        self.destroyed: frozenset[int] = frozenset()
        self.counters = {"sys": 1, "usr": 1}
        self.callers: dict[str, tuple[str, ...]] = {}
        self.seq = seq
        self.horizon = 0
        self.in_block = 0
        self.entries: dict[int, Entry] = {}
        self.changed: dict[Record, int] = {}
        self.states: dict[int, State] = {seq: self.state.copy()}
        self.unsettled: dict[str, Unsettled] = {}

    # All or nothing

    def do(self, operation: str, action: Callable[[], T], undoes: int | None = None, *, always: bool = False) -> T:
        """Run one operation completely or not at all, and add an entry if it changed anything, or `always`."""
        with self.all_or_nothing():
            before, destroyed = self.state.copy(), self.destroyed
            result = action()
        old, new = before.records(), self.state.records()
        touched = {key: old.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        if touched or always or destroyed != self.destroyed:
            self.seq += 1
            previous = {record: self.changed.get(record, 0) for record in touched}
            self.entries[self.seq] = Entry(operation, touched, undoes, previous)
            self.changed |= dict.fromkeys(touched, self.seq)
            self.states[self.seq] = self.state.copy()
            if destroyed != self.destroyed:
                self.horizon = self.seq
        return result

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Revert everything if the block is refused."""
        saved = self._saved()
        try:
            yield
        except Refused:
            self.take_over(saved)
            self.unsettled.clear()
            raise

    def _saved(self) -> dict[str, Any]:
        copies = {name: value.copy() for name, value in vars(self).items() if isinstance(value, dict | list | State)}
        return {**vars(self), **copies}

    def take_over(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)

    # Reading

    def alive(self) -> list[int]:
        """Return the numbers of all remaining messages: the position of each is its index."""
        return [number for number in range(len(self.messages)) if number not in self.destroyed]

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

    def known(self, message_id: str) -> int | None:
        """Return the message of the conversation with an id."""
        for number in reversed([number for number, known in self.ids.items() if known == message_id]):
            page = None if number in self.destroyed else self.page_of(number)
            if page is not None and not page.mark and number in page.numbers:
                return number
        return None

    def mark_of(self, number: int) -> Mark:
        page = self.page_of(number)
        if page is None:
            return Mark.REMOVED
        return page.mark or (Mark.NONE if number in page.numbers else Mark.REPLACED)

    def attached(self, segment: str) -> list[Page]:
        pages = (self.state.pages[index] for index in self.state.orders[segment])
        return [page for page in pages if page.attached]

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
        talk = [page for page in self.attached("usr") if page.form in ("user", "assistant")]
        last = talk[-1] if talk else None
        return last if last and self.pending(last) and not last.closed else None

    def pending_calls(self) -> list[str]:
        page = self.open_exchange()
        return self.pending(page) if page else []

    def boundaries(self) -> list[int]:
        alive = [*self.alive(), len(self.messages)]
        return [0, *(alive.index(batch.boundary) for batch in self.state.batches)]

    # Single changes

    def _set(self, page: Page) -> None:
        self.state.pages[page.index] = page

    def _change(self, page: Page, **fields: Any) -> None:
        self._set(replace(self.state.pages[page.index], **fields))

    def _drop(self, page: Page) -> None:
        self.state.orders[page.segment].remove(page.index)
        del self.state.pages[page.index]

    def _next(self, segment: str) -> str:
        self.counters[segment] += 1
        return f"{segment}-{self.counters[segment] - 1}"

    def _put(self, page: Page, before: str | None = None) -> None:
        order = self.state.orders[page.segment]
        order.insert(len(order) if before is None else order.index(before), page.index)
        self._set(page)

    def _store(self, said: Said, page: str) -> int:
        self.messages.append(said)
        self.home.append(page)
        self.arrived.append(self.seq + 1)
        return len(self.messages) - 1

    def _add(self, said: Said, segment: str, before: str | None, **fields: Any) -> int:
        index = self._next(segment)
        number = self._store(said, index)
        form = "prompt" if segment == "sys" else said.role
        self._put(Page(index, form, (number,), **fields), before)
        for call in said.calls:
            self.callers[call] = (*self.callers.get(call, ()), index)
        return number
