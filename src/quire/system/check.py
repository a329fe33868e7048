"""Verifying a context: every invariant, against what is stored, saying what is broken where."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from quire.core.integrity import DECODERS
from quire.core.records import (
    CHECKPOINTS,
    NOTE_CODE,
    PAGE_CODE,
    Gone,
    PageRecord,
    Touched,
    decode_entry,
    decode_head,
    decode_tally,
    page_key,
    page_number,
    segment_number,
)
from quire.core.state import State
from quire.errors import QuireError
from quire.model.pages import Lifecycle, Mark, Visibility
from quire.storage.base import BODY, JOURNAL, MESSAGE, NOTE, PAGE, PIN, TALLY, VECTOR, Family, Record, Storage
from quire.system.rules import check_root_can_hide

_DERIVED: tuple[Family, ...] = (TALLY, VECTOR)
"""Families whose records say nothing that others do not."""


class Problem(Struct, frozen=True):
    """One thing that is wrong: which invariant of the contract (0: a stored record), where, and what.

    What is `derived` follows from other records and can be made anew from them.
    """

    invariant: int
    where: str
    text: str
    derived: bool = False


def check(state: State) -> list[Problem]:
    """All problems of a context; an empty list is a clean bill. Raises `NoSuchContext` if it was deleted."""
    found = _Found()
    problems = list(_check_stored(state, found))
    if any(not problem.derived for problem in problems):  # what cannot be read cannot be judged further
        return problems
    return [*problems, *_Tree(state, found).problems()]


class _Found:
    """What was come by when every record was read: the pages, and which messages and notes there are."""

    def __init__(self) -> None:
        self.pages: dict[int, PageRecord | Gone] = {}
        self.keys: dict[Family, set[int]] = {MESSAGE: set(), NOTE: set()}

    def take(self, family: Family, key: int, value: object) -> None:
        if isinstance(value, PageRecord | Gone):
            self.pages[key] = value
        elif family in self.keys:
            self.keys[family].add(key)


def unreadable(
    storage: Storage, context: str, state: State | None = None, found: _Found | None = None
) -> Iterator[Problem]:
    """Every record of a context that cannot be read. Streams. Needs only the storage; `state` names the pages."""
    for family, decode in DECODERS.items():
        for record in storage.scan(context, family):
            try:
                value = decode(record)
                if found is not None:
                    found.take(family, record.key, value)
            except QuireError as error:
                where, text = f"{family} {record.key}", str(error)
                if state is not None and family == PAGE:
                    where = _called(state, record.key)
                    text = text.replace(f"page record {record.key} ", f"page {where} ", 1)
                yield Problem(0, where, text, derived=family in _DERIVED)


def _called(state: State, key: int) -> str:
    """A page by its index; by its key if its segment is not known."""
    return state.index(key) if segment_number(key) < len(state.counters) else f"page {key}"


def _check_stored(state: State, found: _Found) -> Iterator[Problem]:
    """Every record decodes, memory says what the storage says, and the journal has no gap."""
    head = state.storage.head(state.context)
    if head is None and (deleted := state.deletion_error()):
        raise deleted
    version = head.version if head else 0
    try:
        stored_head = decode_head(head.value) if head else state.head
    except QuireError as error:
        yield Problem(0, "head", str(error))
        return
    if version != state.version:
        yield Problem(1, "head", f"memory is at version {state.version}, the storage at {version}: refresh() first")
        return
    yield from unreadable(state.storage, state.context, state, found)
    if stored_head != state.head:
        yield Problem(1, "head", "memory and storage disagree")
    for key, cached in state.cached_pages():
        if found.pages.get(key) != cached:
            yield Problem(1, state.index(key), "memory and storage disagree")
    yield from _check_journal(state)


def _check_journal(state: State) -> Iterator[Problem]:
    first = next(state.storage.scan(state.context, JOURNAL), None)
    expected = first.key if first is not None and _is_fork(first) else 1  # a fork's journal starts where it was made
    for record in state.storage.scan(state.context, JOURNAL):
        if record.key != expected:
            yield Problem(0, f"journal {expected}", f"missing; the next entry is {record.key}")
        expected = record.key + 1
    if expected > state.version + 1:
        text = f"it is an older one: it is at version {state.version}, and the journal goes on to {expected - 1}"
        yield Problem(0, "head", text)
    elif expected != state.version + 1:
        yield Problem(0, f"journal {expected}", f"missing; the context is at version {state.version}")


def _is_fork(record: Record) -> bool:
    try:
        return decode_entry(record.key, record.value).operation == "fork"
    except QuireError:  # named already, as a record that cannot be read
        return False


class _Tree:
    """The tree as stored."""

    def __init__(self, state: State, found: _Found) -> None:
        self.state = state
        self.found = found
        self.pages: dict[int, PageRecord] = {}
        self.highest: dict[int, int] = {}
        self.strays: list[int] = []
        for key, page in found.pages.items():  # in the order of their keys
            number = segment_number(key)
            if number >= len(state.counters):
                self.strays.append(key)
                continue
            self.highest[number] = page_number(key)
            if isinstance(page, PageRecord):
                self.pages[key] = page

    def problems(self) -> Iterator[Problem]:
        for key in self.strays:
            yield Problem(5, f"page {key}", "its segment never existed")
        yield from self._lost()
        yield from self._segments()
        children = Counter(page.parent for page in self.pages.values() if page.parent is not None and not page.is_cold)
        for page in self.pages.values():
            yield from self._page(page)
        if all(self._reaches_top(page) for page in self.pages.values()):
            yield from self._shown()
        yield from self._derived(children)
        yield from self._messages()

    def _lost(self) -> Iterator[Problem]:
        """Pages and notes that the journal tells of: what was taken away leaves something under its key."""
        state = self.state
        kept = {PAGE_CODE: self.found.pages.keys(), NOTE_CODE: self.found.keys[NOTE]}
        told: set[tuple[int, int]] = set()
        for record in state.storage.scan(state.context, JOURNAL):
            for touched in decode_entry(record.key, record.value).touched:
                stored = kept.get(touched.family)
                if stored is not None and touched.key not in stored and (touched.family, touched.key) not in told:
                    told.add((touched.family, touched.key))
                    yield Problem(0, self._called(touched), f"missing; journal entry {record.key} tells of it")

    def _called(self, touched: Touched) -> str:
        if touched.family == PAGE_CODE:
            return _called(self.state, touched.key)
        seq = touched.key - CHECKPOINTS
        return f"checkpoint at entry {seq}" if seq >= 0 else f"note {touched.key}"

    def _messages(self) -> Iterator[Problem]:
        """Every message stands on one page at most, is stored, and is marked only where it is out of the tree."""
        state = self.state
        stored = self.found.keys[MESSAGE]
        holder: dict[int, int] = {}
        for page in self.pages.values():
            where, header = state.index(page.key), page.header
            for number in header.numbers:
                if number not in stored or number >= state.next_message:
                    yield Problem(0, where, f"its message {number} is missing")
                if holder.setdefault(number, page.key) != page.key:
                    yield Problem(1, where, f"its message {number} stands on {state.index(holder[number])!r} too")
            if header.mark is not Mark.NONE and not page.is_cold:
                yield Problem(2, where, f"it is marked as {header.mark.name.lower()} and in the tree")
        start = 0
        for count, batch in enumerate(state.batches(), 1):
            if not start <= batch.boundary <= state.next_message:
                yield Problem(0, f"batch {count}", f"its boundary {batch.boundary} is out of order")
            start = batch.boundary

    def _segments(self) -> Iterator[Problem]:
        state = self.state
        for number, counter in enumerate(state.counters):
            segment = state.segment(number)
            root = page_key(number, 0)
            live = segment is not None and not segment.gone
            if live is not (root in self.pages):
                yield Problem(3, state.index(root), "a live segment has exactly one root, a removed one none")
            if self.highest.get(number, 0) >= counter.next:
                yield Problem(1, counter.segment, f"its counter {counter.next} is not above all numbers in use")

    def _page(self, page: PageRecord) -> Iterator[Problem]:
        where = self.state.index(page.key)
        header = page.header
        segment = self.state.segment(segment_number(page.key))
        if segment is None or segment.gone:
            yield Problem(5, where, "its segment was removed")
        if page.is_root is not (page.parent is None):
            yield Problem(2, where, "only a root has no parent")
        if page.is_root and header.lifecycle is not Lifecycle.ACTIVE:
            yield Problem(3, where, "a root is never archived")
        if header.author >= len(self.state.head.actors):
            yield Problem(0, where, f"its author {header.author} is unknown")
        if header.folder and header.body:
            yield Problem(2, where, "a folder has no body")
        if header.body and self.state.storage.get(self.state.context, BODY, header.body) is None:
            yield Problem(0, where, f"its body {header.body} is missing")
        if page.parent is not None and not page.is_cold:
            yield from self._place(page, page.parent, where)

    def _place(self, page: PageRecord, above: int, where: str) -> Iterator[Problem]:
        parent = self.pages.get(above)
        if parent is None:
            yield Problem(2, where, f"its parent {self.state.index(above)!r} does not exist")
        elif not parent.header.folder:
            yield Problem(2, where, f"its parent {self.state.index(above)!r} is not a ContentsPage")
        elif segment_number(parent.key) != segment_number(page.key):
            yield Problem(5, where, f"its parent {self.state.index(above)!r} is in another segment")
        if not self._reaches_top(page):
            yield Problem(4, where, "it lies in its own subtree")

    def _reaches_top(self, page: PageRecord) -> bool:
        seen = set()
        above: PageRecord | None = page
        while above is not None and above.parent is not None and not above.is_cold:
            if above.key in seen:
                return False
            seen.add(above.key)
            above = self.pages.get(above.parent)
        return above is not None

    def _shown(self) -> Iterator[Problem]:
        for page in self.pages.values():
            where = self.state.index(page.key)
            header = page.header
            if page.is_root and header.visibility is Visibility.HIDDEN:
                try:
                    check_root_can_hide(self.state, page)
                except QuireError as error:
                    yield Problem(3, where, str(error))
            if header.pinned:
                whole = (
                    header.visibility is Visibility.EXPANDED
                    and self.state.effective_lifecycle(page) is Lifecycle.ACTIVE
                )
                if not whole:
                    yield Problem(6, where, "it is pinned and not shown whole")

    def _derived(self, children: "Counter[int]") -> Iterator[Problem]:
        storage, context = self.state.storage, self.state.context
        tallies, unread = self._tallies()
        if self.state.head.tally_of >= 0:
            tallies[self.state.head.tally_of] = self.state.head.tally
        for key in (tallies.keys() | children.keys()) - unread:
            if tallies.get(key, 0) != children[key]:
                text = f"it counts {tallies.get(key, 0)} children, not {children[key]}"
                yield Problem(2, self.state.index(key), text, derived=True)
        for key in children:
            listed = [page.key for page in self.state.members(key)]
            if len(listed) != len(set(listed)) or len(listed) != children[key]:
                yield Problem(2, self.state.index(key), "it does not list every child once")
        pinned = {page.key for page in self.pages.values() if page.header.pinned}
        for key in pinned ^ {record.key for record in storage.scan(context, PIN)}:
            yield Problem(2, self.state.index(key), "its pin and the list of pins disagree", derived=True)

    def _tallies(self) -> tuple[dict[int, int], set[int]]:
        """The counts that are kept, and those that cannot be read: they were told as records."""
        tallies: dict[int, int] = {}
        unread: set[int] = set()
        for record in self.state.storage.scan(self.state.context, TALLY):
            try:
                tallies[record.key] = decode_tally(record.key, record.value)
            except QuireError:
                unread.add(record.key)
        return tallies, unread
