"""Several stores and the model in parallel: run one operation everywhere, and compare everything after it."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine

import quire
from quire import (
    Context,
    IrreducibleFloor,
    MemoryStorage,
    PostgresStorage,
    QuireError,
    Storage,
    View,
)
from tests.books import WordCounter
from tests.exclusions import excluded
from tests.machine.laws import check_fold, check_prefix, view_bytes
from tests.machine.messages import Change
from tests.machine.model import Model
from tests.machine.observed import Tree, check_tree, expected_messages, messages_of, read_tree
from tests.machine.pad import Pad
from tests.machine.state import COLD, HOT, TALK, Refused, State
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, open_s3
from tests.stores import make
from tests.view_laws.laws import must_be_shown

TIMES = ("createdAt", "updatedAt")


class Outcome(NamedTuple):
    """The outcome of an operation: a value, or an error's code."""

    value: object
    code: str = ""


def store_opener(kind: str, path: Path) -> Callable[[], Storage]:
    """Return a function that opens one store of a kind; for memory it is one object."""
    match kind:
        case "memory":
            memory = MemoryStorage()
            return lambda: memory
        case "postgres":
            url = postgres_url()
            return lambda: PostgresStorage(url)
        case "s3":
            prefix = fresh_prefix()
            return lambda: open_s3(prefix)
        case _:
            return lambda: make(kind, path)


class Backend:
    """One store under test with its open handles."""

    def __init__(self, kind: str, path: Path, budget: int) -> None:
        self.kind = kind
        self._opener = store_opener(kind, path)
        self.storage = self._opener()
        self.contexts = {"book": self.open("book", budget)}

    def open(self, name: str, budget: int | None = None) -> Context:
        """Return a new handle on a context."""
        context = quire.open(self.storage, name, counter=WordCounter(), key="fern-100", budget=budget)
        context.windows.register(Pad)
        return context

    def reopen(self) -> None:
        self.storage.close()
        self.storage = self._opener()
        self.contexts = {name: self.open(name) for name in self.contexts}


class SideBySide(RuleBasedStateMachine):
    """The models of all forks, and the stores of `kinds`."""

    kinds: ClassVar[tuple[str, ...]] = ("memory", "file", "sqlite")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="quire-machine-"))
        self.backends: list[Backend] = []
        self.models = {"book": Model()}
        self.fork = "book"
        self.depth = 0
        self.compared = 0
        self.folded = False
        self.documents: dict[str, list[tuple[bytes, State]]] = {}
        self.edited = True
        self.seen: View | None = None
        self.tree: Tree | None = None

    def start(self, budget: int) -> None:
        """Create the context everywhere, with this budget."""
        self.backends = [Backend(kind, self.folder / kind, budget) for kind in self.kinds]
        for segment in self.contexts[0].pages.list_segments():
            self.model.add_segment(segment.id, segment.type, segment.permission)
            self.model.update_segment(segment.id, segment.name, segment.description, None)
        self.model.states[1] = self.model.state.copy()
        self.compare()

    @property
    def model(self) -> Model:
        return self.models[self.fork]

    @property
    def contexts(self) -> list[Context]:
        return [backend.contexts[self.fork] for backend in self.backends]

    def teardown(self) -> None:
        """At the end of a trace, check that every fork equals its model everywhere, unless a step failed before."""
        try:
            for name in () if sys.exc_info()[0] is not None or not self.backends else self.models:
                self.switch(name)
        finally:
            for backend in self.backends:
                backend.storage.close()
            shutil.rmtree(self.folder)

    def switch(self, name: str) -> None:
        """Continue with another fork, which must be unchanged since."""
        self.fork, self.seen, self.edited = name, None, True
        for context in self.contexts:
            self.compare(context)

    def step(self, operation: str, wanted: Callable[[], object], call: Callable[[Context], object], *what: Any) -> bool:
        """Run one operation on the model and everywhere: all refuse it or none, with the same result."""
        return self.act(operation, lambda: self.model.do(wanted), call, *what)

    def act(self, operation: str, wanted: Callable[[], object], call: Callable[[Context], object], *what: Any) -> bool:
        """Do the same where the model makes its entries itself. Return whether it was accepted."""
        note(f"{self.fork}: {operation}{what!r}")
        try:
            expected: Outcome | None = Outcome(wanted())
        except Refused as refusal:
            expected = None
            note(f"  refused: {refusal}")
        found = self.everywhere(call)
        if expected is None:
            assert found.code, f"{operation}{what!r} was accepted; the model refuses it"
        else:
            assert not found.code, f"{operation}{what!r} was refused: {found.code}"
            assert found.value == expected.value, f"{operation}{what!r} gave {found.value}, not {expected.value}"
        self.edited = self.edited or operation not in ("user", "assistant")
        self.compare(opened=operation == "expand")
        return expected is not None

    def take_back(self, operation: str, call: Callable[[Context], object], wanted: Callable[[], object]) -> bool:
        """Run an undo or a rollback: quire says whether it is refused, the model what it does.

        A rollback to the present state makes no entry.
        """
        note(f"{self.fork}: {operation}")
        found = self.everywhere(call)
        if not found.code:
            with self.model.all_or_nothing():
                wanted()
            if self.contexts[0].seq > self.model.seq:
                self.model.note_entry()
        self.edited = True
        self.compare()
        return not found.code

    def everywhere(self, call: Callable[[Context], object]) -> Outcome:
        """Return the outcome of a call, which must be the same everywhere."""
        outcomes = [_outcome(context, call) for context in self.contexts]
        assert all(outcome == outcomes[0] for outcome in outcomes)
        return outcomes[0]

    def compare(self, only: Context | None = None, *, folded: bool = False, opened: bool = False) -> None:
        """Check that everything equals the model and the other stores. One store checks itself in each step.

        A fold (`folded`) and the opening of a page that the layout shows as a line (`opened`) make an entry.
        """
        model = self.model
        self.compared += 1
        chosen = only or self.contexts[self.compared % len(self.contexts)]
        documents = [_without_times(json.loads(context.pages.marshal())) for context in self.contexts]
        assert all(document == documents[0] for document in documents)
        before, self.tree = self.tree, read_tree(documents[0], model)
        if folded:
            model.fold(self.tree.hidden)
        elif chosen.seq == model.seq + 1 and (opened or (before and self.tree.chapters != before.chapters)):
            model.note_entry()  # of what the model does not have: layout and chapters
        assert {context.seq for context in self.contexts} == {model.seq}, f"not {model.seq} entries"
        model.settle(self.tree.orders, folded=self.has_folded())
        moved = before and [i for i, folder in self.tree.parents.items() if before.parents.get(i, folder) != folder]
        if moved and any(index.rpartition("-")[0] == "usr" for index in moved):
            cold = [page.index for page in model.state.pages.values() if page.lifecycle == COLD]
            model.displaced |= dict.fromkeys(cold, True)
        model.counters["usr"] = max(model.counters["usr"], self.tree.next_number)
        model.chapters = self.tree.parents
        for context in self.contexts:
            assert messages_of(context) == expected_messages(model)
        check_tree(chosen, model, self.tree)
        assert chosen.check() == []

    def has_folded(self) -> bool:
        """Return whether a fold ever made a chapter here: archived pages may then have no exact place."""
        self.folded = self.folded or bool(self.tree and self.tree.chapters)
        return self.folded

    def look(self) -> None:
        """Draw a view everywhere. It changes no message, and a new handle draws the same one."""
        if not self.backends or self.must_not_fold():
            return
        before = self.tree
        views: list[View] = []

        def draw(context: Context) -> str:
            views.append(context.render())
            return view_bytes(views[-1])

        found = self.everywhere(draw)
        if found.code:
            check_floor(self.contexts[0])
            self.seen = None
            return
        view = views[0]
        if view.fold is not None:
            note(f"{self.fork}: fold")
        self.compare(folded=view.fold is not None)
        assert before is not None
        assert self.tree is not None
        if view.fold is not None:
            check_fold(before, self.tree, self.model)
            self.model.opened.clear()
        elif self.seen is not None and not self.edited:
            check_prefix(self.seen, view)
        if self.depth == 0:
            backend = self.backends[self.compared % len(self.backends)]
            assert view_bytes(backend.open(self.fork).render()) == found.value, f"a new handle on {backend.kind}"
        self.seen, self.edited = view, False

    def must_not_fold(self) -> bool:
        """Return whether a fold now would meet a known failure."""
        pages = self.model.attached("usr")
        if any(page.lifecycle == HOT for page in pages):
            return excluded("fold_after_archive")
        last = max((place for place, page in enumerate(pages) if page.role == "user"), default=len(pages))
        folded = any(self.model.chapters.get(page.index) != TALK for page in pages[last : last + 1])
        summarised = any(page.role == "summary" for page in pages[last:])
        return folded and summarised and excluded("summary_in_last_turn")


def check_floor(context: Context) -> None:
    """Check that a view is refused because the parts that it must show do not fit its budget."""
    with pytest.raises(IrreducibleFloor) as raised:
        context.render()
    assert raised.value.tokens > raised.value.budget == context.budget
    assert must_be_shown(context, {}) >= raised.value.tokens


def _outcome(context: Context, call: Callable[[Context], object]) -> Outcome:
    try:
        return Outcome(call(context))
    except QuireError as error:
        note(f"  {error.code}: {error}")
        return Outcome(None, error.code)


def _without_times(document: dict[str, Any]) -> dict[str, Any]:
    for page in [*document["pages"].values(), *document["segments"], document]:
        for name in TIMES:
            page.pop(name, None)
    return document


def change(modification: Any) -> Change:
    """Return the effect of a modification, as far as the model reports it too."""
    return Change(*(getattr(modification, field) for field in Change._fields))
