"""All operations on a conversation in any order, on three backends and on a plain model.

Each step is applied to the model and to memory, file and SQLite. Either all refuse it and nothing changes, or all agree
with the model on every message, mark, batch and page. Forks continue in parallel with their origin.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import note
from hypothesis.stateful import initialize, precondition, rule
from hypothesis.strategies import SearchStrategy

from quire import Context, LeaseLost
from tests.conversation.model_state import Change, Refused, Said
from tests.conversation.sidebyside import SideBySide, call_form, change, orders, provider_form
from tests.machines import run_machine

T = TypeVar("T")
Draw = Callable[[SearchStrategy[T]], T]

MAX_MESSAGES = 22
"""This many messages cover every rule; more only take longer to compare."""
MAX_FORKS = 3

CALLS = ("c1", "c2", "c3")
often = st.sampled_from((True, True, True, False))
numbers = st.integers(0, 99)
calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True).map(tuple)
names = st.sampled_from((None, None, "rules"))
summaries = st.sampled_from((None, None, "They talked."))

TALK = ("user", "assistant", "calls", "result") * 2 + ("late system", "several", "prompt", "close", "with id")
EDIT = ("insert", "delete", "delete", "replace", "replace", "half", "compress", "compress")
BATCH = ("start", "start", "end", "commit")
PAGE = ("hide", "pin", "unpin", "cold", "hot", "recall", "recall", "expand", "expand", "restore")
INSIDE = (*TALK, *EDIT, *EDIT, *BATCH, *PAGE, "undo", "undo", "rollback", "checkpoint", "modify", "temporary")
"""The operations in a temporary block."""
TURN = (*TALK, *TALK, *EDIT, *BATCH, *PAGE, "undo", "rollback", "checkpoint", "modify", "cleanup")
"""The operations in a turn."""
KEYS = ("", "r1", "r1", "r2")
ENDS = ("end", "end", "raise", "raise", "lose")


class Machine(SideBySide):
    """The rules; within one the operations are weighted."""

    @initialize(data=st.data(), prompt=st.booleans())
    def begin(self, data: st.DataObject, prompt: bool) -> None:
        """A short conversation, mostly with a prompt."""
        if prompt:
            self._system("Be brief.", None)
        for what in ("user", "calls", "result"):
            self._do(what, data.draw)

    def has_room(self) -> bool:
        return len(self.model.messages) < MAX_MESSAGES

    @precondition(has_room)
    @rule(data=st.data(), what=st.sampled_from(TALK))
    def talk(self, data: st.DataObject, what: str) -> None:
        """Add messages; results in any order, late, twice, and for calls that do not exist."""
        self._do(what, data.draw)

    @rule(data=st.data(), what=st.sampled_from(EDIT))
    def change(self, data: st.DataObject, what: str) -> None:
        """Edit the record, which is the main subject of the machine."""
        self._do(what, data.draw)

    @rule(data=st.data(), what=st.sampled_from((*EDIT, "modify", "modify")))
    def edit(self, data: st.DataObject, what: str) -> None:
        """Edit the record."""
        self._do(what, data.draw)

    @rule(data=st.data(), what=st.sampled_from(BATCH))
    def batch(self, data: st.DataObject, what: str) -> None:
        """Use nested batches."""
        self._do(what, data.draw)

    @rule(data=st.data(), inside=st.lists(st.sampled_from((*EDIT, "result", "undo")), min_size=1, max_size=4))
    def try_out(self, data: st.DataObject, inside: list[str]) -> None:
        """Open a batch, work in it, and end it."""
        for what in ("start", *inside, "end"):
            self._do(what, data.draw)

    @rule(data=st.data(), what=st.sampled_from(PAGE))
    def page(self, data: st.DataObject, what: str) -> None:
        """Change the pages of exchanges, summaries and prompts."""
        self._do(what, data.draw)

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        """Undo, and undo of undo."""
        self._do("undo", data.draw)

    @rule(data=st.data(), what=st.sampled_from(("undo", "undo", "checkpoint", "rollback", "rollback")))
    def go_back(self, data: st.DataObject, what: str) -> None:
        """History."""
        self._do(what, data.draw)

    @rule(data=st.data())
    def block(self, data: st.DataObject) -> None:
        """Run a temporary block."""
        self._do("temporary", data.draw)

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """Run a turn, which ends, raises, or loses its lease."""
        self._lease(data.draw)

    @rule(
        data=st.data(), what=st.sampled_from(("cleanup", "refresh", "as of", "reopen", "fork", "fork", "turn", "turn"))
    )
    def around(self, data: st.DataObject, what: str) -> None:
        """Change a whole context."""
        self._do(what, data.draw)

    # Choices

    def _do(self, what: str, draw: Draw[Any]) -> None:
        method = getattr(self, "_" + what.replace(" ", "_"))
        method(draw)

    def _text(self, word: str) -> str:
        """Return a text that no other message has."""
        return f"{word} {len(self.model.messages)} of {self.turn}"

    def _editable(self) -> list[int]:
        """Return the unprotected messages in the conversation."""
        model = self.model
        waiting = model.open_exchange()
        pages = [page for page in model.attached("usr") if not page.pinned and page != waiting]
        return sorted(model.indices(number for page in pages for number in page.numbers))

    def _index(self, draw: Draw[Any]) -> int:
        """Return a message, mostly one that can be edited, sometimes one that does not exist."""
        usual, length = self._editable(), len(self.model.alive())
        number: int = draw(numbers)
        if number < 80 and usual:
            return usual[number % len(usual)]
        return number % length if length and number < 97 else length + number - 98

    def _indices(self, draw: Draw[Any]) -> list[int]:
        """Return some messages, mostly neighbours."""
        usual, count = self._editable(), draw(st.integers(1, 4))
        first = draw(numbers) % max(len(usual), 1)
        found = usual[first : first + count] if draw(numbers) < 90 else []
        return found + ([self._index(draw)] if not found or draw(numbers) < 15 else [])

    def _page_index(self, draw: Draw[Any], kind: str) -> str:
        """Return a page, mostly one of this kind."""
        pages = list(self.model.state.pages.values())
        waiting = self.model.open_exchange()
        chosen = {
            "loose": lambda: [p for p in pages if p.attached and not p.pinned and p != waiting],
            "pinned": lambda: [p for p in pages if p.pinned],
            "archived": lambda: [p for p in pages if not p.attached and not p.mark],
        }[kind]()
        some = chosen if chosen and draw(often) else pages
        return some[draw(numbers) % len(some)].index if some and draw(numbers) < 97 else "usr-99"

    def _any_message(self, draw: Draw[Any]) -> Said:
        match draw(st.sampled_from(("user", "assistant", "calls", "system", "tool"))):
            case "user":
                return Said("user", self._text("Asked"))
            case "assistant":
                return Said("assistant", self._text("Told"))
            case "calls":
                return Said("assistant", draw(st.sampled_from((None, "Looking."))), draw(calls))
            case "system":
                return Said("system", self._text("Noted"))
            case _:
                return self._any_result(draw)

    def _any_result(self, draw: Draw[Any]) -> Said:
        waiting = self.model.pending_calls()
        known = draw(st.sampled_from((*CALLS, *waiting * 4, "nobody")))
        return Said("tool", draw(st.sampled_from(("sunny", "sunny", "rain"))), answers=known)

    # Messages

    def _add(self, said: Said, call: Callable[[Context], object]) -> None:
        self.step(said.role, lambda: self.model.add(said), call, said)

    def _user(self, draw: Draw[Any]) -> None:
        said = Said("user", self._text("Asked"))
        self._add(said, lambda context: context.user(said.content))

    def _assistant(self, draw: Draw[Any]) -> None:
        said = Said("assistant", self._text("Told"))
        self._add(said, lambda context: context.assistant(said.content))

    def _calls(self, draw: Draw[Any]) -> None:
        said = Said("assistant", self._text("Looked") if draw(st.booleans()) else None, draw(calls))
        self._add(said, lambda context: context.assistant(said.content, [call_form(call) for call in said.calls]))

    def _with_id(self, draw: Draw[Any]) -> None:
        """Add messages with an id, some of which are in the conversation already."""
        said = [self._any_message(draw) for _ in range(draw(st.sampled_from((1, 1, 2))))]
        given = draw(st.sampled_from(("a", "b", "a.2", "r1#1")))
        wanted = lambda: self.model.add(*said, given=given)  # noqa: E731
        operation = said[0].role if len(said) == 1 else "add"
        self.step(operation, wanted, lambda c: c.add([provider_form(s) for s in said], id=given), said, given)

    def _late_system(self, draw: Draw[Any]) -> None:
        said = Said("system", self._text("Noted"))
        self._add(said, lambda context: context.add(provider_form(said)))

    def _several(self, draw: Draw[Any]) -> None:
        """Add some messages together: if one of them is refused, none is added."""
        said = [self._any_message(draw) for _ in range(draw(st.integers(2, 3)))]
        self.step("add", lambda: self.model.add(*said), lambda c: c.add([provider_form(s) for s in said]), said)

    def _result(self, draw: Draw[Any]) -> None:
        if not draw(often) or self.model.pending_calls():
            self._take_result(self._any_result(draw))

    def _take_result(self, said: Said) -> None:
        self._add(said, lambda context: context.tool_result(str(said.answers), said.content))

    def _prompt(self, draw: Draw[Any]) -> None:
        self._system(draw(st.sampled_from(("Be brief.", "Be kind."))), draw(names))

    def _system(self, text: str, name: str | None) -> None:
        self.step("system", lambda: self.model.system(text, name), lambda c: c.system(text, name), text, name)

    def _close(self, draw: Draw[Any]) -> None:
        self.step("close_calls", self.model.close_calls, lambda c: [call.id for call in c.close_calls()])

    # Edits

    def _insert(self, draw: Draw[Any]) -> None:
        said = [self._any_message(draw) for _ in range(draw(st.sampled_from((1, 1, 1, 2))))]
        at = self._index(draw) if draw(often) else None
        self._modification("insert", lambda: self.model.insert(said, at), _insert(said, at), said, at)

    def _delete(self, draw: Draw[Any]) -> None:
        indices = self._indices(draw)
        self._modification("delete", lambda: self.model.delete(indices), _delete(indices), indices)

    def _replace(self, draw: Draw[Any]) -> None:
        indices = self._indices(draw)[: draw(st.integers(1, 2))]
        said = [self._any_message(draw) for _ in range(draw(st.sampled_from((1, 1, 1, 2))))]
        self._modification("replace", lambda: self.model.replace(indices, said), _replace(indices, said), indices, said)

    def _half(self, draw: Draw[Any]) -> None:
        """Replace one message of a tool exchange by one for the same calls."""
        model = self.model
        halves = [n for n in model.in_place() if model.messages[n].calls or model.messages[n].answers]
        if not halves:
            return
        number = draw(st.sampled_from(halves))
        said = [model.messages[number]._replace(content=self._text("Corrected"))]
        indices = list(model.indices([number]))
        self._modification("replace", lambda: model.replace(indices, said), _replace(indices, said), indices, said)

    def _compress(self, draw: Draw[Any]) -> None:
        indices, text = self._indices(draw), draw(summaries)
        self._modification(
            "compress", lambda: self.model.compress(indices, text), _compress(indices, text), indices, text
        )

    def _modify(self, draw: Draw[Any]) -> None:
        """Apply several modifications as data; often one of them is refused, and then none is applied."""
        steps = [self._modify_step(draw) for _ in range(draw(st.integers(1, 4)))]
        model = self.model

        def wanted() -> list[Change]:
            with model.all_or_nothing():
                return [model.do(str(form["operation"]), act) for form, act in steps]

        forms = [form for form, _ in steps]
        self.act("modify", wanted, lambda c: [change(done) for done in c.conversation.modify(forms)], forms)

    def _modify_step(self, draw: Draw[Any]) -> tuple[dict[str, Any], Callable[[], Change]]:
        model, indices = self.model, self._indices(draw)
        said, text = [self._any_message(draw)], draw(summaries)
        what = draw(st.sampled_from((*EDIT, *BATCH)))
        match what:
            case "insert":
                at = indices[:1] if draw(often) else []
                form: dict[str, Any] = {"indices": at, "data": provider_form(said[0])}
                return {"operation": "insert"} | form, lambda: model.insert(said, at[0] if at else None)
            case "delete":
                return {"operation": "delete", "indices": indices}, lambda: model.delete(indices)
            case "replace" | "half":
                form = {"indices": indices[:1], "data": [provider_form(said[0])]}
                return {"operation": "replace"} | form, lambda: model.replace(indices[:1], said)
            case "compress":
                form = {"indices": indices, "data": text}
                return {"operation": "compress"} | form, lambda: model.compress(indices, text)
            case "start":
                boundary = indices[:1] if draw(st.booleans()) else []
                form = {"operation": "batch_start", "indices": boundary}
                return form, lambda: model.batch_start(boundary[0] if boundary else None)
            case "end":
                target = draw(st.integers(0, 2))
                form = {"batch": target} if draw(st.booleans()) else {"indices": [target]}
                return {"operation": "batch_end"} | form, lambda: model.batch_end(target)
            case _:
                return {"operation": "batch_commit"}, model.batch_commit

    def _modification(
        self, operation: str, wanted: Callable[[], Change], call: Callable[[Context], object], *what: object
    ) -> None:
        self.step(operation, wanted, call, *what)

    # Batches and blocks

    def _start(self, draw: Draw[Any]) -> None:
        boundary = self._index(draw) if draw(st.booleans()) else None
        self.step(
            "batch_start",
            lambda: self.model.batch_start(boundary),
            lambda c: change(c.conversation.batch_start(boundary)),
            boundary,
        )

    def _end(self, draw: Draw[Any]) -> None:
        target = draw(st.integers(-1, len(self.model.state.batches)))
        self.step(
            "batch_end",
            lambda: self.model.batch_end(target),
            lambda c: change(c.conversation.batch_end(target)),
            target,
        )

    def _commit(self, draw: Draw[Any]) -> None:
        self.step("batch_commit", self.model.batch_commit, lambda c: change(c.conversation.batch_commit()))

    def _temporary(self, draw: Draw[Any]) -> None:
        if self.depth > 1:
            return
        raising, inside = draw(st.booleans()), draw(st.lists(st.sampled_from(INSIDE), max_size=5))
        note(f"temporary {{ raising={raising}")
        with self.temporary(raising=raising):
            for what in inside:
                self._do(what, draw)
        note("} temporary")

    def _lease(self, draw: Draw[Any]) -> None:
        """Run a turn with some operations."""
        key, keep, end = draw(st.sampled_from(KEYS)), draw(st.booleans()), draw(st.sampled_from(ENDS))
        inside = draw(st.lists(st.sampled_from(TURN), max_size=5))
        note(f"turn {{ key={key!r}, keep={keep}, {end}")
        if end == "lose":
            self._lost_turn(draw, key, keep, inside)
        else:
            with self.in_turn(key, keep=keep, raising=end == "raise"):
                for what in inside:
                    self._do(what, draw)
        note("} turn")

    def _lost_turn(self, draw: Draw[Any], key: str, keep: bool, inside: list[str]) -> None:
        contexts = self.contexts
        self.model.begin_turn(key, keep=keep)
        turns = [context.turn(key or None, wait=0, keep=keep) for context in contexts]
        for turn in turns:
            turn.__enter__()
        for what in inside:
            self._do(what, draw)
        self.lose_turn(Said("user", self._text("Another asked")))
        for turn in turns:
            with pytest.raises(LeaseLost):
                turn.__exit__(None, None, None)
        for context in contexts:
            context.refresh()
        self.compare()

    # Pages

    def _expand(self, draw: Draw[Any]) -> None:
        index = self._page_index(draw, "loose")
        self.step("expand", lambda: self.model.expand(index), lambda c: c.pages.expand(index), index)

    def _restore(self, draw: Draw[Any]) -> None:
        index = self._page_index(draw, "loose")
        self.step("restore", lambda: self.model.restore(index), lambda c: c.pages.restore(index), index)

    def _hide(self, draw: Draw[Any]) -> None:
        index = self._page_index(draw, "loose")
        self.step("hide", lambda: self.model.hide(index), lambda c: c.pages.hide(index), index)

    def _pin(self, draw: Draw[Any]) -> None:
        index = self._page_index(draw, "loose")
        self.step("pin", lambda: self.model.pin(index), lambda c: c.pages.pin(index), index)

    def _unpin(self, draw: Draw[Any]) -> None:
        index = self._page_index(draw, "pinned")
        self.step("unpin", lambda: self.model.unpin(index), lambda c: c.pages.unpin(index), index)

    def _cold(self, draw: Draw[Any]) -> None:
        self._archive(self._page_index(draw, "loose"), cold=True)

    def _hot(self, draw: Draw[Any]) -> None:
        self._archive(self._page_index(draw, "loose"), cold=False)

    def _archive(self, index: str, *, cold: bool) -> None:
        self.step(
            "archive",
            lambda: self.model.archive(index, cold=cold),
            lambda c: c.pages.archive(index, cold=cold),
            index,
            cold,
        )

    def _recall(self, draw: Draw[Any]) -> None:
        index = self._page_index(draw, "archived")
        self.step("recall", lambda: self.model.recall(index), lambda c: c.pages.recall(index) and None, index)

    # History

    def _undo(self, draw: Draw[Any]) -> None:
        """Return any entry, most often one of the last."""
        seq = self.model.seq - draw(st.sampled_from((0,) * 6 + (1,) * 4) | st.integers(-1, 40))
        model = self.model

        def wanted() -> int:
            model.do("undo", lambda: model.undo(seq), seq)
            return model.seq

        self.act("undo", wanted, lambda c: c.undo(seq), seq)

    def _checkpoint(self, draw: Draw[Any]) -> None:
        name = draw(st.sampled_from(("first", "second")))
        self.step("checkpoint", lambda: self.model.checkpoint(name), lambda c: c.checkpoint(name), name)

    def _rollback(self, draw: Draw[Any]) -> None:
        to = self._moment(draw)
        model = self.model

        def wanted() -> int:
            model.do("rollback", lambda: model.rollback(to))
            return model.seq

        self.act("rollback", wanted, lambda c: c.rollback(to), to)

    def _moment(self, draw: Draw[Any]) -> "str | int":
        model = self.model
        if draw(numbers) < 5 + 25 * len(model.state.checkpoints):
            return str(draw(st.sampled_from((*model.state.checkpoints.values(), "never"))))
        return int(model.seq - draw(numbers) % (model.seq - model.horizon + 2))

    def _as_of(self, draw: Draw[Any]) -> None:
        """Read an earlier state: it is what a rollback would leave, and nothing changes."""
        to = self._moment(draw)
        then = self.model.fork(None)
        then.take_over(self.model._saved())
        past: dict[int, Context] = {}

        def wanted() -> list[str | None]:
            then.rollback(to)
            past.update((id(context), context.as_of(to)) for context in self.contexts)
            then.states[then.seq] = then.state.copy()
            then.settle(orders(past[id(self.contexts[0])]))
            return [then.messages[number].content for number in then.in_place()]

        def found(context: Context) -> list[Any]:
            return [message.content for message in (past.get(id(context)) or context.as_of(to)).messages()]

        self.act("as_of", wanted, found, to)

    # Whole contexts

    def _cleanup(self, draw: Draw[Any]) -> None:
        self.step("cleanup", self.model.cleanup, lambda c: dict(c.conversation.cleanup().renumbered))

    def _refresh(self, draw: Draw[Any]) -> None:
        assert [context.refresh() for context in self.contexts] == [False] * len(self.kinds)
        self.compare()

    def _reopen(self, draw: Draw[Any]) -> None:
        note("reopen")
        for backend in self.backends:
            backend.reopen()
        self.compare()

    def _turn(self, draw: Draw[Any]) -> None:
        """Continue with another fork, which must be unchanged since."""
        self.turn = draw(st.sampled_from(sorted(self.models)))
        note(f"on with {self.turn}")
        self.compare()

    def _fork(self, draw: Draw[Any]) -> None:
        at = None if draw(st.booleans()) else self._moment(draw)
        name = f"fork-{len(self.models)}" if len(self.models) <= MAX_FORKS else "book"
        forked: list[Any] = []

        def wanted() -> None:
            if name in self.models:
                raise Refused("exists already")
            forked.append(self.model.fork(at))

        opened: list[Context] = []
        if self.act("fork", wanted, lambda c: opened.append(c.fork(name, at)), name, at):
            for backend, context in zip(self.backends, opened, strict=True):
                backend.contexts[name] = context
            self.models[name] = forked[0]
            here, self.turn = self.turn, name
            self.compare()
            self.turn = draw(st.sampled_from((here, name)))


def _insert(said: Sequence[Said], at: int | None) -> Callable[[Context], Change]:
    return lambda context: change(context.conversation.insert([provider_form(each) for each in said], at))


def _delete(indices: list[int]) -> Callable[[Context], Change]:
    return lambda context: change(context.conversation.delete(indices))


def _replace(indices: list[int], said: Sequence[Said]) -> Callable[[Context], Change]:
    return lambda context: change(context.conversation.replace(indices, [provider_form(each) for each in said]))


def _compress(indices: list[int], text: str | None) -> Callable[[Context], Change]:
    return lambda context: change(context.conversation.compress(indices, text))


def test_the_same_talk_gives_the_same_state_everywhere(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    run_machine(Machine, examples=200 if long else 3, steps=100 if long else 30, derandomize=not long)


class PostgresMachine(Machine):
    kinds = ("memory", "postgres")


def test_the_same_talk_gives_the_same_state_in_postgres(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    run_machine(PostgresMachine, examples=100 if long else 1, steps=60 if long else 20, derandomize=not long)
