"""Append: commit a new page at the end of a folder, or a result of the newest exchange, without a plan.

These are the most frequent commits by far. A plan gives the same records, but it is slower. A plan is needed if
anything changes besides the page, the journal and the head.
"""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from quire.core.commit import add_pages, put_page
from quire.core.engine import Engine
from quire.core.exchanges import exchange_header
from quire.core.plan import with_caller
from quire.core.reader import Folder, rank_after
from quire.core.records import (
    FORMAT,
    PAGE_CODE,
    Counter,
    EntryRecord,
    Header,
    MessageRecord,
    PageRecord,
    SentView,
    Touched,
    call_keys,
    encode_body,
    encode_page,
    encode_record,
    head_stamp,
    page_key,
    page_number,
    segment_number,
)
from quire.model.messages import Message, count_message_tokens
from quire.model.pages import MAX_NUMBER, Mark
from quire.model.text import is_spelled
from quire.storage.base import BODY, CALL, MESSAGE, PAGE, Patch, Put, Write


class FolderEnd(Struct, frozen=True, gc=False):
    """The end of a folder, with the values of the next page: its rank, key, time, entry and author."""

    folder: int
    rank: bytes
    key: int
    now: int
    seq: int
    author: int


def find_end(engine: Engine, actor: str, folder: int) -> FolderEnd | None:
    """Return the end of a folder, or None if a new page there needs a plan. The caller holds the lock."""
    state = engine.current()
    head = state.head
    if head.tally_of != folder or actor not in head.actors or _needs_plan(engine):
        return None
    rank, number = rank_after(state.folder(folder).last), state.counters[segment_number(folder)].next
    if rank is None or number > MAX_NUMBER:
        return None
    key = page_key(segment_number(folder), number)
    return FolderEnd(folder, rank, key, engine.now(), state.version + 1, head.actors.index(actor))


def _needs_plan(engine: Engine) -> bool:
    """Return whether the state of the context or of the handle makes every commit need a plan."""
    head = engine.state.head
    return bool(head.deferred_count or head.counts is None or head.format != FORMAT or engine.redaction is not None)


def append_message(engine: Engine, actor: str, operation: str, message: Message, sent: SentView | None) -> int | None:
    """Commit a message with a page of its own or a result, and return its index; None if it needs a plan.

    The caller holds the lock.
    """
    if message.role == "tool":
        return _append_result(engine, actor, operation, message)
    state = engine.current()
    conversation = state.conversation()
    if (
        conversation is None
        or message.role not in ("user", "assistant")
        or message.origin == "responses"
        or message.at is not None
        or state.waiting_exchange() is not None
        or (message.tool_calls and any(is_spelled(call.name) for call in message.tool_calls))
        or (end := find_end(engine, actor, page_key(conversation, 0))) is None
    ):
        return None
    number = state.next_message
    index = state.message_index(number)  # before the commit, because a commit drops the prefetched notes
    tokens = count_message_tokens(message, engine.count)
    header = exchange_header(message, number, tokens, end.author, end.now, end.seq)
    record = MessageRecord(end.key, end.seq, message, sent)
    value = encode_record(number, record, state.mark)
    writes: list[Write] = [Put(MESSAGE, number, value, is_new=True)]
    calls: dict[int, tuple[int, ...]] = {}
    for call in message.tool_calls:
        for key in call_keys(call):
            calls[key] = with_caller(calls.get(key) or state.callers(key), end.key)
    for key, callers in calls.items():
        writes.append(Put(CALL, key, encode_record(key, callers, state.mark)))
    _append(engine, actor, operation, end, header, writes, {number: (record, len(value))})
    return index


def append_text(engine: Engine, actor: str, operation: str, end: FolderEnd, header: Header, text: str) -> None:
    """Commit a page with a text. The header of the page has the key of the text."""
    key = header.body
    writes: list[Write] = [Put(BODY, key, encode_body(key, text, engine.state.mark), is_new=True)] if key else []
    _append(engine, actor, operation, end, header, writes, {})


def _append_result(engine: Engine, actor: str, operation: str, message: Message) -> int | None:
    """Commit the result of a call of the newest exchange, and return its index; None if it needs a plan."""
    state = engine.current()
    key = state.waiting_exchange()
    if key is None or message.at is not None or _needs_plan(engine):
        return None
    segment, call_id, page = segment_number(key), message.tool_call_id or "", state.page(key)
    if (
        state.counters[segment].next != page_number(key) + 1
        or not isinstance(page, PageRecord)
        or call_id not in page.header.pending
        or page.header.line_tokens
        or page.header.mark is not Mark.NONE
        or state.layout(segment) is not None
    ):
        return None
    old, number = page.header, state.next_message
    index = state.message_index(number)
    pending, now, seq = list(old.pending), engine.now(), state.version + 1
    pending.remove(call_id)
    header = replace(
        old,
        numbers=(*old.numbers, number),
        messages=old.messages + 1,
        pending=tuple(pending),
        tokens=old.tokens + count_message_tokens(message, engine.count),
        seq=seq,
        age=max(0, now - old.created),
    )
    record = MessageRecord(key, seq, message)
    value = encode_record(number, record, state.mark)
    place, changed = (page.group, page.rank), PageRecord(key, page.parent, page.rank, header)
    writes: list[Write] = [
        Patch(PAGE, key, encode_page(key, header, *place, state.mark)),
        Put(MESSAGE, number, value, is_new=True),
    ]
    touched = Touched(PAGE_CODE, key, encode_page(key, old, *place, state.mark), *place)
    _store(engine, actor, operation, now, touched, writes, changed, {}, {number: (record, len(value))})
    return index


def _append(
    engine: Engine,
    actor: str,
    operation: str,
    end: FolderEnd,
    header: Header,
    writes: list[Write],
    messages: dict[int, tuple[MessageRecord, int]],
) -> None:
    state, folder = engine.state, end.folder
    segment = segment_number(folder)
    page = PageRecord(end.key, folder, end.rank, header)
    tally = state.folder(folder).tally.plus(1, crc32(end.rank))
    counters = list(state.counters)
    counters[segment] = Counter(counters[segment].segment, counters[segment].next + 1)
    writes.insert(0, put_page(page, state.mark))
    _store(
        engine,
        actor,
        operation,
        end.now,
        Touched(PAGE_CODE, end.key),
        writes,
        page,
        {folder: Folder(tally, end.rank)},
        messages,
        next_body=state.head.next_body + bool(header.body),
        counters=tuple(counters),
        tally=tally.pack(),
        counts=add_pages(state.counts(), (end.key,), len(counters)),
    )


def _store(
    engine: Engine,
    actor: str,
    operation: str,
    now: int,
    touched: Touched,
    writes: list[Write],
    page: PageRecord,
    folders: Mapping[int, Folder],
    messages: dict[int, tuple[MessageRecord, int]],
    **head_fields: Any,
) -> None:
    """Commit one page as one journal entry."""
    state = engine.state
    turn = 0 if engine.turn is None else engine.turn.number_in(state)
    if turn > state.head.turn:
        head_fields["turn"] = turn
    head = replace(
        state.head,
        updated=now,
        next_message=state.head.next_message + len(messages),
        budget=engine.next_budget,
        stamp=head_stamp(state.context, state.version + 1),
        **head_fields,
    )
    entry = EntryRecord(now, actor, operation, engine.next_commit_id(), (touched,), 0, turn)
    engine.store(entry, head, writes, state.mark, {page.key: page}, folders, messages)
