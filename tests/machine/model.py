"""The plain model of a context: everything that quire promises of pages and messages, in dicts and lists.

It was written from what the documentation promises, and has no storage, no ranks and no codec. The conversation is one
flat list of pages: chapters that folding makes do not exist in it, so every fold must leave it as it was. The model
keeps a copy of its state after every entry; undo, rollback, a fork, a failed turn and the end of a batch take what they
need from there.

It leaves open, and takes from quire:
- which exchanges a fold takes (`laws.py` says what it may take), and all texts that quire writes itself;
- whether an undo that is not the plain case is refused; what it does if it is accepted is fixed;
- between which of its old neighbours a page comes back; all other pages must keep their order;
- in which order `unmarshal` and recall put cold pages that have lost their place.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from quire import Permission
from tests.exclusions import excluded
from tests.machine.messages import MessageModel
from tests.machine.state import COLD, EXPANDED, HIDDEN, TALK, Page, Refused, State, Turn

RIGHTS = (Permission.PRIVATE, Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED)
"""The permissions, the one with the fewest rights first."""


class Model(MessageModel):
    """Turns, ways back, forks and documents."""

    # Ways back

    def touched(self, seq: int) -> list[tuple[str, object]]:
        """Return what an entry changed: pages, segments, batches, checkpoints. The order is the same in each run."""
        before, after = _records(self.states[seq - 1]), _records(self.states[seq])
        return [key for key in before | after if before.get(key) != after.get(key)]

    def is_plain(self, seq: int) -> bool:
        """Return whether undo must accept an entry: the last one, which changed pages, none of them pinned."""
        if seq != self.seq or seq - 1 not in self.states or seq <= self.horizon:
            return False
        then, now = self.states[seq - 1], self.state
        pages = [key for kind, key in self.touched(seq) if kind == "page"]
        if not pages or len(pages) != len(self.touched(seq)) or any(end == seq for _, end in self.blocks):
            return False
        both = [state.pages[str(key)] for key in pages for state in (then, now) if key in state.pages]
        return not any(page.pinned for page in both)

    def undo(self, seq: int) -> None:
        """Restore what an entry changed. Pins and pinned pages stay, unless the entry loaded a document."""
        then = self.states[seq - 1]
        keys = self.touched(seq)
        if seq in self.loads:
            self.loads[self.seq + 1] = True
        for kind, key in keys:
            if kind == "batches":
                self.state.batches = then.batches
            elif kind == "checkpoint" and isinstance(key, int):
                self.state.checkpoints.pop(key, None)
                self.state.checkpoints |= {s: name for s, name in then.checkpoints.items() if s == key}
        segments = [str(key) for kind, key in keys if kind == "segment"]
        pages = [str(key) for kind, key in keys if kind == "page"]
        if seq not in self.loads:
            self._return(segments, pages, then, self._held())
            return
        self._return(segments, pages, then, set())
        for index in [index for index in pages if index in then.pages]:
            self.change(self.state.pages[index], pinned=then.pages[index].pinned)

    def _held(self) -> set[str]:
        """Return the pinned pages and the folders above them."""
        pinned = [page for page in self.state.pages.values() if page.pinned]
        return {each.index for page in pinned for each in (page, *self.above(page))}

    def _return(self, segments: Iterable[str], indices: Collection[str], then: State, held: set[str]) -> None:
        """Restore segments and pages. Those in `held` stay shown in place, and get their old text."""
        present = self.state.pages
        inhabited = {present[index].segment for index in held}
        for name in segments:
            if name in then.segments or name not in inhabited:
                self._revert_segment(name, then)
        self._revert([index for index in indices if index not in held and self._now_at(index) not in held], then)
        for index in held:
            old = then.pages.get(next((i for i in indices if self._now_at(i) == index and i in then.pages), index))
            if index in indices and old is not None:
                now = self.state.pages[index]
                fresh = replace(now, name=old.name, description=old.description, detail=old.detail, numbers=old.numbers)
                self.state.pages[index] = replace(fresh, closed=old.closed, written=old.written)

    def _now_at(self, index: str) -> str:
        """Return the index that a page has after its moves to other segments."""
        seen = {index}
        while index not in self.state.pages and self.moves.get(index, index) not in seen:
            index = self.moves[index]
            seen.add(index)
        return index

    def _revert_segment(self, name: str, then: State) -> None:
        now, old = self.state.segments.get(name), then.segments.get(name)
        if old is None:
            self.state.segments.pop(name, None)
            return
        permission = old.permission if now is None else now.permission
        if now is not None and now.added != old.added:  # two segments with one id: neither gives rights to the other
            permission = min(old.permission, now.permission, key=RIGHTS.index)
        self.state.segments[name] = replace(old, permission=permission)

    def _revert(self, indices: Iterable[str], then: State) -> None:
        """Restore pages: each with its old fields and place; a pin stays as it is now."""
        back: list[Page] = []
        for index in indices:
            now, old = self.state.pages.get(index), then.pages.get(index)
            if old is None:
                if now is not None:
                    self.drop(now)
            elif now is None:
                back.append(replace(old, pinned=old.pinned and self._last_pinned(index)))
            elif now.parent is None or now.parent == old.parent:
                self.state.pages[index] = replace(old, pinned=now.pinned)
                if old.parent is not None:
                    back.append(self.state.pages[index])
            else:
                self.leave(now)
                back.append(replace(old, pinned=now.pinned))
        for page in back:  # folders first: a page may be below one that comes back too
            if page.folder:
                self.state.pages[page.index] = page
        self.put_back(sorted(back, key=lambda page: _place(page, then)), then)

    def _last_pinned(self, index: str) -> bool:
        """Return whether a removed page was pinned when it last existed."""
        last = max(seq for seq, state in self.states.items() if index in state.pages)
        return self.states[last].pages[index].pinned

    def moment(self, to: "str | int") -> int:
        """Return the entry of a checkpoint or a number; refuse one that no rollback reaches."""
        if isinstance(to, str):
            found = [seq for seq, name in self.state.checkpoints.items() if name == to]
            if not found:
                raise Refused("no such checkpoint")
            to = found[0]
        if not self.horizon <= to <= self.seq or any(start <= to < end for start, end in self.blocks):
            raise Refused("no such moment, or it lies in a temporary block")
        return to

    def knows(self, to: "str | int") -> bool:
        """Return whether a rollback or a fork to a moment must be accepted."""
        try:
            return self.moment(to) >= 0
        except Refused:
            return False

    def rollback(self, to: "str | int") -> None:
        """Restore the whole state. Pinned pages and the folders above stay shown in place, and get their old text."""
        then = self.states[self.moment(to)]
        present = self.state.pages
        self._return({**self.state.segments, **then.segments}, {**present, **then.pages}, then, self._held())
        self.state.batches = then.batches

    def checkpoint(self, name: str) -> int:
        if self.in_block:
            raise Refused("a temporary block does not stay")
        if name in self.state.checkpoints.values():
            raise Refused("exists already")
        self.state.checkpoints[self.seq + 1] = name
        return self.seq + 1

    # Blocks and turns

    def begin_turn(self, key: str, *, keep: bool) -> str:
        """Begin a turn; return how far the turn with its key came."""
        self.turn = Turn(self.seq, key, keep)
        if not key:
            return "new"
        finished, added = self.finished.get(key, (False, 0))
        if self.known(f"{key}#1") is not None or (finished and not added):
            self.turn.known = added
            return "finished" if finished else "unfinished"
        return "new"

    def end_turn(self, *, raised: bool) -> None:
        """End the turn. If it raised, everything is as before it, unless it keeps what it did."""
        turn = self.turn
        assert turn is not None
        self.turn = None
        if turn.key and (turn.keep or not raised):
            self.finished[turn.key] = (not raised, turn.added if raised else max(turn.added, turn.known))
        if raised and not turn.keep:
            self.do(lambda: self._restore(self.states[turn.start]))

    def _restore(self, then: State) -> None:
        checkpoints = self.state.checkpoints
        self.state = then.copy()
        self.state.checkpoints = checkpoints

    # Whole contexts

    def cleanup(self) -> dict[int, int]:
        """Destroy messages outside the conversation, and renumber the others."""
        if self.state.batches:
            raise Refused("a batch is open")
        alive = self.alive()
        kept = {number for page in self.state.pages.values() if not page.marked for number in page.numbers}
        gone = [number for number in alive if number not in kept]
        if gone:
            for page in [page for page in self.state.pages.values() if page.marked]:
                self.drop(page)
            self.state.destroyed |= frozenset(gone)
            self.horizon = self.seq + 1
        return {alive.index(number): place for place, number in enumerate(self.alive())}

    def fork(self, at: "str | int | None") -> "Model":
        """Return a copy of this context now or after a rollback. Its journal starts here, without open batches."""
        seq = self.seq if at is None else self.moment(at)
        fork = Model()
        fork.take_over(self.saved())
        if at is not None:
            fork.rollback(seq)
        fork.seq = fork.horizon = self.seq + 1
        fork.finished, fork.turn, fork.blocks = {}, None, []
        fork.state.batches, fork.state.checkpoints = (), {}
        shown = [number for page in fork.state.pages.values() if page.pinned for number in page.numbers]
        count = max([len([moment for moment in self.arrived if moment <= seq]), *(number + 1 for number in shown)])
        fork.messages, fork.home, fork.arrived = self.messages[:count], self.home[:count], self.arrived[:count]
        fork.ids = {number: known for number, known in self.ids.items() if number < count}
        fork.states = {fork.seq: fork.state.copy()}
        return fork

    def is_renumbered(self, document: State) -> bool:
        """Return whether a cleanup since has given a message of a document another index, or destroyed it."""
        then, gone = document.destroyed, self.state.destroyed
        numbers = [number for page in document.pages.values() for number in page.numbers]
        shifts = [sum(old < number for old in gone) - sum(old < number for old in then) for number in numbers]
        return any(shifts) or not gone.isdisjoint(numbers)

    def load(self, document: State) -> None:
        """Replace everything with a document. The messages keep their numbers and their ids."""
        self.loads[self.seq + 1] = True
        self.state = replace(document.copy(), checkpoints=self.state.checkpoints, destroyed=self.state.destroyed)
        for segment in self.live_segments():
            self.state.segments[segment.id] = replace(segment, added=self.tick())
            for index in self.lost(segment.id):
                page = self.state.pages[index]
                self.put(page, self.root(segment.id))
        for page in list(self.state.pages.values()):
            self.change(page, written=self.tick())

    # Folds

    def fold(self, hidden: Collection[str]) -> None:
        """Take over which pages a fold hid or opened: it opens only what an earlier one hid. Nothing else changes."""
        for page in self.attached("usr"):
            if (page.visibility == HIDDEN) != (page.index in hidden):
                assert page.index in hidden or page.index in self.by_fold, f"a fold opened {page.index}"
                self.change(page, visibility=HIDDEN if page.index in hidden else EXPANDED)
                self.by_fold[page.index] = True
        self.note_entry()

    def settle(self, found: dict[str, list[str]], *, folded: bool) -> None:
        """Check the order in every folder. Take the place of a page that came back from what quire did.

        With chapters (`folded`), archived pages of the conversation have no place that anyone sees.
        """
        folders = {page.index for page in self.state.pages.values() if page.folder}
        assert found.keys() == folders, set(found) ^ folders
        for folder, order in found.items():
            mine = self.state.orders[folder]
            assert sorted(order) == sorted(mine), folder
            keeping = [index for index in self.loose.get(folder, mine) if index in mine]
            if folded and folder == TALK:
                keeping = [index for index in keeping if self.state.pages[index].lifecycle != COLD]
                if self.displaced and excluded("return_after_fold"):
                    back = [index for index in keeping if self.displaced.pop(index, False)]
                    keeping = [index for index in keeping if index not in back]
            assert [index for index in order if index in keeping] == keeping, f"{folder}: {order}, expected {keeping}"
            placed = list(order)
            if folded and folder == TALK:
                placed = [index for index in order if self.state.pages[index].lifecycle != COLD]
                for before, index in zip([None, *mine], mine, strict=False):
                    if self.state.pages[index].lifecycle == COLD:
                        placed.insert(0 if before is None else placed.index(before) + 1, index)
            self.state.orders[folder] = placed
        self.loose.clear()
        self.states[self.seq] = self.state.copy()


def _records(state: State) -> dict[tuple[str, object], object]:
    found: dict[tuple[str, object], object] = {("page", index): page for index, page in state.pages.items()}
    found |= {("segment", name): segment for name, segment in state.segments.items()}
    found |= {("checkpoint", seq): name for seq, name in state.checkpoints.items()}
    return found | {("batches", None): state.batches}


def _place(page: Page, then: State) -> int:
    order = then.orders.get(page.parent or "", [])
    return order.index(page.index) if page.index in order else len(order)
