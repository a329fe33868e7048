"""Purge: remove pages with every trace of them, from a context and its forks.

A purge removes content from pages, texts, messages, history, deferred changes, vectors and the search index, and from
the bytes of the store. Other pages may repeat the content: chapters that were above a purged page at any time, and
summaries of it. These are renamed and summarised again, and their old words are removed from the history too.
`scrub` erases the bytes of deleted records.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from quire.core.codec import encode_call, touched_page
from quire.core.companion import erase_vectors, ids_with_companions
from quire.core.engine import Engine
from quire.core.entries import PURGE
from quire.core.exchanges import rename_chapter
from quire.core.plan import Erasure, Plan
from quire.core.reader import merge_gaps
from quire.core.records import MESSAGES, PAGE_CODE, PURGED, Gone, Header, PageRecord, Touched
from quire.core.relatives import relatives_of
from quire.core.state import State
from quire.errors import Corrupt, Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.pages import Form, Mark, PageIndex
from quire.storage.contract import CALL, MAX_KEY, TEXT
from quire.storage.overlay import OverlayStorage
from quire.system.compressed_summaries import remake_summary
from quire.system.journal import page_before
from quire.system.rules import check_movable
from quire.system.scrub import drop_board, scrub_bytes

_BLANK = "[purged]"


class PageHistory:
    """All versions of the pages of a context that are still stored: present ones, and those in the journal."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.headers: dict[int, list[Header]] = {}
        self.parents: dict[int, set[int]] = {}
        self.moved: dict[int, set[int]] = {}
        self.below: dict[int, list[int]] = {}
        self.first = state.version
        """The first entry of the journal. Older pages of a fork come from its origin."""
        for key, page in state.stored.pages():
            self._add(key, page)
            if isinstance(page, PageRecord) and page.parent is not None:
                self.below.setdefault(page.parent, []).append(page.key)
        for seq, entry in state.stored.entries():
            self.first = min(self.first, seq)
            for touched in entry.touched:
                if touched.family == PAGE_CODE:
                    self._add(touched.key, page_before(touched))
        for key, change in state.deferred_changes().items():
            self._add(key, page_before(Touched(PAGE_CODE, key, change.before, change.parent, change.rank)))

    def unreferenced_bodies(self) -> set[int]:
        """Return the keys of texts to which no stored version of a page refers.

        A fork has such texts, because it does not have the journal of its origin.
        """
        known = {header.body for headers in self.headers.values() for header in headers}
        return {record.key for record in self.state.storage.scan(self.state.id, TEXT, 0, MESSAGES - 1)} - known

    def had_form(self, key: int, *forms: Form) -> bool:
        """Return True if a page has, or ever had, one of these forms."""
        return any(header.form in forms for header in self.headers.get(key, ()))

    def _add(self, key: int, page: PageRecord | Gone | None) -> None:
        if isinstance(page, PageRecord):
            self.headers.setdefault(key, []).append(page.header)
            if page.parent is not None:
                self.parents.setdefault(key, set()).add(page.parent)
        elif page is not None and page.moved_to >= 0:
            self.moved.setdefault(key, set()).add(page.moved_to)
            self.moved.setdefault(page.moved_to, set()).add(key)


class Traces:
    """The places of a context that hold the content of purged pages.

    `keys` are the purged pages under every key they had, with everything below them. `derived` are the chapters and
    summaries that may repeat their words. `bodies` and `numbers` are the texts and messages to delete.
    """

    def __init__(self, history: PageHistory, keys: Iterable[int], *, derived: bool = True) -> None:
        self.history = history
        self.state = history.state
        self.keys = _closure(keys, lambda key: (*history.moved.get(key, ()), *history.below.get(key, ())))
        direct = [key for purged in self.keys for key in self._derived_from(purged)] if derived else ()
        self.derived = _closure(direct, self._derived_from) - self.keys
        own = [header for key in self.keys for header in history.headers.get(key, ())]
        repeated = [header for key in self.derived for header in history.headers.get(key, ())]
        self.bodies = {header.body for header in (*own, *repeated) if header.body}
        self.numbers = {number for header in own for number in header.numbers}
        messages = self.state.stored.messages(0, MAX_KEY - MESSAGES)
        self.numbers |= {number for number, message, _ in messages if message.page in self.keys}

    def is_empty(self) -> bool:
        """Return True if an earlier purge removed everything."""
        pages = (self.state.page(key) for key in self.keys)
        return not (self.bodies or self.numbers) and all(isinstance(page, Gone) and page.purged for page in pages)

    def summaries(self) -> dict[int, int | None]:
        """Return the summaries of purged pages, with the folders of these pages."""
        pages = (page for key in self.keys if isinstance(page := self.state.page(key), PageRecord))
        return {page.header.standin: page.parent for page in pages if page.header.mark is Mark.COMPRESSED}

    def counterparts(self, other: PageHistory) -> set[int]:
        """Return the keys of the same pages in a context with the same origin: those made by the same entry."""
        return {key for key in self.keys if self._is_same_page(key, other)}

    def _is_same_page(self, key: int, other: PageHistory) -> bool:
        mine, theirs = self.history.headers.get(key, ()), other.headers.get(key, ())
        made = {(header.born, header.created) for header in mine}
        if any((header.born, header.created) in made for header in theirs):
            return True
        is_gone = not theirs and isinstance(other.state.page(key), Gone)  # it was removed there before the fork
        return is_gone and any(header.born < other.first for header in mine)

    def _derived_from(self, key: int) -> Iterator[int]:
        history = self.history
        yield from (parent for parent in history.parents.get(key, ()) if history.had_form(parent, Form.CHAPTER))
        yield from (header.standin for header in history.headers.get(key, ()) if header.standin)
        if history.had_form(key, Form.SUMMARY, Form.CHAPTER):
            yield from history.moved.get(key, ())


def purge(plan: Plan, traces: Traces) -> None:
    """Plan to remove pages with every trace."""
    if isinstance(plan.state.storage, OverlayStorage):
        raise InvalidOperation("Changes are held in memory inside a temporary block. Leave the block first.")
    if plan.batches():
        raise InvalidOperation(f"Batch {len(plan.batches())} is open; end or commit it first.")
    _check_can_purge(plan, traces)
    plan.omits_previous = True
    plan.horizon = plan.seq
    plan.apply_deferred()
    plan.layouts = dict.fromkeys(plan.state.layouts())  # the line of a run can have the name of a purged page
    summaries = traces.summaries()
    for key in sorted(traces.keys):
        plan.remove(key, purged=True)
    for summary, folder in summaries.items():
        remake_summary(plan, summary, folder, pinned_too=True)
    for chapter in _deepest_first(plan, traces.derived):
        rename_chapter(plan, chapter)
    _erase_messages(plan, traces)
    _erase_records(plan, traces)


def require_known_pages(state: State, indices: Sequence[PageIndex]) -> list[int]:
    """Return the keys of pages that exist or existed. Raises `InvalidValue`, `NoSuchPage`."""
    if not indices:
        raise InvalidValue("At least one page index is needed.")
    keys = []
    for index in indices:
        key = state.key_of(index)
        if key is None or state.page(key) is None:
            key = state.require_page(index).key  # raises
        keys.append(key)
    return keys


def _check_can_purge(plan: Plan, traces: Traces) -> None:
    for key in sorted(traces.keys):
        page = plan.page(key)
        if not isinstance(page, PageRecord):
            continue
        check_movable(plan, page, "purge")
        if page.header.form is Form.WINDOW:
            raise InvalidOperation(f"Cannot purge {plan.index(key)!r}: it is an open window; close it first.")


def _deepest_first(plan: Plan, keys: Iterable[int]) -> list[int]:
    """Return the existing chapters among these pages, deeper ones first."""
    found = [page for key in keys if isinstance(page := plan.page(key), PageRecord) and page.header.folder]
    depths = {page.key: sum(1 for _ in plan.ancestors(page)) for page in found}
    return sorted(depths, key=lambda key: (-depths[key], key))


def forget_pages(plan: Plan, keys: Collection[int]) -> None:
    """Plan to remove pages with their earlier versions in the journal. Chapters and summaries of them stay."""
    plan.omits_previous = True
    traces = Traces(PageHistory(plan.state), keys, derived=False)
    for key in sorted(traces.keys):
        page = plan.page(key)
        plan.remove(key, page.moved_to if isinstance(page, Gone) else -1)
    _erase_records(plan, traces)


def _erase_messages(plan: Plan, traces: Traces) -> None:
    """Plan to erase messages. Their numbers stay in use."""
    numbering = plan.state.numbering()
    gone = sorted(number for number in traces.numbers if numbering.index(number) is not None)
    plan.destroyed_messages.update(gone)
    if gone:
        old = plan.note(PURGED)
        plan.put_note(PURGED, gaps=merge_gaps(old.gaps if old else (), gone))


def _erase_records(plan: Plan, traces: Traces) -> None:
    """Plan to erase texts, calls and earlier versions."""
    state = plan.state
    kept = {page.header.body for page in plan.segment_pages()}  # a fork may have the same text on another page
    bodies = (traces.bodies | traces.history.unreferenced_bodies()) - kept
    texts = state.storage.get(state.id, TEXT, sorted(bodies))
    plan.erasures += [Erasure(TEXT, record.key) for record in texts if record is not None]
    for record in state.storage.scan(state.id, CALL):
        pages = state.callers(record.key)
        left = tuple(page for page in pages if page not in traces.keys)
        if left != pages:
            plan.erasures.append(Erasure(CALL, record.key, encode_call(record.key, left) if left else None))
    for seq, entry in state.stored.entries():
        touched = tuple(_blank_touched(item, traces) for item in entry.touched)
        if touched != entry.touched:
            plan.rewritten[seq] = replace(entry, touched=touched)


def _blank_touched(touched: Touched, traces: Traces) -> Touched:
    if touched.family != PAGE_CODE or touched.before is None:
        return touched
    if touched.key in traces.keys:
        return Touched(PAGE_CODE, touched.key)
    if touched.key not in traces.derived:
        return touched
    page = page_before(touched)
    if not isinstance(page, PageRecord):
        return touched
    header = replace(page.header, name=_BLANK, description="", summary_tokens=0, body=0, meta=b"")
    return touched_page(touched.key, replace(page, header=header))


def _closure(start: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    """Return all keys that can be reached from `start` by `following`."""
    found: set[int] = set()
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += following(key)
    return found


class Purged(Struct, frozen=True, kw_only=True):
    """The result of a purge: the purged pages by the indices they had, the number of texts and messages, the contexts.

    If an earlier purge removed everything, there are no pages and no contexts, and nothing is committed. `entries` is
    the number of rewritten journal entries. `seq` is the entry of the purge, which contains no text. If the bytes of
    the store could not be cleared, `scrubbed` is False and `problem` says why: call `scrub()` again later.
    """

    seq: int
    pages: tuple[PageIndex, ...]
    texts: int
    messages: int
    entries: int
    contexts: tuple[str, ...]
    scrubbed: bool = True
    problem: str = ""


def purge_pages(engine: Engine, actor: str, indices: Sequence[PageIndex], *, forks: bool) -> Purged:
    """Purge pages here and, with `forks`, in every context with the same origin. The caller holds the lock."""
    state = engine.current()
    mine = Traces(PageHistory(state), require_known_pages(state, indices))
    found = [(engine, mine)]
    unreadable: list[str] = []
    if forks:
        relatives = relatives_of(state.storage, state.context, state.head)
        unreadable = relatives.unreadable
        found += _find_in(engine, mine, relatives.forks + relatives.others)
    pages = () if mine.is_empty() else tuple(state.index(key) for key in sorted(mine.keys))
    done = [(one, traces, _plan_purge(one, actor, traces, engine)) for one, traces in found if not traces.is_empty()]
    for one, traces, plan in reversed(done):  # this context is last: after an interruption, the same call continues
        plan.erase_tails(traces.keys | traces.derived, set(range(one.state.next_message)) - traces.numbers)
        one.commit(plan, PURGE)
        one.reload()
        erase_vectors(one.state.storage, one.state.context, traces.keys | traces.derived)
    names = [one.state.context for one, *_ in done]
    boards = [left for name in names for left in drop_board(state.storage, name)]
    everywhere = [id_ for one, _ in found for id_ in ids_with_companions(state.storage, one.state.context)]
    left = [each.text for each in (*boards, *scrub_bytes(state.storage, everywhere))]
    if unreadable:
        listed = ", ".join(map(short_repr, unreadable))
        left.append(f"The heads of these contexts cannot be read, so they may be forks: {listed}.")
    problem = " ".join(left)
    return Purged(
        seq=engine.state.version,
        pages=pages,
        texts=len(mine.bodies),
        messages=len(mine.numbers),
        entries=sum(len(plan.rewritten) for *_, plan in done),
        contexts=tuple(names),
        scrubbed=not problem,
        problem=problem,
    )


def _find_in(engine: Engine, mine: Traces, names: Iterable[str]) -> Iterator[tuple[Engine, Traces]]:
    """Yield the contexts that have the same pages, with their traces there."""
    for name in names:
        try:
            other = engine.open_context(name)
            history = PageHistory(other.state)
            keys = mine.counterparts(history)
            found = Traces(history, keys) if keys else None
        except Corrupt as error:
            text = f"Context {name!r} has the same origin, and it is damaged: {error}"
            raise Corrupt(text, Hint("doctor", purpose="to list all damage", context=name)) from error
        if found is not None:
            yield other, found


def _plan_purge(engine: Engine, actor: str, traces: Traces, caller: Engine) -> Plan:
    """Return the planned purge of one context.

    An error names the context, and so do its hints if the context is not that of the caller.
    """
    plan = engine.begin(actor)
    try:
        purge(plan, traces)
    except InvalidOperation as error:
        name = engine.state.context
        hints = error.hints if engine is caller else [hint._replace(context=name) for hint in error.hints]
        raise InvalidOperation(f"In context {name!r}: {error.fact}", *hints) from None
    return plan
