"""The operations of the plain model on messages: arrivals, edits and batches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tests.machine.pages import PageModel
from tests.machine.state import COLD, PROMPT, TALK, Batch, Page, Refused, Said, State


class Change(NamedTuple):
    """The reported effect of a modification."""

    covered: tuple[int, ...] = ()
    inserted: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    summaries: tuple[str, ...] = ()
    batch: int = 0
    boundary: int | None = None


class MessageModel(PageModel):
    """Messages, edits and batches."""

    # Arrivals

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

    def known(self, message_id: str) -> int | None:
        """Return the message of the conversation with an id."""
        for number in reversed([number for number, known in self.ids.items() if known == message_id]):
            page = None if number in self.state.destroyed else self.page_of(number)
            if page is not None and not page.marked and number in page.numbers:
                return number
        return None

    def receive(self, said: Said, before: str | None = None) -> int:
        """Add a message: a result joins its call, and a system message before all others is the prompt."""
        if said.role == "tool":
            return self._take_result(said)
        if said.role == "system" and self._nothing_but_prompts():
            return self._add(said, "sys", None, role="prompt", name=PROMPT, pinned=True)
        if before is None and said.role != "system":
            waiting = self.open_exchange()
            if waiting is not None:  # the next message closes it for good
                self.change(waiting, closed=True)
        return self._add(said, "usr", before, role=said.role)

    def _nothing_but_prompts(self) -> bool:
        """Return whether no other message ever arrived here. Messages that a cleanup destroyed count too."""
        return not (self.state.destroyed or any(page.startswith("usr") for page in self.home))

    def _add(self, said: Said, segment: str, before: str | None, **fields: Any) -> int:
        index = self.next(segment)
        number = self._store(said, index)
        parent = self.root(segment)
        if before is not None:
            parent = self.state.pages[before].parent or parent
        self.put(Page(index, segment, numbers=(number,), **fields), parent, before)
        for call in said.calls:
            self.callers[call] = (*self.callers.get(call, ()), index)
        return number

    def _store(self, said: Said, page: str) -> int:
        self.messages.append(said)
        self.home.append(page)
        self.arrived.append(self.seq + 1)
        return len(self.messages) - 1

    def _take_result(self, said: Said) -> int:
        """Add a result to the newest exchange that waits for it, in the conversation if there is one.

        An equal result changes nothing; a different one is refused.
        """
        known = [self.state.pages.get(index) for index in reversed(self.callers.get(str(said.answers), ()))]
        pages = sorted((page for page in known if page is not None), key=lambda page: page.marked)
        for page in pages:
            if said.answers in self.pending(page):
                number = self._store(said, page.index)
                self.change(page, numbers=(*page.numbers, number))
                if page.mark == "COMPRESSED" and page.standin:
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
        page = next((page for page in self.attached("sys") if page.role and page.name == called), None)
        said = Said("system", text, name=name)
        if page is None:
            return self.indices([self._add(said, "sys", None, role="prompt", name=called, pinned=True)])[0]
        number = page.numbers[0]
        if self.messages[number].content != text:
            number = self._put_in_place(page, number, said)
        return self.indices([number])[0]

    def _put_in_place(self, page: Page, number: int, said: Said) -> int:
        fresh = self._store(said, page.index)
        self.change(page, numbers=tuple(fresh if old == number else old for old in page.numbers))
        return fresh

    def close_calls(self) -> list[str]:
        page = self.open_exchange()
        if page is None:
            return []
        self.change(page, closed=True)
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
        order = self.state.orders[TALK]
        for at in range(number, len(self.messages)):
            page = None if at in self.state.destroyed else self.page_of(at)
            if page is None:
                continue
            following = self.attached("usr")
            if page.segment == "usr":
                if at not in page.numbers[1:]:
                    return page.index
                following = [other for other in following if order.index(other.index) > order.index(page.index)]
            return following[0].index if following else None
        return None

    def delete(self, indices: Sequence[int]) -> Change:
        pages = [page for page in self._covered(indices) if page.mark in ("NONE", "COMPRESSED")]
        for page in pages:
            self.change(page, mark="DELETED", standin=None, lifecycle=COLD)
        for summary in {page.standin for page in pages if page.standin}:
            self._write_anew(summary)
        return self._changed(covered=self._indices_on(pages))

    def replace(self, indices: Sequence[int], said: Sequence[Said]) -> Change:
        numbers = [self.number(index) for index in dict.fromkeys(indices)]
        if any(self.mark_of(number) != "NONE" for number in numbers):
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
            self.change(page, mark="REPLACED", lifecycle=COLD)
        return self._changed(covered=self._indices_on(pages), inserted=self.indices(fresh_numbers))

    def _pairs_alike(self, old: Said, new: Said) -> bool:
        """Return whether a message of a tool exchange can be replaced without changing its other half."""
        pairs = bool(old.calls) or old.role == "tool"
        return pairs and (old.role, old.calls, old.answers) == (new.role, new.calls, new.answers)

    def compress(self, indices: Sequence[int], text: str | None) -> Change:
        runs = self._runs([page for page in self._covered(indices) if not page.marked])
        if text is not None and len(runs) > 1:
            raise Refused("one summary for several runs")
        summaries = []
        for run in runs:
            summary = Page(self.next("usr"), "usr", role="summary")
            self.put(summary, TALK, run[0].index)
            for page in run:
                self.change(page, mark="COMPRESSED", standin=summary.index, lifecycle=COLD)
            summaries.append(summary.index)
        pages = [page for run in runs for page in run]
        return self._changed(covered=self._indices_on(pages), summaries=tuple(summaries))

    def _runs(self, pages: Sequence[Page]) -> list[list[Page]]:
        """Group neighbours of one chapter; each archived page is a group of its own."""
        standing = [page.index for page in self.attached("usr")]
        groups: dict[str | None, list[Page]] = {}
        for page in pages:
            groups.setdefault(page.index if page.lifecycle == COLD else self.chapters.get(page.index), []).append(page)
        runs: list[list[Page]] = []
        for group in groups.values():
            last: int | None = None
            for page in sorted(group, key=lambda each: standing.index(each.index) if each.index in standing else 0):
                place = standing.index(page.index) if page.index in standing else None
                beside = last is not None and place == last + 1
                runs = [*runs[:-1], [*runs[-1], page]] if beside else [*runs, [page]]
                last = place
        return runs

    def behind(self, summary: str) -> list[Page]:
        return [page for page in self.state.pages.values() if page.marked and page.standin == summary]

    def _write_anew(self, summary: str, *, pinned_too: bool = False) -> None:
        """Write a summary again for the messages behind it; remove it if there are none."""
        page = self.state.pages.get(summary)
        if page is None:
            return
        if self.behind(summary):
            self.change(page, written=self.tick())
        elif page.pinned and not pinned_too:
            raise Refused("pinned")
        else:
            self.drop(page)

    def _covered(self, indices: Sequence[int]) -> list[Page]:
        """Return the pages of these messages, each once. Refuse a protected one."""
        if not indices:
            raise Refused("nothing named")
        found: dict[str, Page] = {}
        for number in [self.number(index) for index in indices]:
            page = self.page_of(number)
            if page is None or (not page.marked and number not in page.numbers):
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
        before = self._unmarked()
        for page in [page for page in self.state.pages.values() if page.numbers]:
            old = then.pages.get(page.index)
            if old is None or (old.numbers[0] >= boundary and not self.in_system(page)):
                self._end(page, pinned_too=pinned_too)
            else:
                self._stay(page, old, boundary, pinned_too=pinned_too)
        removed = [replace(old, pinned=False) for i, old in then.pages.items() if i not in self.state.pages]
        self.put_back([old for old in removed if old.numbers and self.in_system(old)], then)  # a prompt of before
        back = [old for old in removed if old.numbers and old.numbers[0] < boundary and not self.in_system(old)]
        self.put_back([replace(old, numbers=tuple(n for n in old.numbers if n < boundary)) for old in back], then)
        self._settle_summaries(then, pinned_too=pinned_too)
        self.state.batches = around
        after = self._unmarked()
        covered, restored = (self.indices(sorted(numbers)) for numbers in (before - after, after - before))
        return Change(covered=covered, restored=restored, batch=len(around))

    def _unmarked(self) -> set[int]:
        """Return the messages in the conversation or its archive."""
        return {number for page in self.state.pages.values() if not page.marked for number in page.numbers}

    def _stays(self, page: Page, *, pinned_too: bool) -> bool:
        """Return whether a pin protects a page. It does not protect a prompt of the batch."""
        return page.pinned and not self.in_system(page) and not pinned_too

    def _end(self, page: Page, *, pinned_too: bool) -> None:
        """Take a page of the batch out of the view."""
        if not self._stays(page, pinned_too=pinned_too):
            self.change(page, mark="ENDED", standin=None, pinned=False, lifecycle=COLD)

    def _stay(self, page: Page, old: Page, boundary: int, *, pinned_too: bool) -> None:
        """Restore an exchange from before the boundary, or a prompt: with its marks, without later messages."""
        numbers = tuple(number for number in old.numbers if number < boundary or self.in_system(page))
        if numbers != page.numbers:
            self.change(page, numbers=numbers, name=old.name)
        if (page.mark, page.standin) != (old.mark, old.standin):
            if old.marked and self._stays(page, pinned_too=pinned_too):
                return
            pinned = page.pinned and old.lifecycle != COLD
            self.change(page, mark=old.mark, standin=old.standin, lifecycle=old.lifecycle, pinned=pinned)
        if not old.marked:
            self.change(page, closed=old.closed)

    def _settle_summaries(self, then: State, *, pinned_too: bool) -> None:
        """Bring back the summaries of then. Write one again that other messages are behind. New ones leave."""
        old = {index: page for index, page in then.pages.items() if page.role == "summary"}
        fresh = [page for page in self.state.pages.values() if page.role == "summary" and page.index not in old]
        self.put_back([replace(page, pinned=False) for i, page in old.items() if i not in self.state.pages], then)
        for page in fresh:
            if not self._stays(page, pinned_too=pinned_too):
                self.drop(page)
        for index, page in old.items():
            self.change(page, written=page.written)
            before = {each.index for each in then.pages.values() if each.marked and each.standin == index}
            is_stale = before != {each.index for each in self.behind(index)}
            if is_stale and not self._stays(self.state.pages[index], pinned_too=pinned_too):
                self._write_anew(index, pinned_too=True)

    def put_back(self, pages: Sequence[Page], then: State) -> None:
        """Put pages back into their folders. Any place is accepted that leaves the others in their order."""
        for page in pages:
            folder = page.parent or ""
            order = self.state.orders.setdefault(folder, [])
            if folder not in self.loose:
                self.loose[folder] = list(order)
            if page.index in order:
                order.remove(page.index)
            self.loose[folder] = [index for index in self.loose[folder] if index != page.index]
            old = then.orders.get(folder, [])
            left = [index for index in old[: old.index(page.index)] if index in order] if page.index in old else order
            order.insert(order.index(left[-1]) + 1 if left else 0, page.index)
            self.state.pages[page.index] = page
            if page.folder:
                self.state.orders.setdefault(page.index, [])
