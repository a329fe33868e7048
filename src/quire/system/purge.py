"""Planning a purge: pages leave with every trace of them, in pages, texts, messages, history, anchors and vectors.

Two kinds of other pages may tell of what leaves: chapters that stood above it at any time, and summaries that stand for
it. Those are called and summed up anew, and what they said before is taken out of the history too.

Carrying out a purge: in the forks of a context, in the context itself, in search, and in the bytes of the store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from quire.core.chapters import rename_chapter
from quire.core.engine import Engine
from quire.core.numbering import merge_gaps
from quire.core.plan import Plan
from quire.core.records import (
    PAGE_CODE,
    PURGED,
    EntryRecord,
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
    encode_record,
)
from quire.core.state import State
from quire.errors import Busy, InvalidOperation, InvalidValue, StorageFailure
from quire.model.pages import Form, Mark, PageIndex
from quire.search.indexing import PURGE, index_of
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    JOURNAL,
    MESSAGE,
    PAGE,
    VECTOR,
    Delete,
    Family,
    Put,
    Record,
    Storage,
    SupportsScrub,
)
from quire.storage.overlay import OverlayStorage
from quire.system.compressed_summaries import remake_summary
from quire.system.rules import check_not_waiting

_BLANK = "[purged]"


class Written:
    """Everything that was ever written under the keys of a context's pages, as far as it is still there."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.headers: dict[int, list[Header]] = {}
        self.parents: dict[int, set[int]] = {}
        self.moved: dict[int, set[int]] = {}
        self.below: dict[int, list[int]] = {}
        self.first = state.version
        """The first entry of the journal: what is older than that was there before it, as in a fork."""
        storage, context = state.storage, state.context
        for record in storage.scan(context, PAGE):
            page = decode_page(record)
            self._note(record.key, page)
            if isinstance(page, PageRecord) and page.parent is not None:
                self.below.setdefault(page.parent, []).append(page.key)
        for record in storage.scan(context, JOURNAL):
            self.first = min(self.first, record.key)
            for touched in decode_entry(record.key, record.value).touched:
                if touched.family == PAGE_CODE and touched.before is not None:
                    self._note(touched.key, _page_in(touched.key, touched.before, touched.group, touched.order))
        for record in storage.scan(context, ANCHOR):
            anchor = decode_deferred_change(record.key, record.value)
            if anchor.before is not None:
                self._note(record.key, _page_in(record.key, anchor.before, anchor.group, anchor.order))

    def unreached(self) -> set[int]:
        """The texts that nothing refers to any more: older ones of pages, whose history went with a fork's origin."""
        known = {header.body for headers in self.headers.values() for header in headers}
        return {record.key for record in self.state.storage.scan(self.state.context, BODY)} - known

    def is_one_of(self, key: int, *forms: Form) -> bool:
        """Whether a page is, or ever was, of such a form."""
        return any(header.form in forms for header in self.headers.get(key, ()))

    def _note(self, key: int, page: PageRecord | Gone) -> None:
        if isinstance(page, PageRecord):
            self.headers.setdefault(key, []).append(page.header)
            if page.parent is not None:
                self.parents.setdefault(key, set()).add(page.parent)
        elif page.moved_to >= 0:
            self.moved.setdefault(key, set()).add(page.moved_to)
            self.moved.setdefault(page.moved_to, set()).add(key)


class Traces:
    """Where a context tells of pages.

    `keys` are the pages that leave: those asked for, under every index they had, and everything below them. `tellers`
    are the chapters and summaries that may tell of them. `bodies` and `numbers` are the texts and messages that go.
    """

    def __init__(self, written: Written, keys: Iterable[int]) -> None:
        self.written = written
        self.state = written.state
        self.keys = _closure(keys, lambda key: (*written.moved.get(key, ()), *written.below.get(key, ())))
        told = [teller for key in self.keys for teller in self._above(key)]
        self.tellers = _closure(told, self._above) - self.keys
        mine = [header for key in self.keys for header in written.headers.get(key, ())]
        retold = [header for key in self.tellers for header in written.headers.get(key, ())]
        self.bodies = {header.body for header in (*mine, *retold) if header.body}
        self.numbers = {number for header in mine for number in header.numbers} | set(self._said_on())

    def is_spent(self) -> bool:
        """Whether nothing is left to take away: an earlier purge took it."""
        pages = (self.state.page(key) for key in self.keys)
        return not (self.bodies or self.numbers) and all(isinstance(page, Gone) and page.purged for page in pages)

    def standins(self) -> dict[int, int | None]:
        """The summaries that stand for pages that leave, with the folders of those."""
        pages = (page for key in self.keys if isinstance(page := self.state.page(key), PageRecord))
        return {page.header.standin: page.parent for page in pages if page.header.mark is Mark.COMPRESSED}

    def records(self) -> tuple[tuple[Family, set[int]], ...]:
        """What goes beside pages, by family."""
        return (BODY, self.bodies), (MESSAGE, self.numbers)

    def counterparts(self, other: Written) -> set[int]:
        """The same pages in a context of the same family."""
        bodies = set(_same(self.state, other.state, BODY, self.bodies))
        numbers = set(_same(self.state, other.state, MESSAGE, self.numbers))
        return {key for key in self.keys if self._is_same_page(key, other, bodies, numbers)}

    def _is_same_page(self, key: int, other: Written, bodies: set[int], numbers: set[int]) -> bool:
        theirs = other.headers.get(key, ())
        if not theirs:  # removed before it was forked: a mark is all that is left of it there
            return bool(bodies or numbers) and isinstance(other.state.page(key), Gone)
        if any(header.body in bodies or not numbers.isdisjoint(header.numbers) for header in theirs):
            return True
        made = {(header.born, header.created) for header in self.written.headers.get(key, ())}
        older = max(self.written.first, other.first)
        return any((header.born, header.created) in made and header.born < older for header in theirs)

    def _above(self, key: int) -> Iterator[int]:
        written = self.written
        yield from (parent for parent in written.parents.get(key, ()) if written.is_one_of(parent, Form.CHAPTER))
        yield from (header.standin for header in written.headers.get(key, ()) if header.standin)
        if written.is_one_of(key, Form.SUMMARY, Form.CHAPTER):
            yield from written.moved.get(key, ())

    def _said_on(self) -> Iterator[int]:
        for record in self.state.storage.scan(self.state.context, MESSAGE):
            if decode_message(record.key, record.value).page in self.keys:
                yield record.key


def purge(plan: Plan, traces: Traces) -> int:
    """Plan that pages leave with every trace; how many journal entries are rewritten. Raises `InvalidOperation`."""
    if isinstance(plan.state.storage, OverlayStorage):
        raise InvalidOperation("Work is held back here: leave temporary() first, then purge.")
    if plan.batches():
        raise InvalidOperation(f"Batch {len(plan.batches())} is open: end or commit it, then purge.")
    _refuse(plan, traces)
    plan.omits_previous = True
    plan.horizon = plan.seq
    plan.apply_deferred()
    standins = traces.standins()
    for key in sorted(traces.keys):
        plan.remove(key, purged=True)
    for summary, folder in standins.items():
        remake_summary(plan, summary, folder, pinned_too=True)
    for chapter in _deepest_first(plan, traces.tellers):
        rename_chapter(plan, chapter)
    return _erase(plan, traces)


def purgeable(state: State, indices: Sequence[PageIndex]) -> list[int]:
    """The keys of pages that are or were there. Raises `InvalidValue`, `NoSuchPage`."""
    if not indices:
        raise InvalidValue("purge needs the index of at least one page.")
    keys = []
    for index in indices:
        key = state.key_of(index)
        if key is None or state.page(key) is None:
            state.require_page(index)  # raises
        keys.append(state.key_of(index) or 0)
    return keys


def _refuse(plan: Plan, traces: Traces) -> None:
    for key in sorted(traces.keys):
        page = plan.page(key)
        if not isinstance(page, PageRecord):
            continue
        index = plan.index(key)
        if page.is_root:
            raise InvalidOperation(f"Cannot purge {index!r}: it is the root of its segment. Purge what is below it.")
        if page.header.pinned:
            raise InvalidOperation(f"Cannot purge {index!r}: it is pinned. unpin({index!r}) first.")
        if page.header.form is Form.WINDOW:
            raise InvalidOperation(f"Cannot purge {index!r}: it is an open window. Close it first.")
        check_not_waiting(plan, page, "purge")


def _deepest_first(plan: Plan, keys: Iterable[int]) -> list[int]:
    """The chapters among these pages that are there, those below others first."""
    found = [page for key in keys if isinstance(page := plan.page(key), PageRecord) and page.header.folder]
    depths = {page.key: sum(1 for _ in plan.ancestors(page)) for page in found}
    return sorted(depths, key=lambda key: (-depths[key], key))


def _erase(plan: Plan, traces: Traces) -> int:
    """Plan the writes into records that no other operation changes; how many journal entries are among them."""
    state = plan.state
    storage, context = state.storage, state.context
    numbering = state.numbering()
    gone = sorted(number for number in traces.numbers if numbering.index(number) is not None)
    plan.destroyed_messages.update(gone)
    if gone:
        old = plan.note(PURGED)
        plan.put_note(PURGED, gaps=merge_gaps(old.gaps if old else (), gone))
    kept = {page.header.body for page in plan.segment_pages()}  # a fork may say the same elsewhere, in its own right
    bodies = traces.bodies | traces.written.unreached()
    plan.erasures += [Delete(BODY, body) for body in sorted(bodies - kept)]
    plan.erasures += [Delete(VECTOR, key) for key in sorted(traces.keys | traces.tellers)]
    for record in storage.scan(context, CALL):
        pages = decode_call(record.key, record.value)
        left = tuple(page for page in pages if page not in traces.keys)
        if left != pages:
            value = encode_record(record.key, left)
            plan.erasures.append(Put(CALL, record.key, value) if left else Delete(CALL, record.key))
    entries = 0
    for record in storage.scan(context, JOURNAL):
        rewritten = _without(decode_entry(record.key, record.value), traces)
        if rewritten is not None:
            plan.erasures.append(Put(JOURNAL, record.key, encode_record(record.key, rewritten)))
            entries += 1
    return entries


def _without(entry: EntryRecord, traces: Traces) -> EntryRecord | None:
    """A journal entry that tells nothing of what leaves; None if it never did."""
    touched = tuple(_silenced(item, traces) for item in entry.touched)
    return None if touched == entry.touched else replace(entry, touched=touched)


def _silenced(touched: Touched, traces: Traces) -> Touched:
    if touched.family != PAGE_CODE or touched.before is None:
        return touched
    if touched.key in traces.keys:
        return Touched(PAGE_CODE, touched.key)
    if touched.key not in traces.tellers:
        return touched
    page = _page_in(touched.key, touched.before, touched.group, touched.order)
    if not isinstance(page, PageRecord):
        return touched
    header = replace(page.header, name=_BLANK, description="", summary_tokens=0, body=0, meta=b"")
    return replace(touched, before=encode_record(touched.key, header))


def _same(here: State, there: State, family: Family, keys: Iterable[int]) -> Iterator[int]:
    """The keys under which two contexts hold the same record."""
    for key in keys:
        record = here.storage.get(here.context, family, key)
        if record is not None and record == there.storage.get(there.context, family, key):
            yield key


def share(found: Sequence[Traces]) -> None:
    """Let each of several contexts of a family lose what any of them knows to be about the pages, where it holds the
    same: an older text of a page is in the history of the one where it was changed, and in the forks without any."""
    claimed: dict[tuple[Family, int], set[bytes]] = {}
    for traces in found:
        for family, keys in traces.records():
            for key in keys:
                record = traces.state.storage.get(traces.state.context, family, key)
                if record is not None:
                    claimed.setdefault((family, key), set()).add(record.value)
    for traces in found:
        mine = dict(traces.records())
        for (family, key), values in claimed.items():
            record = traces.state.storage.get(traces.state.context, family, key)
            if record is not None and record.value in values:
                mine[family].add(key)


def _closure(start: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    """Everything that is reached from the start."""
    found: set[int] = set()
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += following(key)
    return found


def _page_in(key: int, value: bytes, group: int | None, order: bytes) -> PageRecord | Gone:
    return decode_page(Record(key, value, group, order))


class Purged(Struct, frozen=True, kw_only=True):
    """What a purge took away: pages by the indices they had, how many texts and messages, from which contexts.

    Where an earlier purge took everything there are no pages and no contexts, and nothing is committed.
    `entries` of the history were rewritten without it. `seq` is the entry of the purge, which holds no text. If the
    store could not be cleared of its bytes (`scrubbed` is False), `problem` says why: call `scrub()` again later.
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
    """Purge pages here and, if asked, in every context of the same family. The engine's lock is held."""
    state = engine.current()
    mine = Traces(Written(state), purgeable(state, indices))
    found = [(engine, mine)]
    if forks:
        found[:0] = _in_relatives(engine, mine)
        share([traces for _, traces in found])
    pages = () if mine.is_spent() else tuple(state.index(key) for key in sorted(mine.keys))
    done = [_Purge(one, actor, traces) for one, traces in found if not traces.is_spent()]
    for work in done:  # this context last: were it interrupted, the same call does the rest
        work.commit()
    names = [work.engine.state.context for work in done]
    everywhere = [one.state.context for one, _ in found]
    for name in everywhere:
        index_of(state.storage, name)
    problem = scrub(state.storage, everywhere)
    return Purged(
        seq=engine.state.version,
        pages=pages,
        texts=len(mine.bodies),
        messages=len(mine.numbers),
        entries=sum(work.entries for work in done),
        contexts=tuple(reversed(names)),
        scrubbed=not problem,
        problem=problem,
    )


def _in_relatives(engine: Engine, mine: Traces) -> Iterator[tuple[Engine, Traces]]:
    for name in _relatives(mine.state):
        other = engine.open_context(name)
        written = Written(other.state)
        keys = mine.counterparts(written)
        if keys:
            yield other, Traces(written, keys)


class _Purge:
    """The purge of one context, planned, to be committed."""

    def __init__(self, engine: Engine, actor: str, traces: Traces) -> None:
        self.engine = engine
        self._plan = engine.begin(actor)
        try:
            self.entries = purge(self._plan, traces)
        except InvalidOperation as error:
            raise InvalidOperation(f"In context {engine.state.context!r}: {error}") from None

    def commit(self) -> None:
        self.engine.commit(self._plan, PURGE)
        self.engine.reload()


def _relatives(state: State) -> Iterator[str]:
    """The contexts that were forked from this one, or from the same one as this."""
    storage = state.storage
    family = state.head.family or state.head.identity
    for name in list(storage.contexts()):
        head = storage.head(name) if name != state.context else None
        if head is not None and head.version > 0:
            other = decode_head(head.value)
            if family in (other.family, other.identity):
                yield name


def scrub(storage: Storage, contexts: Sequence[str]) -> str:
    """Clear the storage of what was deleted; what kept it from that, or nothing."""
    if not isinstance(storage, SupportsScrub):
        return ""
    try:
        return storage.scrub(contexts) or ""
    except (Busy, StorageFailure) as error:
        return str(error)
