"""Edits: plan to insert, delete, replace and compress messages, and to clean up, as `Conversation` documents.

A cleanup destroys the marked messages and renumbers the others. Edits can also be given as dicts, in the form of the
design documents.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.msgpack import encode

from quire.conversation import batches
from quire.conversation.arrivals import (
    InsertPosition,
    end_of_conversation,
    mark_page,
    place_before,
    receive,
    replace_message,
)
from quire.conversation.batches import Cleanup, Modification
from quire.core.plan import Plan
from quire.core.reader import Reader, merge_gaps, slot_of
from quire.core.records import GAPS, PageRecord
from quire.errors import Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import Mark, PageIndex
from quire.model.text import check_text
from quire.providers import parse
from quire.system.compressed_summaries import add_summary, remake_summary
from quire.system.rules import check_not_waiting, check_unpinned


def insert(plan: Plan, messages: Sequence[Message], at: int | None = None) -> Modification:
    notes: tuple[str, ...] = ()
    place: InsertPosition | None = None
    if at is not None:
        if at != plan.numbering().length or type(at) is not int:
            number = number_of(plan, at)
            place = place_before(plan, number)
            page = plan.page_of(number)
            if page is not None and number in page.header.numbers[1:]:
                notes = (f"Message {at} is inside an exchange; the new one is added after that exchange.",)
        lone = _lone_result(messages)
        if lone is not None:
            raise InvalidValue(
                f"A result belongs to its call; insert the result of {short_repr(lone.tool_call_id)} without `at`."
            )
    numbers = [receive(plan, message, place) for message in messages]
    pages = [page for number in numbers if (page := plan.page_of(number))]
    return _result(plan, "insert", pages, inserted=numbers, notes=notes)


def delete(plan: Plan, indices: "int | Iterable[int]") -> Modification:
    wanted = check_indices(plan, indices)
    pages = [
        page for page in _pages_to_edit(plan, wanted, "delete") if page.header.mark in (Mark.NONE, Mark.COMPRESSED)
    ]
    summaries = {page.header.standin: page.parent for page in pages if page.header.mark is Mark.COMPRESSED}
    for page in pages:
        mark_page(plan, page, Mark.DELETED)
    for summary, folder in summaries.items():
        remake_summary(plan, summary, folder)
    return _covering_result(plan, "delete", wanted, pages)


def replace(plan: Plan, indices: "int | Iterable[int]", messages: Sequence[Message]) -> Modification:
    """Replace messages by others. New messages have new indices; the old ones stay readable until a cleanup."""
    wanted = check_indices(plan, indices)
    numbers = [plan.numbering().number(index) for index in wanted]
    for index, number in zip(wanted, numbers, strict=True):
        mark = plan.mark_of(number)
        if mark is not Mark.NONE:
            raise InvalidOperation(
                f"Cannot replace message {index}: it is not in the conversation ({mark.name.lower()})."
            )
    half = _page_for_replacement(plan, numbers, messages)
    if half is not None:
        _check_editable(plan, half, "replace")
        fresh = replace_message(plan, half, numbers[0], plan.redact_message(messages[0]))
        return _result(plan, "replace", [half], covered=tuple(wanted), inserted=[fresh])
    lone = _lone_result(messages)
    if lone is not None:
        raise InvalidValue(f"The result of {short_repr(lone.tool_call_id)} can only replace a result of the same call.")
    pages = _pages_to_edit(plan, wanted, "replace")
    first, arrived = pages[0], plan.next_message
    stays = first.parent is not None and plan.home_of(first) == first.parent
    place = InsertPosition(first.parent or 0, first.key) if stays else end_of_conversation(plan)
    fresh_numbers = [receive(plan, message, place) for message in messages]
    for page in pages:
        now = plan.page(page.key)
        if isinstance(now, PageRecord) and max(now.header.numbers) >= arrived:
            raise InvalidOperation("Cannot replace an exchange by a result of its own call; replace only that result.")
        mark_page(plan, page, Mark.REPLACED)
    return _covering_result(plan, "replace", wanted, pages, inserted=fresh_numbers)


def compress(plan: Plan, indices: "int | Iterable[int]", summary: str | None = None) -> Modification:
    wanted = check_indices(plan, indices)
    text = None if summary is None else check_text(plan.redact(summary), "summary")
    pages = [page for page in _pages_to_edit(plan, wanted, "compress") if page.header.mark is Mark.NONE]
    runs = _runs(plan, pages)
    if text is not None and len(runs) > 1:
        raise InvalidValue(
            f"One summary cannot replace {len(runs)} separate runs of messages; compress them one by one."
        )
    summaries = [add_summary(plan, run, text) for run in runs]
    for run, page in zip(runs, summaries, strict=True):
        for original in run:
            mark_page(plan, original, Mark.COMPRESSED, page.key)
    return _covering_result(plan, "compress", wanted, pages, summaries=_pages(plan, summaries))


def entry_before(state: Reader, message: Message | int) -> int:
    """Return the last entry before a message was added.

    Raises `InvalidOperation` if an earlier message was added in the same entry, and names it.
    """
    index = message.index if isinstance(message, Message) else message
    seq = state.message(number_of(state, index)).seq
    first = index
    while first and state.message(number_of(state, first - 1)).seq == seq:  # by index: numbers can have gaps
        first -= 1
    if first != index:
        raise InvalidOperation(
            f"Message {index} was added in one entry together with message {first}.",
            Hint("rollback", arguments=f"before={first}", purpose="to go back before both"),
        )
    return seq - 1


def check_index(reader: Reader, index: object) -> int:
    """Return the index if a message has it. Raises `InvalidValue`."""
    length = reader.numbering().length
    if type(index) is not int or not 0 <= index < length:
        known = f"messages are 0 to {length - 1}" if length else "there are no messages yet"
        raise InvalidValue(f"No message {short_repr(index)}; {known}.")
    return index


def number_of(reader: Reader, index: object) -> int:
    """Return the number of the message with this index. Raises `InvalidValue`."""
    return reader.numbering().number(check_index(reader, index))


def check_indices(reader: Reader, indices: object) -> list[int]:
    """Return one index or several, each once, in the given order. Raises `InvalidValue`."""
    if type(indices) is int:
        return [check_index(reader, indices)]
    if isinstance(indices, str | bytes) or not isinstance(indices, Iterable):
        raise InvalidValue(
            f"is {short_repr(indices)}; a message index or a list of them is needed.", argument="indices"
        )
    found = list(dict.fromkeys(check_index(reader, index) for index in indices))
    if not found:
        raise InvalidValue("is empty; at least one message is needed.", argument="indices")
    return found


def _pages_to_edit(plan: Plan, indices: Sequence[int], doing: str) -> list[PageRecord]:
    """Return the pages of these messages, each once. Raises `InvalidOperation` for a protected one."""
    numbering = plan.numbering()
    found: dict[int, PageRecord] = {}
    for index in indices:
        number = numbering.number(index)
        page = plan.page_of(number)
        if page is None or (page.header.mark is Mark.NONE and number not in page.header.numbers):
            continue
        if page.key not in found:
            _check_editable(plan, page, f"{doing} message {index} on")
            found[page.key] = page
    return list(found.values())


def _check_editable(plan: Plan, page: PageRecord, doing: str) -> None:
    if plan.in_system(page):
        raise InvalidOperation(
            f"Cannot {doing} {plan.index(page.key)!r}: it is the system prompt.",
            Hint("system", arguments="text", purpose="to change it"),
        )
    check_unpinned(plan, page, doing)
    check_not_waiting(plan, page, doing)


def _page_for_replacement(plan: Plan, numbers: Sequence[int], messages: Sequence[Message]) -> PageRecord | None:
    """Return the page of a call or a result if the new message can replace it there; None otherwise.

    The new message must have the same role, and the same calls or the same call id.
    """
    if len(numbers) != 1 or len(messages) != 1:
        return None
    page = plan.page_of(numbers[0])
    old, new = plan.message(numbers[0]).message, messages[0]
    if page is None or old.role != new.role or not (old.tool_calls or old.role == "tool"):
        return None
    same = [call.id for call in old.tool_calls] == [call.id for call in new.tool_calls]
    return page if same and old.tool_call_id == new.tool_call_id else None


def _lone_result(messages: Sequence[Message]) -> Message | None:
    """Return the first result without its call in an earlier message; None if there is none."""
    called: set[str | None] = set()
    for message in messages:
        if message.role == "tool" and message.tool_call_id not in called:
            return message
        called.update(call.id for call in message.tool_calls)
    return None


def _runs(plan: Plan, pages: Sequence[PageRecord]) -> list[list[PageRecord]]:
    """Return the pages in runs of neighbours in one folder. The folder of the first page comes first."""
    runs: list[list[PageRecord]] = []
    following: PageRecord | None = None
    folders = {folder: n for n, folder in enumerate(dict.fromkeys(page.parent for page in pages))}
    for page in sorted(pages, key=lambda page: (folders[page.parent], slot_of(page))):
        if following is not None and following.key == page.key:
            runs[-1].append(page)
        else:
            runs.append([page])
        neighbours = iter(()) if page.is_cold else plan.members(page.parent or 0, after=slot_of(page))
        following = next(neighbours, None)
    return runs


def _result(
    plan: Plan, operation: str, pages: Iterable[PageRecord], inserted: Iterable[int] = (), **more: Any
) -> Modification:
    batch, indices = len(plan.batches()), _indices(plan, inserted)
    return Modification(operation=operation, batch=batch, pages=_pages(plan, pages), inserted=indices, **more)


def _covering_result(
    plan: Plan, operation: str, wanted: Sequence[int], pages: Sequence[PageRecord], **more: Any
) -> Modification:
    """Return the result of an edit that took these pages out of the conversation, for the messages that were named."""
    covered = _indices(plan, sorted(number for page in pages for number in page.header.numbers))
    others = {
        "A call and its results go together: {} too.": sorted(set(covered) - set(wanted)),
        "Out of the conversation already: {}.": sorted(set(wanted) - set(covered)),
    }
    notes = tuple(note.format(_join_indices(indices)) for note, indices in others.items() if indices)
    return _result(plan, operation, pages, covered=covered, notes=notes, **more)


def _join_indices(indices: Sequence[int]) -> str:
    listed = ", ".join(map(str, indices[:12]))
    return f"message {listed}" if len(indices) == 1 else f"messages {listed}{'…' if len(indices) > 12 else ''}"


def _indices(plan: Plan, numbers: Iterable[int]) -> tuple[int, ...]:
    numbering = plan.numbering()
    return tuple(index for number in numbers if (index := numbering.index(number)) is not None)


def _pages(plan: Plan, pages: Iterable[PageRecord]) -> tuple[PageIndex, ...]:
    return tuple(dict.fromkeys(plan.index(page.key) for page in pages))


def cleanup(plan: Plan) -> Cleanup:
    from quire.system.purge import forget_pages  # imported late: it is rarely needed

    if plan.batches():
        raise InvalidOperation(f"Batch {len(plan.batches())} is open; end or commit it first.")
    numbering, pages = plan.numbering(), list(plan.segment_pages())
    kept = {number for page in pages if page.header.mark is Mark.NONE for number in page.header.numbers}
    gone = [number for number in numbering.numbers() if number not in kept]
    if not gone:
        return Cleanup(renumbered={index: index for index in range(numbering.length)})
    marked = [page.key for page in pages if page.header.mark is not Mark.NONE]
    size = sum(len(encode(plan.message(number).message)) for number in gone)
    forget_pages(plan, marked)
    old = plan.note(GAPS)
    gaps = merge_gaps(old.gaps if old else (), gone)
    plan.put_note(GAPS, gaps=gaps)
    plan.destroyed_messages.update(gone)
    plan.erase_tails(set(marked), kept)
    plan.horizon = plan.seq
    plan.apply_deferred()
    left = _indices(plan, sorted(kept))
    before = (index for number in sorted(kept) if (index := numbering.index(number)) is not None)
    return Cleanup(renumbered=dict(zip(before, left, strict=True)), messages=len(gone), pages=len(marked), bytes=size)


_FIELDS = ("operation", "indices", "data", "batch")
_OPERATIONS: Mapping[str, tuple[Callable[..., Modification], tuple[str, ...]]] = {
    "insert": (insert, ("indices", "data")),
    "delete": (delete, ("indices",)),
    "replace": (replace, ("indices", "data")),
    "compress": (compress, ("indices", "data")),
    "batch_start": (batches.batch_start, ("indices", "batch")),
    "batch_end": (batches.batch_end, ("indices", "batch")),
    "batch_commit": (batches.batch_commit, ()),
}
"""The planners of the operations, and the fields that each of them has."""


def planner_of(value: object) -> tuple[str, Callable[[Plan], Modification]]:
    """Return the operation of a dict and its planner. Raises `InvalidValue` for a wrong field."""
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{short_repr(value)} is no operation; a dict with {', '.join(_FIELDS)} is needed.")
    unknown = [key for key in value if key not in _FIELDS]
    if unknown:
        raise InvalidValue(f"There is no field {short_repr(unknown[0])}; fields are {', '.join(_FIELDS)}.")
    operation = value.get("operation")
    if not isinstance(operation, str) or operation not in _OPERATIONS:
        raise InvalidValue(f"is {short_repr(operation)}; use {', '.join(_OPERATIONS)}.", argument="operation")
    planner, fields = _OPERATIONS[operation]
    for field in _FIELDS[1:]:
        if field not in fields and value.get(field) not in (None, [], ()):
            takes = " and ".join(fields) or "no other field"
            raise InvalidValue(f"is {short_repr(value[field])}; {operation} takes {takes}.", argument=field)
    indices = value.get("indices", [])
    if isinstance(indices, str | bytes) or not isinstance(indices, Sequence):
        raise InvalidValue(f"is {short_repr(indices)}; a list of message indices is needed.", argument="indices")
    arguments = _arguments(operation, indices, value.get("data"), value.get("batch"))
    return operation, lambda plan: planner(plan, *arguments)


def _arguments(operation: str, indices: Sequence[Any], data: Any, batch: Any) -> tuple[Any, ...]:
    """Return the arguments for the planner of an operation."""
    match operation:
        case "insert" if len(indices) > 1:
            raise InvalidValue(f"has {len(indices)} entries; an insert has one place.", argument="indices")
        case "insert":
            return messages_of(data), *indices
        case "replace":
            return indices, messages_of(data)
        case "compress" if not isinstance(data, str | None):
            raise InvalidValue(f"is {short_repr(data)}; a summary as text, or None, is needed.", argument="data")
        case "delete" | "compress":
            return indices, *(() if data is None else (data,))
    named = [*indices] or [batch]
    if operation == "batch_commit" or (operation == "batch_start" and named == [None]):
        return ()
    if len(named) > 1 or named[0] is None or batch not in (None, named[0]):
        raise InvalidValue(f"{short_repr([*indices])} and batch {short_repr(batch)} are given; exactly one is needed.")
    return (named[0],)


def messages_of(data: object) -> list[Message]:
    """Return one message or several, given in any provider's shape. Raises `InvalidValue` if there is none."""
    messages = [] if data is None else parse(data)
    if not messages:
        raise InvalidValue(f"is {short_repr(data)}; a message or a list of messages is needed.", argument="data")
    return messages
