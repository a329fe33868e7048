"""Batches: parts of the conversation that can be taken back as a whole, and temporary blocks.

A temporary block is a batch in a transaction. Its work stays in memory and leaves the conversation when it ends.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from quire.conversation.arrivals import store_marked
from quire.core.engine import Engine, Transaction
from quire.core.entries import read_entries
from quire.core.exchanges import exchange_fields
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import BATCHES, PAGE_CODE, SEGMENT_CODE, Batch, Gone, PageRecord, segment_number
from quire.core.state import State
from quire.errors import Conflict, Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import Form, Lifecycle, Mark, PageIndex
from quire.storage.base import Remainder
from quire.system.compressed_summaries import SUMMARY_FIELDS, compressed_pages, remake_summary
from quire.system.journal import page_before, pages_before
from quire.system.rules import check_unpinned


class Modification(Struct, frozen=True, kw_only=True):
    """The result of one modification.

    `covered` are the messages that it took out of the conversation, `restored` the messages that the end of a batch
    brought back, `inserted` the new messages, `pages` the changed pages, `summaries` the pages that replace compressed
    messages. `notes` explain where the result differs from the request.
    """

    operation: str
    covered: tuple[int, ...] = ()
    inserted: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    pages: tuple[PageIndex, ...] = ()
    summaries: tuple[PageIndex, ...] = ()
    batch: int = 0
    boundary: int | None = None
    notes: tuple[str, ...] = ()


class MarkMap(Struct, frozen=True, kw_only=True):
    """The messages in order of arrival, and the open batches with their first indices."""

    original_indices: list[int]
    batch_boundaries: list[int]
    boundary_to_batch: list[int]
    current_batch: int


class Cleanup(Struct, frozen=True, kw_only=True):
    """The result of a cleanup: the destroyed messages, and the new index of every other one (old to new).

    `scrubbed` is True if the store holds no bytes of the destroyed messages; else `remains` says what it holds and why.
    """

    renumbered: Mapping[int, int] = field(default_factory=dict)
    messages: int = 0
    pages: int = 0
    bytes: int = 0
    scrubbed: bool = False
    remains: tuple[Remainder, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """One finding of an import: its kind, the item of the history or the message index, and a text."""

    kind: str
    item: int | None = None
    index: int | None = None
    text: str = ""


class ImportReport(Struct, frozen=True, kw_only=True):
    """The result of an import: the number of messages, their first and last index, and all findings.

    `marked` are messages that are kept but cannot be shown to a model.
    """

    messages: int = 0
    pages: int = 0
    first: int | None = None
    last: int | None = None
    marked: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()


Before = dict[int, PageRecord | Gone | None]
"""Pages by key, as they were before their first change since some entry."""


def batch_start(plan: Plan, boundary: int | None = None) -> Modification:
    numbering = plan.numbering()
    start = numbering.length if boundary is None else boundary
    if type(start) is not int or not 0 <= start <= numbering.length:
        raise InvalidValue(
            f"is {short_repr(boundary)}; a message index from 0 to {numbering.length} is needed.", argument="boundary"
        )
    number = plan.next_message if start == numbering.length else _exchange_start(plan, numbering.number(start))
    batches = plan.batches()
    if batches and number < batches[-1].boundary:
        least = numbering.index(batches[-1].boundary)
        least = numbering.length if least is None else least
        raise InvalidValue(f"is {start}; batch {len(batches)} begins at {least}.", argument="boundary")
    plan.put_note(BATCHES, batches=(*batches, Batch(number, plan.seq)))
    index = numbering.index(number) if number < plan.next_message else numbering.length
    moved = () if index == start else (f"Message {start} is inside an exchange; the batch begins at {index}.",)
    return Modification(operation="batch_start", batch=len(batches) + 1, boundary=index, notes=moved)


def batch_commit(plan: Plan) -> Modification:
    batches = plan.batches()
    if not batches:
        raise InvalidOperation("No batch is open.", Hint("batch_start", purpose="to open one"))
    plan.put_note(BATCHES, batches=batches[:-1])
    return Modification(operation="batch_commit", batch=len(batches) - 1)


def batch_end(plan: Plan, target: int) -> Modification:
    batches = plan.batches()
    if type(target) is not int or not 0 <= target <= len(batches):
        raise InvalidValue(f"No batch {short_repr(target)} is open; open batches are 0 to {len(batches)}.")
    if target == len(batches):
        return Modification(operation="batch_end", batch=target)
    return take_back(plan, batches[target], batches[:target])


def take_back(plan: Plan, batch: Batch, around: tuple[Batch, ...], *, pinned_too: bool = False) -> Modification:
    """Take back a batch and all later ones; `around` are the batches that stay open."""
    before = pages_before(plan.state, batch)
    left = _take_out_messages(plan, batch, before, pinned_too=pinned_too)
    restored = _restore_marks(plan, batch.boundary, before, left, pinned_too=pinned_too)
    _reopen_exchanges(plan, before)
    _restore_summaries(plan, before, pinned_too=pinned_too)
    if plan.batches() != around:
        plan.put_note(BATCHES, batches=around)
    numbering = plan.numbering()
    return Modification(
        operation="batch_end",
        covered=tuple(index for number in sorted(left) if (index := numbering.index(number)) is not None),
        restored=tuple(index for number in sorted(restored) if (index := numbering.index(number)) is not None),
        pages=tuple(plan.index(key) for key in plan.pages),
        batch=len(around),
    )


def mark_map(reader: Reader) -> MarkMap:
    numbering = reader.numbering()
    starts = [batch.boundary for batch in reader.batches()]
    indices = [numbering.index(start) if start < numbering.end else numbering.length for start in starts]
    boundaries = [0, *(index for index in indices if index is not None)]
    return MarkMap(
        original_indices=list(range(numbering.length)),
        batch_boundaries=boundaries,
        boundary_to_batch=list(range(len(boundaries))),
        current_batch=len(boundaries) - 1,
    )


def _exchange_start(plan: Plan, number: int) -> int:
    """Return the number of the first message of a message's exchange. A late result counts as its own exchange."""
    page = plan.page_of(number)
    if page is None or number not in page.header.numbers:
        return number
    start = number
    while start - 1 in page.header.numbers:
        start -= 1
    return start if start == page.header.numbers[0] else number


def _take_out_messages(plan: Plan, batch: Batch, before: Before, *, pinned_too: bool) -> set[int]:
    """Take the messages from the boundary on out of the conversation; return their numbers.

    A prompt that was there when the batch was opened stays.
    """
    numbering, boundary = plan.numbering(), batch.boundary
    left: set[int] = set()
    for number in range(boundary, plan.next_message):
        page = plan.page_of(number) if numbering.index(number) is not None else None
        if page is None or number not in page.header.numbers:
            continue
        was = before.get(page.key, page)
        if plan.in_system(page) and isinstance(was, PageRecord):
            left.update(set(page.header.numbers) - set(was.header.numbers))
            plan.change(page, **exchange_fields(plan, was.header.numbers), name=was.header.name)
            continue
        if page.header.mark is Mark.COMPRESSED and page.header.numbers[0] >= boundary:
            before.setdefault(page.key, page)
            plan.change(page, mark=Mark.ENDED, standin=0)
        if page.header.mark is not Mark.NONE:
            continue
        if page.header.numbers[0] >= boundary and not _existed_before(before, page.key, boundary):
            _check_page_unpinned(plan, page, pinned_too=pinned_too)
            left.update(page.header.numbers)
            plan.change(page, mark=Mark.ENDED, pinned=False, lifecycle=Lifecycle.COLD_ARCHIVED)
        else:  # a late result or a replaced message: the exchange gets its old messages back
            left.update(late for late in page.header.numbers if late >= boundary)
            _restore_messages(plan, page, boundary, before.get(page.key))
    return left


def _existed_before(before: Before, key: int, boundary: int) -> bool:
    """Return True if the page held messages from before the boundary when the batch was opened."""
    old = before.get(key)
    return isinstance(old, PageRecord) and bool(old.header.numbers) and old.header.numbers[0] < boundary


def _restore_messages(plan: Plan, page: PageRecord, boundary: int, old: PageRecord | Gone | None) -> PageRecord:
    """Restore the messages of an exchange, without those that arrived from the boundary on."""
    if all(number < boundary for number in page.header.numbers):
        return page
    from quire.core.titles import has_given_name  # late: its patterns are slow to compile

    then = old if isinstance(old, PageRecord) and old.header.numbers[0] < boundary else page
    fields = exchange_fields(plan, [number for number in then.header.numbers if number < boundary])
    if not has_given_name(page, plan.message(page.header.numbers[0]).message):
        fields["name"] = then.header.name
    return plan.change(page, **fields)


def _restore_marks(plan: Plan, boundary: int, before: Before, left: set[int], *, pinned_too: bool) -> set[int]:
    """Restore the marks of every earlier exchange; return the numbers of the messages that are back.

    An exchange that an undo brought back meanwhile is marked again, and its messages are added to `left`.
    """
    restored: set[int] = set()
    for key, old in before.items():
        page = plan.page(key)
        if isinstance(page, PageRecord) and page.header.numbers:
            if not _mark_changed(page, old, boundary):
                continue
            if page.header.mark is Mark.NONE:
                _check_page_unpinned(plan, page, pinned_too=pinned_too)
                left.update(page.header.numbers)
            if isinstance(old, PageRecord):
                restored.update(_restore_page(plan, _restore_messages(plan, page, boundary, old), old))
            else:
                plan.remove(key)
        elif isinstance(page, Gone) and page.moved_to < 0 and isinstance(old, PageRecord):
            restored.update(_restore_removed_page(plan, boundary, before, old))
    return restored


def _reopen_exchanges(plan: Plan, before: Before) -> None:
    """Open exchanges again if the message that closed them has left the conversation."""
    for key, old in before.items():
        page = plan.page(key)
        if isinstance(page, PageRecord) and isinstance(old, PageRecord) and page.header.mark is Mark.NONE:
            plan.change(page, closed=old.header.closed)


def _mark_changed(page: PageRecord, old: PageRecord | Gone | None, boundary: int) -> bool:
    """Return True if an exchange from before the boundary has another mark now, or had no page at that time."""
    now = page.header
    if not isinstance(old, PageRecord):
        return now.numbers[0] < boundary
    then = old.header
    return min(now.numbers[0], then.numbers[0]) < boundary and (now.mark, now.standin) != (then.mark, then.standin)


def _restore_page(plan: Plan, page: PageRecord, old: PageRecord) -> tuple[int, ...]:
    """Restore the mark of a page, and its place in the tree; return its messages if they are in the conversation."""
    fields = {"mark": old.header.mark, "standin": old.header.standin, "lifecycle": old.header.lifecycle}
    if old.is_cold:
        plan.change(page, **fields, pinned=False)
    else:
        plan.place_home(page, **fields)
    return page.header.numbers if old.header.mark is Mark.NONE else ()


def _restore_removed_page(plan: Plan, boundary: int, before: Before, old: PageRecord) -> tuple[int, ...]:
    """Restore the removed page of an earlier exchange, with the folders above it; return its messages."""
    if not old.header.numbers or old.header.numbers[0] >= boundary or _is_segment_removed(plan, old):
        return ()
    _restore_folder(plan, before, old)
    page = _restore_messages(plan, plan.require_referenced(old.key, old.key), boundary, old)
    return page.header.numbers if page.header.mark is Mark.NONE else ()


def _restore_folder(plan: Plan, before: Before, old: PageRecord) -> None:
    above = None if old.parent is None else before.get(old.parent)
    if isinstance(above, PageRecord) and isinstance(plan.page(above.key), Gone):
        _restore_folder(plan, before, above)
    page = plan.restore(replace(old, header=replace(old.header, pinned=False)))
    if not page.is_cold:
        plan.place_home(page)


def _restore_summaries(plan: Plan, before: Before, *, pinned_too: bool) -> None:
    """Restore every summary as it was when the batch was opened, as far as its messages are still compressed."""
    lost: dict[int, int | None] = {}
    for key, old in before.items():
        if isinstance(old, PageRecord) and old.header.standin:
            page = plan.page(key)
            if not isinstance(page, PageRecord) or page.header.standin != old.header.standin:
                lost[old.header.standin] = old.parent
    for key, old in before.items():
        page = plan.page(key)
        if isinstance(old, PageRecord):
            needed = key not in lost or isinstance(page, PageRecord) or any(compressed_pages(plan, key, lost[key]))
            if old.header.form is Form.SUMMARY and needed:
                _restore_summary(plan, before, page, old)
        elif isinstance(page, PageRecord) and page.header.form is Form.SUMMARY:
            _check_page_unpinned(plan, page, pinned_too=pinned_too)
            plan.remove(key)
    for key, folder in lost.items():
        remake_summary(plan, key, folder, pinned_too=pinned_too)


def _restore_summary(plan: Plan, before: Before, page: PageRecord | Gone | None, old: PageRecord) -> None:
    """Restore a summary as it was when the batch was opened."""
    if isinstance(page, PageRecord):
        plan.change(page, **{field: getattr(old.header, field) for field in SUMMARY_FIELDS})
    elif not _is_segment_removed(plan, old):
        _restore_folder(plan, before, old)


def _is_segment_removed(plan: Plan, page: PageRecord) -> bool:
    """Return whether the segment of a page was removed, after the page was moved out of the conversation to it."""
    segment = plan.segment(segment_number(page.key))
    return segment is None or segment.gone


def _check_page_unpinned(plan: Plan, page: PageRecord, *, pinned_too: bool) -> None:
    if not pinned_too and not plan.in_system(page):
        check_unpinned(plan, page, "take out")


_EXPLICIT_FIELDS = ("pinned", "name", "description", "visibility", "meta")


class Temporary:
    """One temporary block, from its creation to `end`."""

    def __init__(self, engine: Engine, actor: str) -> None:
        self._engine = engine
        self._actor = actor
        with self._engine.lock:
            before = self._engine.current()
            self._version = before.version
            self._messages = before.next_message
            self._around = before.batches()
            self._transaction = Transaction(engine)
            try:
                engine.run(actor, "batch_start", batch_start)
            except BaseException:
                self._transaction.discard()
                raise

    def end(self) -> None:
        """Take back the block's changes to the conversation and commit its other changes as one.

        If another writer committed meanwhile, only the messages are stored, with a mark. If there were other changes,
        `Conflict` names their pages.
        """
        with self._engine.lock:
            if self._transaction.is_ended:
                raise InvalidOperation("This temporary block was already ended by the block around it.")
            try:
                if self._engine.current().version > self._version + 1:
                    self._transaction.check_unchanged()  # reads in the block also see commits of other writers
                    plan = self._engine.begin(self._actor)
                    take_back(plan, Batch(self._messages, self._version), self._around, pinned_too=True)
                    self._engine.commit(plan, "temporary", undoes=self._version + 1)
                    self._transaction.commit_all()
                    return
            except Conflict:
                self._store_messages()
                return
            except BaseException:
                self._transaction.discard()
                raise
            self._transaction.discard()

    def _store_messages(self) -> None:
        inner = self._engine.state
        messages = [record.message for _, record in inner.message_records(self._messages, inner.next_message - 1)]
        others = _other_changes(inner, self._version)
        self._transaction.discard()
        self._engine.refresh()
        if messages:
            self._engine.retry(lambda: self._engine.run(self._actor, "temporary", _store_all_marked, messages))
        if others:
            raise Conflict(f"Another writer changed the context meanwhile; not stored: {', '.join(others[:12])}.")


def _store_all_marked(plan: Plan, messages: Sequence[Message]) -> None:
    for message in messages:
        store_marked(plan, message, Mark.ENDED)


def _other_changes(state: State, since: int) -> list[str]:
    """Return the names of pages and segments changed since an entry, except by messages, marks and summaries."""
    pages: Before = {}
    segments: dict[int, None] = {}
    for _, entry in read_entries(state, since + 1):
        for touched in entry.touched:
            if touched.family == PAGE_CODE:
                pages.setdefault(touched.key, page_before(touched))
            elif touched.family == SEGMENT_CODE:
                segments.setdefault(touched.key)
    named = [repr(state.index(key)) for key, old in pages.items() if not _is_conversation_change(state, key, old)]
    return [*named, *(f"segment {state.counters[number].segment!r}" for number in segments)]


def _is_conversation_change(state: State, key: int, old: PageRecord | Gone | None) -> bool:
    """Return True if a page was only changed by messages that arrived, were marked or were summarised."""
    page = state.page(key)
    if not isinstance(page, PageRecord):
        return segment_number(key) == state.conversation()
    if page.header.form in (Form.TEXT, Form.WINDOW):
        return False
    if not isinstance(old, PageRecord) or old.header.numbers != page.header.numbers:
        return True
    return all(getattr(page.header, field) == getattr(old.header, field) for field in _EXPLICIT_FIELDS)
