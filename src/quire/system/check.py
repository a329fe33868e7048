"""Check: verify every invariant of a context against the stored records."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from quire.core.integrity import Damage, RecordCheck, check_records, name_of, snapshot_of
from quire.core.records import PageRecord, page_key, page_number, segment_number
from quire.core.state import State, deleted_context
from quire.errors import Corrupt, QuireError
from quire.model.pages import Mark
from quire.storage.contract import PAGE, Storage
from quire.system.rules import broken_rules


class Problem(Struct, frozen=True):
    """One broken invariant: its number, the place, and the text.

    The numbers are 0: records are readable; 1: memory, counters and messages agree; 2: pages and folders agree;
    3: every segment has one visible root; 4: no cycles; 5: a page is in its segment; 6: a pinned page is shown in full.
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
    with snapshot_of(state.storage, state.context) as (snapshot, found):
        if found is None:
            if state.version:
                raise deleted_context(state.context)
            return []
        problems, stored = examine_records(snapshot, state.context, RecordCheck(snapshot, found))
        if stored is not None and (stored.id, stored.version) == (state.id, state.version):
            problems += _compare_memory(state, stored)
        return problems


def check_whole(state: State) -> None:
    """Raise `Corrupt` if a stored record of this state is damaged or missing. An outdated state is not checked."""
    if state.version and state.is_newest():  # otherwise another writer changed it: the commit is refused
        with snapshot_of(state.storage, state.context) as (snapshot, found):
            if found is not None:
                check_records(snapshot, state.context, found)


def examine_records(snapshot: Storage, context: str, records: RecordCheck) -> tuple[list[Problem], State | None]:
    """Return the problems of a context in a snapshot, and its state if that can be loaded."""
    damages = list(records.damages())
    try:
        state = State(snapshot, context, max_pages=1_000, max_bytes=1 << 20)
    except QuireError as error:
        found = [_problem(None, damage) for damage in damages]
        return found or [Problem(0, "head", str(error))], None
    problems = [_problem(state, damage) for damage in damages]
    if all(problem.derived for problem in problems):  # further checks need readable records
        problems += _tree_problems(state)
    return problems, state


def _compare_memory(state: State, stored: State) -> Iterator[Problem]:
    if stored.head != state.head:
        yield Problem(1, "head", "memory and storage disagree")
    for key, cached in state.cached_pages():
        if stored.stored.page(key) != cached:
            yield Problem(1, state.index(key), "memory and storage disagree")


def _problem(state: State | None, damage: Damage) -> Problem:
    """Return a damaged record as a problem. `state` is used to name pages."""
    family, key, text, derived, error, needed_by = damage
    if family == "head":
        return Problem(0, family, text)
    where = name_of(family, key).replace(" record", "")
    if state is not None and (family == PAGE or needed_by >= 0):
        where = _name(state, key if needed_by < 0 else needed_by)
        if family == PAGE and isinstance(error, Corrupt) and error.record:
            text = f"page {where} {error.fact}"
    return Problem(2 if derived and error is None and family == PAGE else 0, where, text, derived=derived)


def _name(state: State, key: int) -> str:
    """Return the index of a page; its key if its segment is unknown."""
    return state.index(key) if segment_number(key) < len(state.counters) else f"page {key}"


def _tree_problems(state: State) -> Iterator[Problem]:
    """Yield what is wrong in the stored tree."""
    pages: dict[int, PageRecord] = {}
    highest: dict[int, int] = {}
    for key, page in state.stored.pages():  # in the order of their keys
        if segment_number(key) >= len(state.counters):
            yield Problem(5, f"page {key}", "its segment never existed")
            continue
        highest[segment_number(key)] = page_number(key)
        if isinstance(page, PageRecord):
            pages[key] = page
    yield from _segment_problems(state, pages, highest)
    sound: set[int] = set()
    for key, page in pages.items():
        yield from (Problem(number, state.index(key), text) for number, text in broken_rules(state, page, sound))
        if page.header.author >= len(state.head.actors):
            yield Problem(0, state.index(key), f"its author {page.header.author} is unknown")
        if page.header.folder and page.header.body:
            yield Problem(2, state.index(key), "a folder has no body")
    parents = (page.parent for page in pages.values() if page.parent is not None and not page.is_cold)
    for folder, count in Counter(parents).items():
        listed = [page.key for page in state.stored.members(folder)]
        if not len(listed) == len(set(listed)) == count:
            yield Problem(2, state.index(folder), "it does not list every child once")
    yield from _message_problems(state, pages)


def _segment_problems(state: State, pages: dict[int, PageRecord], highest: dict[int, int]) -> Iterator[Problem]:
    for number, counter in enumerate(state.counters):
        segment, root = state.segment(number), page_key(number, 0)
        is_live = segment is not None and not segment.gone
        if is_live is not (root in pages):
            yield Problem(3, state.index(root), "a live segment has exactly one root, a removed one none")
        if highest.get(number, 0) >= counter.next:
            yield Problem(1, counter.segment, f"its counter {counter.next} is not above all numbers in use")


def _message_problems(state: State, pages: dict[int, PageRecord]) -> Iterator[Problem]:
    """Check that no two pages share a message, no page in the tree is marked, and batches are in order."""
    holder: dict[int, int] = {}
    for page in pages.values():
        where, header = state.index(page.key), page.header
        for number in header.numbers:
            if number >= state.next_message:
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
