"""Three backends and the model in parallel: one conversation and its forks, compared after every step."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from heapq import merge
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import note, reject
from hypothesis.stateful import RuleBasedStateMachine

import quire
from quire import Busy, Conflict, Context, ContextSystem, DetailPage, QuireError, Storage
from quire.conversation import Modification
from quire.conversation.turn import Turn
from quire.core.lease import renewer
from quire.core.plan import Plan
from quire.core.reader import slot_of
from quire.core.records import page_key
from quire.open_context import DEFAULT_SEGMENTS, _create
from tests.books import WordCounter
from tests.clocks import SteppingClock
from tests.conversation.model import Model
from tests.conversation.model_state import Batch, Change, Orders, Refused, Said
from tests.sidebyside import FAST, all_alike, store_opener


class Failure(Exception):
    """The exception that a temporary block raises on purpose."""


class Outcome(NamedTuple):
    """The outcome of an operation: a value, or an error's code and text."""

    value: object
    code: str = ""
    text: str = ""


class Backend:
    """One storage under test with its open handles."""

    def __init__(self, name: str, opener: Callable[[], Storage]) -> None:
        self.name = name
        self.opener = opener
        self.clock = SteppingClock()
        self.storage = opener()
        self.contexts = {"book": self.open("book")}

    def open(self, context: str) -> Context:
        system = ContextSystem(self.storage, context, clock=self.clock, counter=WordCounter())
        if system.seq == 0:
            system._engine.run(system.actor, "create", _create, DEFAULT_SEGMENTS, "fern-100")
        return Context(system)

    def reopen(self) -> None:
        self.storage.close()
        self.storage = self.opener()
        self.contexts = {name: self.open(name) for name in self.contexts}


class SideBySide(RuleBasedStateMachine):
    """The models of all forks, and memory, file and SQLite; or memory and the backends of `kinds`.

    A trace ends when a crowded place gets fresh ranks: the entry then changes neighbours too, and the model has no
    ranks.
    """

    kinds: ClassVar[tuple[str, ...]] = ("memory", "file", "sqlite")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="quire-talk-", dir=FAST if FAST.exists() else None))
        self.backends = [Backend(kind, store_opener(kind, self.folder / kind)) for kind in self.kinds]
        self.models = {"book": Model()}
        self.turn = "book"
        self.depth = 0
        self.compared = 0
        self._patch = patch.object(Plan, "_spread", autospec=True, side_effect=Plan._spread)
        self._spread = self._patch.start()

    @property
    def model(self) -> Model:
        return self.models[self.turn]

    @property
    def contexts(self) -> list[Context]:
        return [backend.contexts[self.turn] for backend in self.backends]

    def teardown(self) -> None:
        """At the end of a trace, check that every fork equals its model on every backend.

        After a failed step there is nothing to compare: a second difference would hide the first one.
        """
        is_over = self._spread.called or sys.exc_info()[0] is not None
        try:
            for turn in () if is_over else self.models:
                self.turn = turn
                self.compare(since=0)
        finally:
            self._patch.stop()
            for backend in self.backends:
                backend.storage.close()
            shutil.rmtree(self.folder)

    def step(
        self, operation: str, wanted: Callable[[], object], call: Callable[[Context], object], *what: object
    ) -> None:
        """Run one operation on the model and on every backend: all refuse it or none, with the same result."""
        self.act(operation, lambda: self.model.do(operation, wanted), call, *what)

    def act(
        self, operation: str, wanted: Callable[[], object], call: Callable[[Context], object], *what: object
    ) -> bool:
        """Do the same where the model makes its entries itself. Return whether it was accepted."""
        note(f"{self.turn}: {operation}{what!r}")
        names: tuple[str, ...] = ()
        try:
            expected = Outcome(wanted())
        except Refused as refusal:
            expected, names = Outcome(None, "refused", str(refusal)), refusal.names
        outcomes = [_outcome(context, call) for context in self.contexts]
        assert all_alike(outcomes)
        found = outcomes[0]
        if expected.code:
            assert found.code, f"{operation}{what!r} was accepted; the model refuses it: {expected.text}"
            assert not names or any(name in found.text for name in names), f"{found.text!r} names none of {names!r}"
        else:
            assert not found.code, f"{operation}{what!r} was refused: {found.text}"
            assert found.value == expected.value, f"{operation}{what!r} gave {found.value}, not {expected.value}"
        self.compare()
        return not expected.code

    @contextmanager
    def temporary(self, *, raising: bool) -> Iterator[None]:
        """Run a temporary block on the model and on every backend; no other handle sees anything of it."""
        model, contexts = self.model, self.contexts
        outside = self.depth == 0
        shown = [_texts(context) for context in contexts]
        saved, start = model._saved(), model.seq
        whole, around = Batch(len(model.messages), model.seq), model.state.batches
        model.do("batch_start", lambda: model.batch_start(None))
        blocks = [_Block(context.temporary()) for context in contexts]
        self.depth += 1
        model.in_block += 1
        yield
        model.in_block -= 1
        self.depth -= 1
        if outside:
            assert [_texts(backend.open(self.turn)) for backend in self.backends] == shown
        for block in blocks:
            block.leave(raising=raising)
        if model.seq > start + 1:
            model.do("temporary", lambda: model.take_back(whole, around, pinned_too=True), start + 1)
        else:
            model.take_over(saved)
        self.compare()

    @contextmanager
    def in_turn(self, key: str, *, keep: bool, raising: bool) -> Iterator[None]:
        """Run a turn on the model and on every backend. Another worker cannot begin one meanwhile."""
        contexts = self.contexts
        state = self.model.begin_turn(key, keep=keep)
        turns = [_Block(context.turn(key or None, wait=0, keep=keep)) for context in contexts]
        assert [context.turn_state for context in contexts] == [state] * len(contexts)
        for backend in self.backends:
            with pytest.raises(Busy), backend.open(self.turn).turn(wait=0):
                pass
        self.depth += 1
        yield
        self.depth -= 1
        for turn in turns:
            turn.leave(raising=raising)
        self.model.end_turn(raised=raising)
        self.compare()

    def lose_turn(self, said: Said) -> None:
        """Let the lease of this turn expire: another worker takes over, and this one can write nothing more."""
        contexts = self.contexts
        for backend, context in zip(self.backends, contexts, strict=True):
            turn = context.pages._engine.turn
            assert isinstance(turn, Turn)
            renewer.remove(turn._lease)
            turn._lease._write(expires=0)
            with backend.open(self.turn).turn("other", wait=0) as other:
                other.user(said.content)
            seq = context.seq
            with pytest.raises(Conflict):
                context.pages.create_detail_page("Too late", "", "", "mem-0")
            assert context.seq == seq
        self.model.end_turn(lost=True)
        self.model.begin_turn("other", keep=False)
        self.model.do("user", lambda: self.model.add(said))
        self.model.end_turn()

    def compare(self, since: int | None = None) -> None:
        """Check that every backend equals the model and that its own check finds nothing.

        The check of a store takes the most time: one store checks itself in each step.
        """
        if self._spread.called:
            reject()
        model = self.model
        self.compared += 1
        model.settle(orders(self.contexts[0]))
        numbers, alive = model.in_place(), model.alive()
        shown = list(zip(model.indices(numbers), (model.messages[n] for n in numbers), strict=True))
        stored = list(enumerate(model.messages[number] for number in alive))
        marks: list[object] = [model.mark_of(number) for number in alive]
        boundaries = model.boundaries()
        for backend, context in zip(self.backends, self.contexts, strict=True):
            talk = context.conversation
            if since is not None or self.compared % len(self.kinds) == self.kinds.index(backend.name):
                assert context.check() == [], backend.name
            assert context.seq == model.seq
            assert [_said(message) for message in context.messages()] == shown, backend.name
            assert [_said(message) for message in context.messages(all=True)] == stored, backend.name
            assert [talk.mark_of(index) for index in range(len(alive))] == marks, backend.name
            assert [talk.is_modified(index) for index in range(len(alive))] == [bool(mark) for mark in marks]
            assert [call.id for call in context.pending_calls()] == model.pending_calls()
            found = talk.mark_map()
            assert found.original_indices == list(range(len(alive)))
            assert found.batch_boundaries == boundaries
            assert found.boundary_to_batch == list(range(len(boundaries)))
            assert found.current_batch == len(boundaries) - 1
            assert orders(context) == model.state.orders
            found_pages, expected_pages = _pages(context), _expected_pages(model)
            differing = {i: (found_pages.get(i), expected_pages.get(i)) for i in {**found_pages, **expected_pages}}
            differing = {i: both for i, both in differing.items() if both[0] != both[1]}
            assert not differing, f"{backend.name}: {differing}"
            assert context.pages.checkpoints() == {n: s for s, n in sorted(model.state.checkpoints.items())}
            _compare_history(model, context, model.seq - 1 if since is None else since)
        documents = [context.pages.marshal() for context in self.contexts]
        assert all_alike(documents)


class _Block:
    """A temporary block or a turn that is entered now and left later."""

    def __init__(self, block: AbstractContextManager[object]) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(block)

    def leave(self, *, raising: bool) -> None:
        if not raising:
            self._stack.close()
            return
        try:
            with self._stack:
                raise Failure
        except Failure:
            return
        raise AssertionError("a block swallowed an error")


def change(modification: Modification) -> Change:
    """Return the effect of a modification, as far as the model reports it too."""
    return Change(*(getattr(modification, field) for field in Change._fields))


def provider_form(said: Said) -> dict[str, Any]:
    """Return a message in OpenAI's form."""
    form: dict[str, Any] = {"role": said.role, "content": said.content}
    if said.calls:
        form["tool_calls"] = [call_form(call) for call in said.calls]
    if said.answers is not None:
        form["tool_call_id"] = said.answers
    return form


def call_form(call: str) -> dict[str, Any]:
    return {"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def _outcome(context: Context, call: Callable[[Context], object]) -> Outcome:
    try:
        return Outcome(call(context))
    except QuireError as error:
        return Outcome(None, error.code, str(error))


def _said(message: quire.Message) -> tuple[int, Said]:
    calls = tuple(call.id for call in message.tool_calls)
    content = message.content if message.content is None else str(message.content)
    return message.index, Said(message.role, content, calls, message.tool_call_id, message.name)


def _texts(context: Context) -> list[tuple[int, Said]]:
    return [_said(message) for message in context.messages(all=True)]


def orders(context: Context) -> Orders:
    """Return the pages of both segments in order, with archived pages at the places to which they would return."""
    state = context.pages._engine.state
    found: Orders = {}
    for segment in ("sys", "usr"):
        root = page_key(state.require_segment(segment), 0)
        both = merge(state.members(root), state.members(root, cold=True), key=slot_of)
        found[segment] = [state.index(page.key) for page in both]
    return found


def _pages(context: Context) -> dict[str, tuple[object, ...]]:
    return {
        page.index: (page.mark, page.lifecycle, page.visibility, page.pinned, page.message_count)
        for page in context.pages.list_pages()
        if isinstance(page, DetailPage)
    }


def _expected_pages(model: Model) -> dict[str, tuple[object, ...]]:
    return {
        index: (page.mark, page.lifecycle, page.visibility, page.pinned, len(page.numbers) or page.summarises)
        for index, page in model.state.pages.items()
    }


def _compare_history(model: Model, context: Context, since: int) -> None:
    """Check that the entries have the operations, and name exactly the pages that were touched."""
    expected = {seq: entry for seq, entry in model.entries.items() if seq > since}
    entries = {entry.seq: entry for entry in context.history(since) if entry.seq in model.entries}
    assert entries.keys() == expected.keys()
    for seq, entry in entries.items():
        assert (entry.operation, entry.undoes) == (expected[seq].operation, expected[seq].undoes), seq
        assert not set(entry.pages) ^ expected[seq].pages, (seq, entry.operation, entry.pages, expected[seq].pages)
