"""Batches: parts of the conversation that can be taken back as a whole, and temporary blocks.

A temporary block is a batch in a transaction. Its work stays in memory and leaves the conversation when it ends.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from quire.conversation.arrivals import store_marked
from quire.core.engine import Engine, Transaction
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import BATCHES, SEGMENT_CODE, Batch, Gone, PageRecord, segment_number
from quire.core.state import State
from quire.errors import Conflict, Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import Form, Mark, PageIndex
from quire.system.scrub import Remainder
from quire.system.undo import Protection, earlier_than, take_back


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
    return end_batch(plan, batches[target], batches[:target], Protection(pages=True))


def end_batch(plan: Plan, batch: Batch, around: tuple[Batch, ...], protection: Protection) -> Modification:
    """Take back a batch and all later ones; `around` are the batches that stay open."""
    earlier = earlier_than(plan.state, batch)
    earlier.cut(plan, batch.boundary)
    take_back(plan, earlier, protection)
    plan.put_note(BATCHES, batches=around)
    was = _numbers_in_conversation(plan.state, plan.pages)
    now = _numbers_in_conversation(plan, plan.pages)
    numbering = plan.numbering()
    covered, restored = (
        tuple(index for number in sorted(numbers) if (index := numbering.index(number)) is not None)
        for numbers in (was - now, now - was)
    )
    pages = tuple(plan.index(key) for key in plan.pages)
    return Modification(operation="batch_end", covered=covered, restored=restored, pages=pages, batch=len(around))


def _numbers_in_conversation(reader: Reader, keys: Iterable[int]) -> set[int]:
    """Return the numbers of the messages on these pages that are in the conversation."""
    pages = (page for key in keys if isinstance(page := reader.page(key), PageRecord))
    return {number for page in pages if page.header.mark is Mark.NONE for number in page.header.numbers}


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
                    nothing_stays = Protection(pages=True, pins=False)
                    end_batch(plan, Batch(self._messages, self._version), self._around, nothing_stays)
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


_EXPLICIT_FIELDS = ("pinned", "name", "description", "visibility", "meta")


def _other_changes(state: State, since: int) -> list[str]:
    """Return the names of pages and segments changed since an entry, except by messages, marks and summaries."""

    def is_other(key: int, old: PageRecord | Gone | None) -> bool:
        page = state.page(key)
        if not isinstance(page, PageRecord):
            return segment_number(key) != state.conversation()
        if page.header.form in (Form.TEXT, Form.WINDOW) or not isinstance(old, PageRecord):
            return page.header.form in (Form.TEXT, Form.WINDOW)
        was, now = old.header, page.header
        return was.numbers == now.numbers and any(getattr(was, each) != getattr(now, each) for each in _EXPLICIT_FIELDS)

    earlier = earlier_than(state, Batch(0, since))
    segments = [state.counters[key].segment for family, key in earlier.records if family == SEGMENT_CODE]
    pages = [repr(state.index(key)) for key, old in earlier.pages.items() if is_other(key, old)]
    return [*pages, *(f"segment {segment!r}" for segment in segments)]
