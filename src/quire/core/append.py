"""Append: commit one new page at the end of a folder without a plan. These are the most frequent commits by far.

A plan gives the same records. It is needed if anything changes beside the new page, the journal and the head.
"""

from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from quire.core.commit import put_page
from quire.core.engine import Engine
from quire.core.exchanges import exchange_header
from quire.core.plan import rank_after, with_caller
from quire.core.reader import Folder
from quire.core.records import (
    FORMAT,
    PAGE_CODE,
    Counter,
    Counts,
    EntryRecord,
    Header,
    MessageRecord,
    PageRecord,
    SentView,
    Touched,
    call_keys,
    encode_body,
    encode_record,
    head_stamp,
    page_key,
    segment_number,
)
from quire.model.messages import Message, count_message_tokens
from quire.model.pages import MAX_NUMBER
from quire.model.text import is_spelled
from quire.storage.base import BODY, CALL, MESSAGE, Put, Write


class FolderEnd(Struct, frozen=True, gc=False):
    """The end of a folder: the rank, the key, the time, the entry and the author of the next page."""

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
    if (
        head.tally_of != folder
        or head.deferred_count
        or head.counts is None
        or head.format != FORMAT
        or actor not in head.actors
        or engine.turn is not None
        or engine.redaction is not None
    ):
        return None
    rank, number = rank_after(state.folder(folder).last), state.counters[segment_number(folder)].next
    if rank is None or number > MAX_NUMBER:
        return None
    key = page_key(segment_number(folder), number)
    return FolderEnd(folder, rank, key, engine.now(), state.version + 1, head.actors.index(actor))


def append_message(engine: Engine, actor: str, operation: str, message: Message, sent: SentView | None) -> int | None:
    """Commit a message with a page of its own, and return its index; None if it needs a plan.

    The caller holds the lock.
    """
    state = engine.current()
    conversation = state.conversation()
    if (
        conversation is None
        or message.role not in ("user", "assistant")
        or message.origin == "responses"
        or message.at is not None
        or state.waiting_exchange() is not None
        or any(is_spelled(call.name) for call in message.tool_calls)
        or (end := find_end(engine, actor, page_key(conversation, 0))) is None
    ):
        return None
    number = state.next_message
    index = state.message_index(number)  # before the commit: what was read with the head is still there
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
    head, segment, counts = state.head, segment_number(folder), state.counts()
    page = PageRecord(end.key, folder, end.rank, header)
    tally = state.folder(folder).tally.plus(1, crc32(end.rank))
    counters, pages = list(state.counters), list(counts.pages)
    counters[segment] = Counter(counters[segment].segment, counters[segment].next + 1)
    pages[segment] += 1
    new_head = replace(
        head,
        updated=end.now,
        next_body=head.next_body + bool(header.body),
        counters=tuple(counters),
        tally=tally.pack(),
        next_message=head.next_message + len(messages),
        budget=engine.next_budget,
        counts=Counts(counts.first_entry, tuple(pages), counts.pins, counts.notes, counts.checkpoints),
        stamp=head_stamp(state.context, end.seq),
    )
    entry = EntryRecord(end.now, actor, operation, engine.next_commit_id(), (Touched(PAGE_CODE, end.key),))
    writes.insert(0, put_page(page, state.mark))
    engine.store(entry, new_head, writes, state.mark, {end.key: page}, {folder: Folder(tally, end.rank)}, messages)
