"""The one state machine: every operation of the public API in any order, on several stores and on the plain model."""

from contextlib import AbstractContextManager, ExitStack
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import note
from hypothesis.stateful import initialize, rule

from quire import Busy, Conflict, Context
from tests.exclusions import excluded
from tests.machine.observed import expected_messages, messages_of
from tests.machine.page_rules import Draw, numbers
from tests.machine.state import Batch, Said
from tests.machine.talk_rules import BATCH, EDIT, TalkRules

BUDGETS = (160, 220, 300, 500, 100_000)
MAX_FORKS = 3
TALK = ("user", "assistant", "calls", "result") * 2 + ("several", "prompt", "close", "with_id")
PAGE = ("cold", "hot", "recall", "recall", "hide", "expand", "restore", "pin", "unpin", "chapter")
WRITE = (
    "leaf",
    "leaf",
    "gather",
    "given",
    "number",
    "text",
    "detail",
    "move",
    "move",
    "move",
    "remove",
    "agent",
    "agent",
)
BACK = ("undo", "undo", "undo", "undo", "rollback", "rollback", "checkpoint")
SEGMENTS = ("segment", "segment", "drop_segment", "rename_segment", "permission", "permission")
WHOLE = ("batch", "temporary", "turn") * 2 + ("other", "fork", "switch_fork", "document", "document", "evict", "reopen")
ALONE = ("window", "window", "window", "cleanup")
ALL = (*TALK, *TALK, *EDIT, *BATCH, "modify", *PAGE, *PAGE, *WRITE, *BACK, *BACK, *SEGMENTS, *WHOLE, *ALONE)
INSIDE = (*TALK, *EDIT, *EDIT, *BATCH, "modify")
"""The operations in a temporary block."""
TURN = (*INSIDE, *TALK, *PAGE)
"""The operations in a turn."""


class Failure(Exception):
    """The exception that a block raises on purpose."""


class Machine(TalkRules):
    """The rules; within one the operations are weighted. After each one a view is drawn."""

    @initialize(data=st.data(), budget=st.sampled_from(BUDGETS))
    def begin(self, data: st.DataObject, budget: int) -> None:
        """A short conversation and a few pages."""
        self.start(budget)
        self.run(data.draw, "prompt", "user", "calls", "result", "leaf", "gather")

    @rule(data=st.data(), chance=st.randoms(use_true_random=True))
    def operate(self, data: st.DataObject, chance: Random) -> None:
        """Do one or two things, and draw a view."""
        self.run(data.draw, *chance.choices(ALL, k=chance.choice((1, 1, 2))))

    def run(self, draw: Draw[Any], *words: str) -> None:
        """Run operations by their names, and draw a view."""
        note(f"{words}")
        for word in words:
            getattr(self, f"_{word}")(draw)
        self.look()

    def _batch(self, draw: Draw[Any]) -> None:
        """Work in a batch, and end it."""
        for word in ("start", *draw(st.lists(st.sampled_from((*EDIT, *TALK, "undo")), max_size=3)), "end"):
            getattr(self, f"_{word}")(draw)

    # History

    def _undo(self, draw: Draw[Any]) -> None:
        """Undo any entry, most often one of the last."""
        model = self.model
        seq = model.seq - draw(st.sampled_from((0,) * 6 + (1,) * 4) | st.integers(-1, 40))
        if seq not in model.states or seq - 1 not in model.states:
            assert self.everywhere(lambda c: c.undo(seq)).code
            return
        plain = model.is_plain(seq)
        done = self.take_back(f"undo {seq}", lambda c: c.undo(seq), lambda: model.undo(seq))
        assert done or not plain, f"the plain undo of entry {seq} was refused"

    def _checkpoint(self, draw: Draw[Any]) -> None:
        name = draw(st.sampled_from(("first", "second")))
        self.step("checkpoint", lambda: self.model.checkpoint(name), lambda c: c.checkpoint(name), name)

    def _rollback(self, draw: Draw[Any]) -> None:
        to = self._moment(draw)
        plain = self.model.knows(to)
        done = self.take_back(f"rollback to {to}", lambda c: c.rollback(to), lambda: self.model.rollback(to))
        assert done or not plain, f"the rollback to {to} was refused"

    def _moment(self, draw: Draw[Any]) -> "str | int":
        model = self.model
        if draw(numbers) < 5 + 25 * len(model.state.checkpoints):
            return str(draw(st.sampled_from((*model.state.checkpoints.values(), "never"))))
        return int(model.seq - draw(numbers) % (model.seq - model.horizon + 2))

    # Blocks

    def _temporary(self, draw: Draw[Any]) -> None:
        """Run a temporary block; no other handle sees anything of it, and nothing of it stays."""
        if self.depth:
            return
        model, outside = self.model, messages_of(self.contexts[0])
        raising, inside = draw(st.booleans()), draw(st.lists(st.sampled_from(INSIDE), max_size=5))
        note(f"temporary {{ raising={raising}")
        saved, start = model.saved(), model.seq
        whole, around = Batch(len(model.messages), start), model.state.batches
        model.do(lambda: model.batch_start(None))
        blocks = [_Block(context.temporary()) for context in self.contexts]
        self._inside(draw, inside)
        for backend, block in zip(self.backends, blocks, strict=True):
            assert messages_of(backend.open(self.fork)) == outside
            block.leave(raising=raising)
        if model.seq > start + 1:
            model.do(lambda: model.take_back(whole, around, pinned_too=True), always=True)
            model.blocks.append((start + 1, model.seq))
        else:
            model.take_over(saved)
        self.edited = True
        self.compare()
        note("} temporary")

    def _inside(self, draw: Draw[Any], words: list[str]) -> None:
        self.depth += 1
        self.model.in_block += 1
        for word in words:
            getattr(self, f"_{word}")(draw)
        self.model.in_block -= 1
        self.depth -= 1

    def _turn(self, draw: Draw[Any]) -> None:
        """Run a turn; another worker cannot begin one meanwhile. If the block raises, nothing of it stays."""
        key, keep, raising = draw(st.sampled_from(("", "r1", "r1", "r2"))), draw(st.booleans()), draw(st.booleans())
        inside = draw(st.lists(st.sampled_from(TURN), max_size=5))
        note(f"turn {{ key={key!r}, keep={keep}, raising={raising}")
        state = self.model.begin_turn(key, keep=keep)
        turns = [_Block(context.turn(key or None, wait=0, keep=keep)) for context in self.contexts]
        assert [context.turn_state for context in self.contexts] == [state] * len(turns)
        for backend in self.backends:
            with pytest.raises(Busy), backend.open(self.fork).turn(wait=0):
                pass
        self._inside(draw, inside)
        for turn in turns:
            turn.leave(raising=raising)
        self.model.end_turn(raised=raising)
        self.edited = True
        self.compare()
        note("} turn")

    def _other(self, draw: Draw[Any]) -> None:
        """Let another handle write: this one gets a conflict, loses nothing, and continues after a refresh."""
        said = Said("user", self._words("Another asked"))
        note(f"another handle adds {said}")
        for backend, context in zip(self.backends, self.contexts, strict=True):
            backend.open(self.fork).user(said.content)
            with pytest.raises(Conflict):
                context.user("Too late")
            assert messages_of(context) == expected_messages(self.model)
            assert context.refresh()
        self.model.do(lambda: self.model.add(said))
        self.edited = True
        self.compare()

    # Whole contexts

    def _cleanup(self, draw: Draw[Any]) -> None:
        self.step("cleanup", self.model.cleanup, lambda c: dict(c.conversation.cleanup().renumbered))

    def _evict(self, draw: Draw[Any]) -> None:
        """Drop cached pages: nothing changes."""
        index, keep = self.pick(draw, "text", "said"), draw(st.integers(0, 3))
        for context in self.contexts:
            context.pages.evict_page(index)
            context.pages.evict_lru(keep)
        self.compare()

    def _reopen(self, draw: Draw[Any]) -> None:
        """Open everything again: nothing changes."""
        note("reopen")
        for backend in self.backends:
            backend.reopen()
        self.compare()

    def _switch_fork(self, draw: Draw[Any]) -> None:
        self.switch(draw(st.sampled_from(sorted(self.models))))

    def _fork(self, draw: Draw[Any]) -> None:
        """Fork the context, now or at an earlier moment. Both continue."""
        at = None if draw(st.booleans()) else self._moment(draw)
        name = f"fork-{len(self.models)}" if len(self.models) <= MAX_FORKS else "book"
        opened: list[Context] = []
        found = self.everywhere(lambda c: opened.append(c.fork(name, at)))
        note(f"fork {name} at {at}: {found.code}")
        if found.code:
            plain = at is None or self.model.knows(at)
            assert name == "book" or not plain, f"the fork at {at} was refused"
            return
        for backend, context in zip(self.backends, opened, strict=True):
            backend.contexts[name] = backend.open(name)
            context.close()
        self.models[name] = self.model.fork(at)
        here = self.fork
        self.switch(name)
        self.switch(draw(st.sampled_from((here, name))))

    def _document(self, draw: Draw[Any]) -> None:
        """Store a document of the current state, or replace the context by a stored one."""
        documents = self.documents.setdefault(self.fork, [])
        if draw(st.booleans()) or not documents:
            documents.append((self.contexts[0].pages.marshal(), self.model.state.copy()))
            return
        text, state = draw(st.sampled_from(documents))
        if not (self.model.is_renumbered(state) and excluded("unmarshal_after_cleanup")):
            self.step("unmarshal", lambda: self.model.load(state), lambda c: c.pages.unmarshal(text))


class _Block:
    """A temporary block or a turn that is entered now and left later."""

    def __init__(self, block: AbstractContextManager[object]) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(block)

    def leave(self, *, raising: bool) -> None:
        if not raising:
            self._stack.close()
            return
        with pytest.raises(Failure), self._stack:
            raise Failure
