"""A conversation in plain Python, written from the contract: the oracle of `test_machine.py`.

It has no storage, no ranks and no codec. Messages are a list that only grows. The conversation is a list of pages in
which removed pages keep their place. The whole state of every earlier entry is stored. `Model.do` reverts everything if
an operation is refused, and makes an entry of the changes otherwise.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.conversation.model_messages import MessageModel
from tests.conversation.model_state import (
    ACTIVE,
    COLD,
    EXPANDED,
    HIDDEN,
    HOT,
    Orders,
    Page,
    Record,
    Refused,
    State,
    Turn,
)
from tests.model_values import Mark


class Model(MessageModel):
    """All operations of a conversation on the stored state."""

    # Turns

    def begin_turn(self, key: str, *, keep: bool) -> str:
        """Begin a turn; return how far the turn with its key came."""
        self.turn = Turn(self.seq, key, keep)
        if not key:
            return "new"
        finished, added = self.finished.get(key, (False, 0))
        counts = self.known(f"{key}#1") is not None
        if counts or (finished and not added):
            self.turn.known = added
            return "finished" if finished else "unfinished"
        return "new"

    def end_turn(self, *, raised: bool = False, lost: bool = False) -> None:
        """End the turn. If it raised or another worker took it over, its entries are taken back, or kept."""
        turn = self.turn
        assert turn is not None
        self.turn = None
        if turn.key and (turn.keep or not (raised or lost)):
            added = turn.added if raised else max(turn.added, turn.known)
            self.finished[turn.key] = (not (raised or lost), 0 if lost else added)
        if lost or (raised and not turn.keep):
            self.do("turn", lambda: None if turn.keep else self._take_back_turn(turn.start), always=lost)

    def _take_back_turn(self, start: int) -> None:
        """Restore every page and the batches from before the turn. Nothing before a cleanup comes back.

        Messages that the turn added before a cleanup leave. Older ones that its rollback brought back stay.
        """
        first = max(start, self.horizon)
        touched: dict[Record, object] = {}
        early = {record for seq, entry in self.entries.items() if start < seq <= first for record in entry.touched}
        for seq in sorted(self.entries):
            if seq > first:
                touched = {**self.entries[seq].touched, **touched}
        for (kind, key), old in touched.items():
            if kind == "batches" and isinstance(old, tuple):
                self.state.batches = old
            if kind == "page" and old is None and (now := self.state.pages.get(str(key))) is not None:
                self._drop(now)
        pages = [old for old in touched.values() if isinstance(old, Page)]
        self._put_back([old for old in pages if old.index not in self.state.pages], self.states[first])
        for old in pages:
            self._set(old)
        known = {index for seq, state in self.states.items() if seq <= start for index in state.pages}
        for page in [page for page in self.state.pages.values() if ("page", page.index) in early]:
            if page.index not in known and page.numbers and not page.mark:
                self._change(page, mark=Mark.ENDED, pinned=False, lifecycle=COLD)

    # Pages

    def expand(self, index: str) -> None:
        self._change(self._page(index), visibility=EXPANDED, lifecycle=ACTIVE)

    def restore(self, index: str) -> None:
        self._change(self._page(index), lifecycle=ACTIVE)

    def _page(self, index: str) -> Page:
        page = self.state.pages.get(index)
        if page is None or page.mark or not page.attached:
            raise Refused("not in the tree")
        return page

    def _loose(self, page: Page) -> None:
        if page.pinned or page == self.open_exchange():
            raise Refused("pinned or open")

    def hide(self, index: str) -> None:
        page = self._page(index)
        if page.lifecycle != ACTIVE:
            raise Refused("archived already")
        self._loose(page)
        self._change(page, visibility=HIDDEN)

    def archive(self, index: str, *, cold: bool) -> None:
        page = self._page(index)
        self._loose(page)
        self._change(page, lifecycle=COLD if cold else HOT)

    def recall(self, index: str) -> None:
        page = self.state.pages.get(index)
        if page is None or page.mark:
            raise Refused("not in the archive")
        if not page.attached:
            self._change(page, lifecycle=ACTIVE)

    def pin(self, index: str) -> None:
        self._change(self._page(index), pinned=True, lifecycle=ACTIVE, visibility=EXPANDED)

    def unpin(self, index: str) -> None:
        self._change(self._page(index), pinned=False)

    # History

    def checkpoint(self, name: str) -> int:
        if self.in_block:
            raise Refused("a temporary block does not stay")
        if name in self.state.checkpoints.values():
            raise Refused("exists already")
        self.state.checkpoints[self.seq + 1] = name
        return self.seq + 1

    def undo(self, seq: int) -> None:
        """Restore the pages of an entry, unless a later entry touched them. Pins stay."""
        entry = self.entries.get(seq)
        if entry is None or seq <= self.horizon:
            raise Refused("no such entry")
        if entry.operation == "temporary":
            raise Refused("what a temporary block took back stays away")
        standing = {record: self._standing(record, seq) for record in entry.touched}
        later = {now if now > seq else self.changed[record] for record, now in standing.items() if now != seq}
        if later:
            raise Refused("changed later", *(f"entry {number} " for number in later))
        present, then = self.state.copy(), self.states[seq - 1]
        for kind, key in entry.touched:
            if kind == "batches":
                self.state.batches = then.batches
            elif kind == "checkpoint" and isinstance(key, int):
                self.state.checkpoints.pop(key, None)
                self.state.checkpoints |= {s: name for s, name in then.checkpoints.items() if s == key}
        pages = [str(key) for kind, key in entry.touched if kind == "page"]
        self._revert([(index, then.pages.get(index)) for index in pages], then)
        if self.state == present:
            raise Refused("pins are not brought back")
        self._keeps_pins(present, pages)
        if self._returns_from_a_block(present, pages):
            raise Refused("what a temporary block took back stays away")

    def _returns_from_a_block(self, present: State, pages: Iterable[str]) -> bool:
        """Return whether a message returns that arrived in a temporary block, which has ended."""
        now, before = self.state.pages, present.pages
        back = [i for i in pages if i in now and now[i].numbers and now[i].mark is Mark.NONE]
        back = [i for i in back if i not in before or before[i].mark is not Mark.NONE]
        born = [min(seq for seq, state in self.states.items() if index in state.pages) for index in back]
        ends = {seq: entry.undoes or 0 for seq, entry in self.entries.items() if entry.operation == "temporary"}
        return any(0 < first <= seq < end for end, first in ends.items() for seq in born)

    def _keeps_pins(self, present: State, pages: Iterable[str]) -> None:
        """Keep pinned pages, and show them."""
        for index in pages:
            page = self.state.pages.get(index)
            if page is None and index in present.pages and present.pages[index].pinned:
                raise Refused("pinned")
            if page is not None and page.pinned and not (page.lifecycle == ACTIVE and page.visibility == EXPANDED):
                raise Refused("pinned and not shown")

    def _revert(self, pages: Sequence[tuple[str, Page | None]], then: State) -> None:
        back: list[Page] = []
        for index, old in pages:
            now = self.state.pages.get(index)
            if old is None:
                if now is not None:
                    self._drop(now)
            elif now is None:
                back.append(replace(old, pinned=old.pinned and self._last_pinned(index)))
            else:
                self._set(replace(old, pinned=now.pinned))
        self._put_back(back, then)

    def _last_pinned(self, index: str) -> bool:
        """Return whether a removed page was pinned when it last existed."""
        last = max(seq for seq, state in self.states.items() if index in state.pages)
        return self.states[last].pages[index].pinned

    def settle(self, actual: Orders) -> None:
        """Accept the order that the system chose for restored pages, if it is correct."""
        for segment, must in self.unsettled.items():
            order = actual[segment]
            assert sorted(order) == sorted(self.state.orders[segment]), segment
            assert [i for i in order if i in must.kept] == [i for i in must.kept if i in order], "others were disturbed"
            assert [i for i in order if i in must.before] == [i for i in must.before if i in order], "not where it was"
            self.state.orders[segment] = list(order)
            self.states[self.seq].orders[segment] = list(order)
        self.unsettled.clear()

    def _standing(self, record: Record, wanted: int) -> int:
        """Return the entry that last changed a record. For undos and pins, return the entry before them."""
        now, found = self.changed[record], self.state.records().get(record)
        while now != wanted and now > self.horizon:
            entry = self.entries[now]
            undone = self.entries[entry.undoes or 0] if entry.operation == "undo" else entry
            if record not in undone.previous:
                break
            before = undone.touched[record]
            if undone is entry and not _differ_in_pin(before, found):
                break
            now, found = undone.previous[record], before
        return now

    def moment(self, to: "str | int") -> int:
        if isinstance(to, str):
            found = [seq for seq, name in self.state.checkpoints.items() if name == to]
            if not found:
                raise Refused("no such checkpoint")
            to = found[0]
        if not max(self.horizon, 1) <= to <= self.seq:
            raise Refused("no such moment")
        for end, entry in self.entries.items():
            if entry.operation == "temporary" and (entry.undoes or 0) <= to < end:
                raise Refused("it lies in a temporary block")
        return to

    def rollback(self, to: "str | int") -> None:
        """Restore the whole state. Pages that are pinned now keep their place and get their old text."""
        then = self.states[self.moment(to)]
        present = self.state.pages
        kept = {page.index: page for page in present.values() if page.pinned}
        indices = [index for index in {**present, **then.pages} if index not in kept]
        self._revert([(index, then.pages.get(index)) for index in indices], then)
        for index in kept.keys() & then.pages.keys():
            old = then.pages[index]
            fields = {name: getattr(old, name) for name in ("numbers", "closed", "summarises", "written")}
            self._change(old, **fields)
        self.state.batches = then.batches

    def fork(self, at: "str | int | None") -> "Model":
        """Return a copy of this context now or after a rollback. Its journal starts here, without open batches."""
        seq = self.seq if at is None else self.moment(at)
        fork = Model()
        fork.take_over(self._saved())
        if at is not None:
            fork.rollback(seq)
        fork.seq = fork.horizon = self.seq + 1
        fork.entries, fork.changed, fork.finished, fork.turn = {}, {}, {}, None
        fork.state.batches, fork.state.checkpoints = (), {}
        shown = [number for page in fork.state.pages.values() if page.pinned for number in page.numbers]
        count = max([len([moment for moment in self.arrived if moment <= seq]), *(number + 1 for number in shown)])
        fork.messages, fork.home, fork.arrived = self.messages[:count], self.home[:count], self.arrived[:count]
        fork.ids = {number: known for number, known in self.ids.items() if number < count}
        fork.states = {fork.seq: fork.state.copy()}
        return fork

    def cleanup(self) -> dict[int, int]:
        """Destroy messages outside the conversation, and renumber the others."""
        if self.state.batches:
            raise Refused("a batch is open")
        alive = self.alive()
        kept = {number for page in self.state.pages.values() if not page.mark for number in page.numbers}
        gone = [number for number in alive if number not in kept]
        if gone:
            for page in [page for page in self.state.pages.values() if page.mark]:
                self._drop(page)
            self.destroyed |= frozenset(gone)
        return {alive.index(number): place for place, number in enumerate(self.alive())}


def _differ_in_pin(one: object, other: object) -> bool:
    """Return whether two states of a page differ at most in the pin."""
    return isinstance(one, Page) and isinstance(other, Page) and replace(one, pinned=other.pinned) == other
