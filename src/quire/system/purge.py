"""Purge: remove pages with every trace of them, from a context and its forks.

A purge removes content from pages, texts, messages, history, deferred changes, vectors and the search index, and from
the bytes of the store. Other pages may repeat the content: chapters that were above a purged page at any time, and
summaries of it. These are renamed and summarised again, and their old words are removed from the history too.
`scrub_bytes` erases the bytes of deleted records.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.entries import PURGE
from quire.core.exchanges import rename_chapter
from quire.core.lease import companion_of
from quire.core.plan import Plan
from quire.core.reader import merge_gaps
from quire.core.records import (
    PAGE_CODE,
    PURGED,
    Gone,
    Header,
    PageRecord,
    Touched,
    decode_call,
    decode_deferred_change,
    decode_entry,
    decode_head,
    decode_message,
    decode_page,
    encode_page,
    encode_record,
)
from quire.core.state import State
from quire.core.summary_board import board_of
from quire.errors import Busy, Corrupt, Hint, InvalidOperation, InvalidValue, StorageFailure, short_repr
from quire.model.pages import Form, Mark, PageIndex
from quire.search.indexing import refresh_index
from quire.search.vectors import delete_vectors
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    JOURNAL,
    MESSAGE,
    PAGE,
    Delete,
    Family,
    Put,
    Remainder,
    Storage,
    SupportsScrub,
    list_contexts,
)
from quire.storage.overlay import OverlayStorage
from quire.system.compressed_summaries import remake_summary
from quire.system.journal import page_before
from quire.system.rules import check_not_waiting, pinned_error

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
        storage, context = state.storage, state.context
        for record in storage.scan(context, PAGE):
            page = decode_page(record, state.mark)
            self._add(record.key, page)
            if isinstance(page, PageRecord) and page.parent is not None:
                self.below.setdefault(page.parent, []).append(page.key)
        for record in storage.scan(context, JOURNAL):
            self.first = min(self.first, record.key)
            for touched in decode_entry(record.key, record.value, state.mark).touched:
                if touched.family == PAGE_CODE:
                    self._add(touched.key, page_before(touched))
        for record in storage.scan(context, ANCHOR):
            change = decode_deferred_change(record.key, record.value, state.mark)
            touched = Touched(PAGE_CODE, record.key, change.before, change.group, change.order)
            self._add(record.key, page_before(touched))

    def unreferenced_bodies(self) -> set[int]:
        """Return the keys of texts to which no stored version of a page refers.

        A fork has such texts, because it does not have the journal of its origin.
        """
        known = {header.body for headers in self.headers.values() for header in headers}
        return {record.key for record in self.state.storage.scan(self.state.context, BODY)} - known

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
        self.numbers = {number for header in own for number in header.numbers} | set(self._messages_of_pages())

    def is_empty(self) -> bool:
        """Return True if an earlier purge removed everything."""
        pages = (self.state.page(key) for key in self.keys)
        return not (self.bodies or self.numbers) and all(isinstance(page, Gone) and page.purged for page in pages)

    def summaries(self) -> dict[int, int | None]:
        """Return the summaries of purged pages, with the folders of these pages."""
        pages = (page for key in self.keys if isinstance(page := self.state.page(key), PageRecord))
        return {page.header.standin: page.parent for page in pages if page.header.mark is Mark.COMPRESSED}

    def records(self) -> tuple[tuple[Family, set[int]], ...]:
        """Return the keys to delete, apart from pages, by family."""
        return (BODY, self.bodies), (MESSAGE, self.numbers)

    def kept_records(self) -> dict[Family, set[int]]:
        """Return the keys of texts and messages of all stored versions of pages that are not purged here."""
        purged = self.keys | self.derived
        kept = [header for key, headers in self.history.headers.items() if key not in purged for header in headers]
        return {BODY: {header.body for header in kept}, MESSAGE: {number for one in kept for number in one.numbers}}

    def counterparts(self, other: PageHistory) -> set[int]:
        """Return the keys of the same pages in a context with the same origin."""
        bodies = set(_same_records(self.state, other.state, BODY, self.bodies))
        numbers = set(_same_records(self.state, other.state, MESSAGE, self.numbers))
        return {key for key in self.keys if self._is_same_page(key, other, bodies, numbers)}

    def _is_same_page(self, key: int, other: PageHistory, bodies: set[int], numbers: set[int]) -> bool:
        theirs = other.headers.get(key, ())
        if not theirs:  # removed before the fork: only a `Gone` is left there
            return bool(bodies or numbers) and isinstance(other.state.page(key), Gone)
        if any(header.body in bodies or not numbers.isdisjoint(header.numbers) for header in theirs):
            return True
        made = {(header.born, header.created) for header in self.history.headers.get(key, ())}
        older = max(self.history.first, other.first)
        return any((header.born, header.created) in made and header.born < older for header in theirs)

    def _derived_from(self, key: int) -> Iterator[int]:
        history = self.history
        yield from (parent for parent in history.parents.get(key, ()) if history.had_form(parent, Form.CHAPTER))
        yield from (header.standin for header in history.headers.get(key, ()) if header.standin)
        if history.had_form(key, Form.SUMMARY, Form.CHAPTER):
            yield from history.moved.get(key, ())

    def _messages_of_pages(self) -> Iterator[int]:
        for record in self.state.storage.scan(self.state.context, MESSAGE):
            if decode_message(record.key, record.value, self.state.mark).page in self.keys:
                yield record.key


def purge(plan: Plan, traces: Traces) -> int:
    """Plan to remove pages with every trace; return how many journal entries are rewritten."""
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
    return _erase(plan, traces)


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
        index = plan.index(key)
        if page.is_root:
            raise InvalidOperation(f"Cannot purge {index!r}: it is the root of its segment; purge the pages below it.")
        if page.header.pinned:
            raise pinned_error(index, "purge", index)
        if page.header.form is Form.WINDOW:
            raise InvalidOperation(f"Cannot purge {index!r}: it is an open window; close it first.")
        check_not_waiting(plan, page, "purge")


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


def _erase(plan: Plan, traces: Traces) -> int:
    """Plan the writes to records that only a purge changes; return how many journal entries are among them."""
    numbering = plan.state.numbering()
    gone = sorted(number for number in traces.numbers if numbering.index(number) is not None)
    plan.destroyed_messages.update(gone)
    if gone:
        old = plan.note(PURGED)
        plan.put_note(PURGED, gaps=merge_gaps(old.gaps if old else (), gone))
    return _erase_records(plan, traces)


def _erase_records(plan: Plan, traces: Traces) -> int:
    """Plan to erase texts, vectors, calls and earlier versions; return how many journal entries are rewritten."""
    storage, context = plan.state.storage, plan.state.context
    kept = {page.header.body for page in plan.segment_pages()}  # a fork may have the same text on another page
    bodies = traces.bodies | traces.history.unreferenced_bodies()
    plan.erasures += [Delete(BODY, body) for body in sorted(bodies - kept)]
    plan.erasures += delete_vectors(storage, context, plan.state.mark, traces.keys | traces.derived)
    for record in storage.scan(context, CALL):
        pages = decode_call(record.key, record.value, plan.state.mark)
        left = tuple(page for page in pages if page not in traces.keys)
        if left != pages:
            value = encode_record(record.key, left, plan.state.mark)
            plan.erasures.append(Put(CALL, record.key, value) if left else Delete(CALL, record.key))
    entries = 0
    for record in storage.scan(context, JOURNAL):
        entry = decode_entry(record.key, record.value, plan.state.mark)
        touched = tuple(_blank_touched(item, traces) for item in entry.touched)
        if touched != entry.touched:
            value = encode_record(record.key, replace(entry, touched=touched), plan.state.mark)
            plan.erasures.append(Put(JOURNAL, record.key, value))
            entries += 1
    return entries


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
    return replace(touched, before=encode_page(touched.key, header, touched.group, touched.order))


def _same_records(here: State, there: State, family: Family, keys: Iterable[int]) -> Iterator[int]:
    """Yield the keys under which two contexts hold the same record."""
    for key in keys:
        record = here.storage.get(here.context, family, key)
        if record is not None and record == there.storage.get(there.context, family, key):
            yield key


def share_traces(found: Sequence[Traces]) -> None:
    """Add to the traces of each context the texts and messages that the traces of another context name.

    A key is added if the context holds the same record under it and no page that is kept there uses the record. This is
    needed for older texts of a page: only the journal of the context that changed the page refers to them, not a fork.
    """
    claimed: dict[tuple[Family, int], set[bytes]] = {}
    for traces in found:
        for family, keys in traces.records():
            for key in keys:
                record = traces.state.storage.get(traces.state.context, family, key)
                if record is not None:
                    claimed.setdefault((family, key), set()).add(record.value)
    for traces in found:
        mine, kept = dict(traces.records()), traces.kept_records()
        for (family, key), values in claimed.items():
            record = traces.state.storage.get(traces.state.context, family, key)
            if record is not None and record.value in values and key not in kept[family]:
                mine[family].add(key)


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
        found += _find_in_relatives(engine, mine, unreadable)
        share_traces([traces for _, traces in found])
    pages = () if mine.is_empty() else tuple(state.index(key) for key in sorted(mine.keys))
    done = [(one, traces, *_plan_purge(one, actor, traces, engine)) for one, traces in found if not traces.is_empty()]
    for one, traces, plan, _ in reversed(
        done
    ):  # this context is last: after an interruption, the same call does what is left
        # planned here and not above: contexts can share one message record, and each must read the change of the last
        plan.erase_tails(traces.keys | traces.derived, set(range(one.state.next_message)) - traces.numbers)
        one.commit(plan, PURGE)
        one.reload()
    boards = [left for one, *_ in done for left in drop_board(one.state.storage, one.state.context)]
    names = [one.state.context for one, *_ in done]
    everywhere = [one.state.context for one, _ in found]
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
        entries=sum(entries for *_, entries in done),
        contexts=tuple(names),
        scrubbed=not problem,
        problem=problem,
    )


def _find_in_relatives(engine: Engine, mine: Traces, unreadable: list[str]) -> Iterator[tuple[Engine, Traces]]:
    for name in _relatives(mine.state, unreadable):
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


def _plan_purge(engine: Engine, actor: str, traces: Traces, caller: Engine) -> tuple[Plan, int]:
    """Return the planned purge of one context and the number of journal entries that it rewrites.

    An error names the context, and so do its hints if the context is not that of the caller.
    """
    plan = engine.begin(actor)
    try:
        return plan, purge(plan, traces)
    except InvalidOperation as error:
        name = engine.state.context
        hints = error.hints if engine is caller else [hint._replace(context=name) for hint in error.hints]
        raise InvalidOperation(f"In context {name!r}: {error.fact}", *hints) from None


def _relatives(state: State, unreadable: list[str]) -> Iterator[str]:
    """Yield the names of the contexts with the same origin as this one; collect those with a damaged head."""
    storage = state.storage
    family = state.head.family or state.head.identity
    for name in list(list_contexts(storage)):
        try:
            head = storage.head(name) if name != state.context else None
            other = decode_head(head.value) if head is not None and head.version > 0 else None
        except Corrupt:
            unreadable.append(name)
            continue
        if other is not None and family in (other.family, other.identity):
            yield name


COPIES: Final = Remainder(
    "copies",
    "Backups, exported and archived files, other stores, snapshots of the disk, your logs, and requests that were sent"
    " to a provider keep their copies.",
)
NOT_SCRUBBED: Final = Remainder(
    "not_scrubbed",
    "The records are deleted, but the store may still hold their bytes until they are overwritten. Forks keep the texts"
    " that they share. Library.scrub() and quire scrub erase the bytes that no context reads.",
)


def scrub_bytes(storage: Storage, contexts: Sequence[str] | None) -> tuple[Remainder, ...]:
    """Erase the deleted bytes of these contexts, or of all; return what is left of them in the store."""
    if not isinstance(storage, SupportsScrub):
        return ()
    companions = [each for name in contexts or () for each in (companion_of(name), board_of(name))]
    try:
        for name in storage.contexts() if contexts is None else contexts:
            refresh_index(storage, name)
        left = storage.scrub(None if contexts is None else [*contexts, *companions])
    except (Busy, StorageFailure) as error:
        return (Remainder(error.code, str(error)),)
    return (Remainder("server", left),) if left else ()


def drop_board(storage: Storage, context: str) -> tuple[Remainder, ...]:
    """Remove the summaries that wait for the next fold: they may contain erased words. Return them if it fails."""
    try:
        storage.drop(board_of(context))
    except StorageFailure as error:
        return (Remainder(error.code, f"Summaries that wait for the next fold remain: {error}"),)
    return ()


def remains_without_scrub(storage: Storage) -> tuple[Remainder, ...]:
    """Return what a removal leaves in a store that is not scrubbed."""
    return (NOT_SCRUBBED,) if isinstance(storage, SupportsScrub) else ()
