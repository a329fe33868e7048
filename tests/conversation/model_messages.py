"""The messages of the model: arrivals, edits and batches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.conversation.model_state import (
    COLD,
    PROMPT,
    Batch,
    Change,
    Kept,
    Page,
    Refused,
    Said,
    State,
    Unsettled,
)
from tests.model_values import Mark


class MessageModel(Kept):
    """The operations on messages."""

    # Arrivals

    def receive(self, said: Said, before: str | None = None) -> int:
        """Add a message: a result joins its call, and a system message before all others is the prompt."""
        if said.role == "tool":
            return self._take_result(said)
        if said.role == "system" and self._nothing_but_prompts():
            return self._add(said, "sys", None, name=PROMPT, pinned=True)
        if before is None and said.role != "system":
            waiting = self.open_exchange()
            if waiting is not None:  # the next message closes it permanently
                self._change(waiting, closed=True)
        return self._add(said, "usr", before)

    def _nothing_but_prompts(self) -> bool:
        """Return whether no other message ever arrived here. Messages that a cleanup destroyed count too."""
        return self.counters["usr"] == 1 or not (self.destroyed or any(page.startswith("usr") for page in self.home))

    def add(self, *said: Said, given: str | None = None) -> int:
        """Add messages. A message with an id that is in the conversation already is not added again."""
        turn = self.turn
        ids: list[str] = []
        if given is not None:
            ids = [given, *(f"{given}.{place + 2}" for place in range(len(said) - 1))]
        elif turn is not None and turn.key:
            ids = [f"{turn.key}#{turn.added + place + 1}" for place in range(len(said))]
        numbers = [self._add_once(each, ids[place] if ids else "") for place, each in enumerate(said)]
        if turn is not None and given is None:
            turn.added += len(said)
        return self.indices(numbers)[-1]

    def _add_once(self, said: Said, message_id: str) -> int:
        number = self.known(message_id) if message_id else None
        if number is None:
            count = len(self.messages)
            number = self.receive(said)
            if message_id and number >= count:
                self.ids[number] = message_id
        return number

    def _take_result(self, said: Said) -> int:
        """Add a result to the newest exchange that waits for it, in the conversation if there is one.

        An equal result changes nothing; a different one is refused.
        """
        known = [self.state.pages.get(index) for index in reversed(self.callers.get(str(said.answers), ()))]
        pages = sorted((page for page in known if page is not None), key=lambda page: bool(page.mark))
        for page in pages:
            if said.answers in self.pending(page):
                number = self._store(said, page.index)
                self._change(page, numbers=(*page.numbers, number))
                if page.mark == Mark.COMPRESSED and page.standin:
                    self._write_anew(page.standin)
                return number
        for number in (number for page in pages for number in page.numbers):
            if self.messages[number].answers == said.answers:
                if self.messages[number].content != said.content:
                    raise Refused("it has another result")
                return number
        raise Refused("no such call")

    def system(self, text: str, name: str | None) -> int:
        called = name or PROMPT
        page = next((page for page in self.attached("sys") if page.name == called), None)
        said = Said("system", text, name=name)
        if page is None:
            return self.indices([self._add(said, "sys", None, name=called, pinned=True)])[0]
        number = page.numbers[0]
        if self.messages[number].content != text:
            number = self._put_in_place(page, number, said)
        return self.indices([number])[0]

    def _put_in_place(self, page: Page, number: int, said: Said) -> int:
        fresh = self._store(said, page.index)
        self._change(page, numbers=tuple(fresh if old == number else old for old in page.numbers))
        return fresh

    def close_calls(self) -> list[str]:
        page = self.open_exchange()
        if page is None:
            return []
        self._change(page, closed=True)
        return self.pending(page)

    # Modifications

    def insert(self, said: Sequence[Said], at: int | None) -> Change:
        before = None
        if at is not None:
            before = None if at == len(self.alive()) else self._place_before(self.number(at))
            self._with_their_calls(said)
        return self._changed(inserted=self.indices([self.receive(each, before) for each in said]))

    def _changed(self, **change: Any) -> Change:
        """Return a change in the batch that is open now."""
        return Change(batch=len(self.state.batches), **change)

    def _with_their_calls(self, said: Sequence[Said]) -> None:
        """Refuse results without an earlier call in the same list."""
        for place, each in enumerate(said):
            if each.role == "tool" and not any(each.answers in earlier.calls for earlier in said[:place]):
                raise Refused("a result stands with its call")

    def _place_before(self, number: int) -> str | None:
        """Return the page directly after a new one; None is the end. For a removed page, return the next one."""
        for at in range(number, len(self.messages)):
            page = None if at in self.destroyed else self.page_of(at)
            if page is None:
                continue
            following = self.attached("usr")
            if page.segment == "usr":
                if at not in page.numbers[1:]:
                    return page.index
                order = self.state.orders["usr"]
                following = [other for other in following if order.index(other.index) > order.index(page.index)]
            return following[0].index if following else None
        return None

    def delete(self, indices: Sequence[int]) -> Change:
        pages = [page for page in self._covered(indices) if page.mark in (Mark.NONE, Mark.COMPRESSED)]
        for page in pages:
            self._change(page, mark=Mark.DELETED, standin=None, lifecycle=COLD)
        for summary in {page.standin for page in pages if page.standin}:
            self._write_anew(summary)
        return self._changed(covered=self._indices_on(pages))

    def replace(self, indices: Sequence[int], said: Sequence[Said]) -> Change:
        numbers = [self.number(index) for index in dict.fromkeys(indices)]
        if any(self.mark_of(number) for number in numbers):
            raise Refused("out of the conversation")
        pages = self._covered(indices)
        if len(numbers) == len(said) == 1 and self._pairs_alike(self.messages[numbers[0]], said[0]):
            fresh = self._put_in_place(pages[0], numbers[0], said[0])
            return self._changed(covered=self.indices(numbers), inserted=self.indices([fresh]))
        self._with_their_calls(said)
        fresh_numbers = [self.receive(each, pages[0].index) for each in said]
        if any(self.state.pages[page.index] != page for page in pages):
            raise Refused("replaced by a result of its own call")
        for page in pages:
            self._change(page, mark=Mark.REPLACED, lifecycle=COLD)
        return self._changed(covered=self._indices_on(pages), inserted=self.indices(fresh_numbers))

    def _pairs_alike(self, old: Said, new: Said) -> bool:
        """Return whether a message of a tool exchange can be replaced without changing its other half."""
        pairs = bool(old.calls) or old.role == "tool"
        return pairs and (old.role, old.calls, old.answers) == (new.role, new.calls, new.answers)

    def compress(self, indices: Sequence[int], text: str | None) -> Change:
        pages = [page for page in self._covered(indices) if not page.mark]
        runs = self._runs(pages)
        if text is not None and len(runs) > 1:
            raise Refused("one summary for several runs")
        summaries = []
        for run in runs:
            summary = Page(self._next("usr"), "summary")
            self._put(summary, run[0].index)
            for page in run:
                self._change(page, mark=Mark.COMPRESSED, standin=summary.index, lifecycle=COLD)
            self._write_anew(summary.index)
            summaries.append(summary.index)
        return self._changed(covered=self._indices_on(pages), summaries=tuple(summaries))

    def _runs(self, pages: Sequence[Page]) -> list[list[Page]]:
        """Group neighbours in the conversation; each archived page is a group of its own."""
        groups: dict[str, list[Page]] = {}
        for page in pages:
            groups.setdefault("" if page.attached else page.index, []).append(page)
        runs: list[list[Page]] = []
        standing = [page.index for page in self.attached("usr")]
        for group in groups.values():
            last = None
            for page in sorted(group, key=lambda page: self.state.orders["usr"].index(page.index)):
                if last is not None and standing.index(page.index) == standing.index(last) + 1:
                    runs[-1].append(page)
                else:
                    runs.append([page])
                last = page.index if page.attached else None
        return runs

    def _behind(self, summary: str) -> list[Page]:
        return [page for page in self.state.pages.values() if page.mark and page.standin == summary]

    def _write_anew(self, summary: str, *, pinned_too: bool = False) -> None:
        """Write a summary again for the messages behind it; remove it if there are none."""
        page, behind = self.state.pages.get(summary), self._behind(summary)
        if page is None:
            return
        if behind:
            count = sum(len(original.numbers) for original in behind)
            self._change(page, summarises=count, written=page.written + self.seq + 1)
        elif page.pinned and not pinned_too:
            raise Refused("pinned")
        else:
            self._drop(page)

    def _covered(self, indices: Sequence[int]) -> list[Page]:
        """Return the pages of these messages, each once. Refuse a protected one."""
        if not indices:
            raise Refused("nothing named")
        found: dict[str, Page] = {}
        for number in [self.number(index) for index in indices]:
            page = self.page_of(number)
            if page is None or (not page.mark and number not in page.numbers):
                continue
            if page.segment == "sys" or page.pinned or page == self.open_exchange():
                raise Refused("protected")
            found[page.index] = page
        return list(found.values())

    def _indices_on(self, pages: Sequence[Page]) -> tuple[int, ...]:
        return tuple(sorted(self.indices(number for page in pages for number in page.numbers)))

    # Batches

    def batch_start(self, boundary: int | None) -> Change:
        alive = [*self.alive(), len(self.messages)]
        asked = len(alive) - 1 if boundary is None else boundary
        if not 0 <= asked < len(alive):
            raise Refused("no such place")
        number = self._exchange_start(alive[asked])
        if self.state.batches and number < self.state.batches[-1].boundary:
            raise Refused("boundaries never decrease")
        self.state.batches = (*self.state.batches, Batch(number, self.seq + 1))
        return Change(batch=len(self.state.batches), boundary=alive.index(number))

    def _exchange_start(self, number: int) -> int:
        """Return the first message of the exchange that this one arrived with."""
        page = self.page_of(number) if number < len(self.messages) else None
        if page is None or number not in page.numbers:
            return number
        first = page.numbers[0]
        return first if first <= number and all(n in page.numbers for n in range(first, number)) else number

    def batch_commit(self) -> Change:
        if not self.state.batches:
            raise Refused("no batch is open")
        self.state.batches = self.state.batches[:-1]
        return Change(batch=len(self.state.batches))

    def batch_end(self, target: int) -> Change:
        batches = self.state.batches
        if not 0 <= target <= len(batches):
            raise Refused("no such batch")
        if target == len(batches):
            return Change(batch=target)
        return self.take_back(batches[target], batches[:target])

    def take_back(self, batch: Batch, around: tuple[Batch, ...], *, pinned_too: bool = False) -> Change:
        """Remove messages from the boundary on, and restore the marks from when the batch was opened."""
        then, boundary = self.states[batch.seq], batch.boundary
        left: set[int] = set()
        restored: set[int] = set()
        for page in [page for page in self.state.pages.values() if page.numbers]:
            old = then.pages.get(page.index)
            if page.numbers[0] < boundary and old is None:
                left |= self._go_again(page, pinned_too=pinned_too)
            elif page.numbers[0] >= boundary and not (old and old.numbers[0] < boundary):
                left |= self._leave(page, pinned_too=pinned_too)
            else:
                left |= self._stay(page, old, boundary, pinned_too=pinned_too)
                if page.mark and self.state.pages[page.index].mark == Mark.NONE:
                    restored |= set(self.state.pages[page.index].numbers)
        for page in [page for page in self.state.pages.values() if page.index in then.pages and not page.mark]:
            self._change(page, closed=then.pages[page.index].closed)
        removed = [old for index, old in then.pages.items() if index not in self.state.pages]
        back = [replace(old, pinned=False) for old in removed if old.numbers and old.numbers[0] < boundary]
        back = [replace(old, numbers=tuple(n for n in old.numbers if n < boundary)) for old in back]
        self._put_back(back, then)
        restored |= {number for old in back if not old.mark for number in old.numbers}
        self._settle_summaries(then, pinned_too=pinned_too)
        self.state.batches = around
        return Change(covered=self.indices(sorted(left)), restored=self.indices(sorted(restored)), batch=len(around))

    def _leave(self, page: Page, *, pinned_too: bool) -> set[int]:
        if page.mark == Mark.COMPRESSED:
            self._change(page, mark=Mark.ENDED, standin=None)
        if page.mark:
            return set()
        self._may_leave(page, pinned_too=pinned_too)
        self._change(page, mark=Mark.ENDED, pinned=False, lifecycle=COLD)
        return set(page.numbers)

    def _go_again(self, page: Page, *, pinned_too: bool) -> set[int]:
        """Remove an exchange again that was removed then and came back meanwhile."""
        self._may_leave(page, pinned_too=pinned_too)
        self._drop(page)
        return set() if page.mark else set(page.numbers)

    def _may_leave(self, page: Page, *, pinned_too: bool) -> None:
        if page.pinned and page.segment == "usr" and not pinned_too:
            raise Refused("pinned")

    def _stay(self, page: Page, old: Page | None, boundary: int, *, pinned_too: bool) -> set[int]:
        """Restore an exchange from before the boundary: with its marks, without later messages."""
        marked_otherwise = old is not None and (page.mark, page.standin) != (old.mark, old.standin)
        if page.mark and not marked_otherwise:
            return set()
        late = {number for number in page.numbers if number >= boundary}
        if late:
            held = old.numbers if old is not None and old.numbers[0] < boundary else page.numbers
            self._change(page, numbers=tuple(number for number in held if number < boundary))
        if marked_otherwise and old is not None:
            if not page.mark:  # it came back meanwhile and is removed again
                self._may_leave(page, pinned_too=pinned_too)
                late |= set(self.state.pages[page.index].numbers)
            pinned = page.pinned and old.attached
            self._change(page, mark=old.mark, standin=old.standin, lifecycle=old.lifecycle, pinned=pinned)
        return set() if page.mark else late

    def _settle_summaries(self, then: State, *, pinned_too: bool) -> None:
        """Restore a summary's text if the same messages are behind it; otherwise write it again or remove it."""
        old = {index: page for index, page in then.pages.items() if page.form == "summary"}
        fresh = [page.index for page in self.state.pages.values() if page.form == "summary" and page.index not in old]
        for index, page in old.items():
            self._bring_back_summary(page, then)
            before = {page.index for page in then.pages.values() if page.mark and page.standin == index}
            if before != {page.index for page in self._behind(index)}:
                self._write_anew(index, pinned_too=pinned_too)
        for index in fresh:
            self._write_anew(index, pinned_too=pinned_too)

    def _bring_back_summary(self, old: Page, then: State) -> None:
        now = self.state.pages.get(old.index)
        if now is not None:
            self._change(now, summarises=old.summarises, written=old.written)
        else:
            self._put_back([replace(old, pinned=False)], then)

    def _put_back(self, pages: Sequence[Page], then: State) -> None:
        """Put pages back among their old siblings; if new pages are between those, any place is accepted."""
        for segment in {page.segment for page in pages}:
            order = self.state.orders[segment]
            kept = [index for index in order if index not in (page.index for page in pages)]
            back = {page.index: page for page in pages if page.segment == segment}
            stable = [i for i in then.orders[segment] if i in back or (i in kept and self._is_in_tree_since(i, then))]
            for place, index in enumerate(stable):
                if index in back:
                    left = [i for i in stable[:place] if i in order]
                    order.insert(order.index(left[-1]) + 1 if left else 0, index)
                    self._set(back[index])
            earlier = self.unsettled.get(segment)
            self.unsettled[segment] = earlier or Unsettled(kept, stable)
            if earlier:  # several steps at once: only the pages from before all of them keep their order
                self.unsettled[segment] = Unsettled([i for i in earlier.kept if i in kept], [])

    def _is_in_tree_since(self, index: str, then: State) -> bool:
        """Return whether a page never left the conversation's tree since then."""
        seq = next(seq for seq, state in self.states.items() if state is then)
        later = (entry.touched for number, entry in self.entries.items() if number > seq)
        return all(touched[("page", index)] is not None for touched in later if ("page", index) in touched)
