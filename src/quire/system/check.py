"""Check: verify every invariant of a context against the stored records."""

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
    decode_tally,
    page_key,
    page_number,
    segment_number,
)
from quire.core.state import State
from quire.errors import Corrupt, QuireError
from quire.model.pages import Lifecycle, Mark, Visibility
from quire.storage.base import (
    BODY,
    JOURNAL,
    LAYOUT,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SHEET,
    TALLY,
    VECTOR,
    Family,
    Record,
    Storage,
    read_snapshot,
)
from quire.system.rules import check_root_can_hide

_DERIVED: tuple[Family, ...] = (TALLY, VECTOR, LAYOUT, SHEET)
"""Families whose records can be computed from others."""


class Problem(Struct, frozen=True):
    """One broken invariant: its number in the contract (0: a stored record), the place, and the text.

    A `derived` problem is in records that can be computed again from others.
    """

    invariant: int
    where: str
    text: str
    derived: bool = False


def check(state: State) -> list[Problem]:
    """Return all problems of a context at one moment, or an empty list. Other writers may change it meanwhile.

    Raises `NoSuchContext` if it was deleted.
    """
    return read_snapshot(state.storage, state.context, lambda snapshot: _check_against(state, snapshot))


def _check_against(state: State, snapshot: Storage) -> list[Problem]:
    """Check the stored context, and compare it with memory unless another writer changed it since."""
    head = snapshot.head(state.context)
    if head is None and (deleted := state.deletion_error()):
        raise deleted
    try:
        stored = state.reopen(snapshot)
    except QuireError as error:
        return [Problem(0, "head", str(error)), *find_unreadable(snapshot, state.context)]
    found = _Records()
    problems = check_stored(stored, found)
    if state.is_at(head):
        problems += _compare_memory(state, stored, found)
    elif stored.version < state.version and stored.head.identity == state.head.identity:
        problems.append(Problem(1, "head", f"memory has version {state.version}, the storage {stored.version}"))
    return problems


def check_stored(state: State, found: "_Records | None" = None) -> list[Problem]:
    """Return the problems of a context in a storage that does not change meanwhile, such as a snapshot."""
    found = found or _Records()
    problems = [*find_unreadable(state.storage, state.context, state, found), *_check_journal(state)]
    if any(not problem.derived for problem in problems):  # further checks need readable records
        return problems
    return [*problems, *_Tree(state, found).problems()]


def _compare_memory(state: State, stored: State, found: "_Records") -> Iterator[Problem]:
    if stored.head != state.head:
        yield Problem(1, "head", "memory and storage disagree")
    for key, cached in state.cached_pages():
        if found.pages.get(key) != cached:
            yield Problem(1, state.index(key), "memory and storage disagree")


class _Records:
    """The result of reading every record: all pages, and the keys of the messages and notes."""

    def __init__(self) -> None:
        self.pages: dict[int, PageRecord | Gone] = {}
        self.keys: dict[Family, set[int]] = {MESSAGE: set(), NOTE: set()}

    def take(self, family: Family, key: int, value: object) -> None:
        if isinstance(value, PageRecord | Gone):
            self.pages[key] = value
        elif family in self.keys:
            self.keys[family].add(key)


def find_unreadable(
    storage: Storage, context: str, state: State | None = None, found: _Records | None = None
) -> Iterator[Problem]:
    """Yield a problem for every record that cannot be decoded. `state` is only used to name pages."""
    for family, decode in DECODERS.items():
        for record in storage.scan(context, family):
            try:
                value = decode(record)
                if found is not None:
                    found.take(family, record.key, value)
            except QuireError as error:
                where, text = f"{family} {record.key}", str(error)
                if state is not None and family == PAGE:
                    where = _name(state, record.key)
                    text = f"page {where} {error.fact}" if isinstance(error, Corrupt) and error.record else text
                yield Problem(0, where, text, derived=family in _DERIVED)


def _name(state: State, key: int) -> str:
    """Return the index of a page; its key if its segment is unknown."""
    return state.index(key) if segment_number(key) < len(state.counters) else f"page {key}"


def _check_journal(state: State) -> Iterator[Problem]:
    first = next(state.storage.scan(state.context, JOURNAL), None)
    expected = first.key if first is not None and _is_fork(first) else 1  # the journal of a fork starts at the fork
    for record in state.storage.scan(state.context, JOURNAL):
        if record.key != expected:
            yield Problem(0, f"journal {expected}", f"missing; the next entry is {record.key}")
        expected = record.key + 1
    if expected > state.version + 1:
        text = f"it is outdated: it has version {state.version}, and the last journal entry is {expected - 1}"
        yield Problem(0, "head", text)
    elif expected != state.version + 1:
        yield Problem(0, f"journal {expected}", f"missing; the context has version {state.version}")


def _is_fork(record: Record) -> bool:
    try:
        return decode_entry(record.key, record.value).operation == "fork"
    except QuireError:  # reported already as an unreadable record
        return False


class _Tree:
    """The stored tree and its checks."""

    def __init__(self, state: State, found: _Records) -> None:
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
        yield from self._check_missing()
        yield from self._check_segments()
        children = Counter(page.parent for page in self.pages.values() if page.parent is not None and not page.is_cold)
        for page in self.pages.values():
            yield from self._check_page(page)
        if all(self._reaches_top(page) for page in self.pages.values()):
            yield from self._check_visible()
        yield from self._check_derived(children)
        yield from self._check_messages()

    def _check_missing(self) -> Iterator[Problem]:
        """Check that every page and note in the journal still has a record: removed ones leave one under their key."""
        state = self.state
        kept = {PAGE_CODE: self.found.pages.keys(), NOTE_CODE: self.found.keys[NOTE]}
        reported: set[tuple[int, int]] = set()
        for record in state.storage.scan(state.context, JOURNAL):
            for touched in decode_entry(record.key, record.value).touched:
                stored = kept.get(touched.family)
                if stored is not None and touched.key not in stored and (touched.family, touched.key) not in reported:
                    reported.add((touched.family, touched.key))
                    yield Problem(0, self._name(touched), f"missing; journal entry {record.key} has it")

    def _name(self, touched: Touched) -> str:
        if touched.family == PAGE_CODE:
            return _name(self.state, touched.key)
        seq = touched.key - CHECKPOINTS
        return f"checkpoint at entry {seq}" if seq >= 0 else f"note {touched.key}"

    def _check_messages(self) -> Iterator[Problem]:
        """Check that every message is stored, is on at most one page, and is marked only outside the tree."""
        state = self.state
        stored = self.found.keys[MESSAGE]
        holder: dict[int, int] = {}
        for page in self.pages.values():
            where, header = state.index(page.key), page.header
            for number in header.numbers:
                if number not in stored or number >= state.next_message:
                    yield Problem(0, where, f"its message {number} is missing")
                if holder.setdefault(number, page.key) != page.key:
                    yield Problem(1, where, f"its message {number} is on {state.index(holder[number])!r} too")
            if header.mark is not Mark.NONE and not page.is_cold:
                yield Problem(2, where, f"it is marked as {header.mark.name.lower()} and in the tree")
        start = 0
        for count, batch in enumerate(state.batches(), 1):
            if not start <= batch.boundary <= state.next_message:
                yield Problem(0, f"batch {count}", f"its boundary {batch.boundary} is out of order")
            start = batch.boundary

    def _check_segments(self) -> Iterator[Problem]:
        state = self.state
        for number, counter in enumerate(state.counters):
            segment = state.segment(number)
            root = page_key(number, 0)
            live = segment is not None and not segment.gone
            if live is not (root in self.pages):
                yield Problem(3, state.index(root), "a live segment has exactly one root, a removed one none")
            if self.highest.get(number, 0) >= counter.next:
                yield Problem(1, counter.segment, f"its counter {counter.next} is not above all numbers in use")

    def _check_page(self, page: PageRecord) -> Iterator[Problem]:
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
            yield from self._check_place(page, page.parent, where)

    def _check_place(self, page: PageRecord, above: int, where: str) -> Iterator[Problem]:
        parent = self.pages.get(above)
        if parent is None:
            yield Problem(2, where, f"its parent {self.state.index(above)!r} does not exist")
        elif not parent.header.folder:
            yield Problem(2, where, f"its parent {self.state.index(above)!r} is not a folder")
        elif segment_number(parent.key) != segment_number(page.key):
            yield Problem(5, where, f"its parent {self.state.index(above)!r} is in another segment")
        if not self._reaches_top(page):
            yield Problem(4, where, "it is in its own subtree")

    def _reaches_top(self, page: PageRecord) -> bool:
        seen = set()
        above: PageRecord | None = page
        while above is not None and above.parent is not None and not above.is_cold:
            if above.key in seen:
                return False
            seen.add(above.key)
            above = self.pages.get(above.parent)
        return above is not None

    def _check_visible(self) -> Iterator[Problem]:
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
                    yield Problem(6, where, "it is pinned and not shown in full")

    def _check_derived(self, children: "Counter[int]") -> Iterator[Problem]:
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
        """Return the stored counts, and the keys of those that cannot be read (reported already)."""
        tallies: dict[int, int] = {}
        unread: set[int] = set()
        for record in self.state.storage.scan(self.state.context, TALLY):
            try:
                tallies[record.key] = decode_tally(record.key, record.value)
            except QuireError:
                unread.add(record.key)
        return tallies, unread
