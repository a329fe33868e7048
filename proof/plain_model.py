"""The messages and pages of contexts in plain lists and dicts. It shares no code with quire.

The model knows the state after every entry that changed messages or pages. So `undo`, `rollback` and `fork` take an
earlier state and need no rules of their own, except for pinned pages, which stay.
"""

from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

Event = tuple[Any, ...]
"""What an operation did: its name, the context, and its arguments."""


@dataclass
class State:
    """The texts of a context: messages in their order, and pages by index, each with the number of its creation."""

    messages: list[str] = field(default_factory=list)
    pages: dict[str, tuple[int, str]] = field(default_factory=dict)
    pins: set[str] = field(default_factory=set)

    def copy(self) -> "State":
        return State(list(self.messages), dict(self.pages), set(self.pins))

    def shown(self) -> tuple[list[str], dict[str, str]]:
        """Return what a reader must find."""
        return self.messages, {index: mark_pin(text, index in self.pins) for index, (_, text) in self.pages.items()}


def mark_pin(text: str, pinned: bool) -> str:
    """Return the text of a page, with a mark if the page is pinned."""
    return f"pinned: {text}" if pinned else text


@dataclass
class Book:
    """A context: its states by seq, and the messages of a turn that did not end."""

    states: dict[int, State] = field(default_factory=lambda: {0: State()})
    open_turn: set[str] = field(default_factory=set)

    @property
    def state(self) -> State:
        return self.states[max(self.states)]

    def at(self, seq: int) -> State:
        """Return the state after an entry."""
        return self.states[max(known for known in self.states if known <= seq)]


class PlainModel:
    """The contexts of a store, and the copies of them in a second store."""

    def __init__(self) -> None:
        self.books: dict[str, Book] = {}
        self.copies: dict[str, State] = {}
        self._created = 0

    def copy(self) -> "PlainModel":
        return deepcopy(self)

    def shown(self) -> dict[str, dict[str, tuple[list[str], dict[str, str]]]]:
        """Return what a reader must find in both stores."""
        return {
            "main": {name: book.state.shown() for name, book in self.books.items()},
            "second": {name: state.shown() for name, state in self.copies.items()},
        }

    def apply(self, event: Event) -> None:
        """Apply an event."""
        name, *arguments = event
        getattr(self, f"_{name}")(*arguments)

    def parts(self, event: Event) -> Iterator[Event]:
        """Yield the events of which an interrupted one can consist. A purge reaches one context after the other."""
        if event[0] == "purge":
            names = list(self.books)
            for size in range(1, len(names)):
                for only in combinations(names, size):
                    yield (*event, only)

    def _create(self, context: str, seq: int) -> None:
        self.books[context] = Book()

    def _say(self, context: str, seq: int, text: str) -> None:
        self._next(context, seq).messages.append(text)

    def _say_in_turn(self, context: str, seq: int, text: str) -> None:
        self._say(context, seq, text)
        self.books[context].open_turn.add(text)

    def _begin_turn(self, context: str, seq: int) -> None:
        """Take back the messages of a turn that did not end."""
        book = self.books[context]
        state = self._next(context, seq)
        state.messages = [text for text in state.messages if text not in book.open_turn]
        book.open_turn = set()

    def _end_turn(self, context: str, seq: int) -> None:
        self.books[context].open_turn = set()

    def _delete(self, context: str, seq: int, text: str) -> None:
        self._next(context, seq).messages.remove(text)

    def _page(self, context: str, seq: int, index: str, text: str) -> None:
        self._created += 1
        self._next(context, seq).pages[index] = self._created, text

    def _set_text(self, context: str, seq: int, index: str, text: str) -> None:
        pages = self._next(context, seq).pages
        pages[index] = pages[index][0], text

    def _remove_page(self, context: str, seq: int, index: str) -> None:
        del self._next(context, seq).pages[index]

    def _pin(self, context: str, seq: int, index: str) -> None:
        self._next(context, seq).pins.add(index)

    def _unpin(self, context: str, seq: int, index: str) -> None:
        self._next(context, seq).pins.discard(index)

    def _restore(self, context: str, seq: int, to: int) -> None:
        """Take an earlier state. Pins and pinned pages stay."""
        book = self.books[context]
        now, before = book.state, book.at(to).copy()
        pinned = {index: page for index, page in now.pages.items() if index in now.pins}
        book.states[seq] = State(before.messages, pinned | before.pages, set(now.pins))

    def _fork(self, context: str, seq: int, target: str) -> None:
        self.books[target] = deepcopy(self.books[context])
        self.books[target].open_turn = set()

    def _erase(self, context: str, seq: int) -> None:
        del self.books[context]

    def _purge(self, context: str, seq: int, index: str, only: Collection[str] | None = None) -> None:
        """Remove a page from every state of every context (or of some), as if it had never been there."""
        number, _ = self.books[context].state.pages[index]
        for book in (book for name, book in self.books.items() if only is None or name in only):
            for state in book.states.values():
                state.pages = {where: page for where, page in state.pages.items() if page[0] != number}

    def _copy(self, context: str, seq: int) -> None:
        self.copies[context] = self.books[context].state.copy()

    def _drop_copy(self, context: str, seq: int) -> None:
        self.copies.pop(context, None)

    def _next(self, context: str, seq: int) -> State:
        """Return a new state after entry `seq`: a copy of the last one."""
        book = self.books[context]
        book.states[seq] = book.state.copy()
        return book.states[seq]
