"""Append: commit one message at the end of the conversation without a plan. It is the most frequent commit by far.

A plan gives the same records. It is needed if anything changes beside the new page, the journal and the head.
"""

from zlib import crc32

from msgspec.structs import replace

from quire.core.commit import put_page
from quire.core.engine import Engine
from quire.core.exchanges import exchange_header
from quire.core.plan import rank_after
from quire.core.reader import Folder
from quire.core.records import (
    FORMAT,
    PAGE_CODE,
    Counter,
    Counts,
    EntryRecord,
    MessageRecord,
    PageRecord,
    SentView,
    Touched,
    encode_record,
    head_stamp,
    page_key,
)
from quire.model.messages import Message, count_message_tokens
from quire.model.pages import MAX_NUMBER
from quire.storage.base import MESSAGE, Put, Write


def append_message(engine: Engine, actor: str, operation: str, message: Message, sent: SentView | None) -> int | None:
    """Commit a message with a page of its own, and return its number; None if it needs a plan.

    The caller holds the lock.
    """
    state = engine.current()
    head, segment, counts = state.head, state.conversation(), state.head.counts
    if (
        segment is None
        or counts is None
        or head.tally_of != page_key(segment, 0)
        or head.deferred_count
        or head.format != FORMAT
        or actor not in head.actors
        or message.tool_calls
        or message.role not in ("user", "assistant")
        or message.origin == "responses"
        or message.at is not None
        or engine.turn is not None
        or engine.redaction is not None
        or state.waiting_exchange() is not None
    ):
        return None
    folder, counters, pages = head.tally_of, list(state.counters), list(counts.pages)
    known, counter = state.folder(folder), counters[segment]
    rank = rank_after(known.last)
    if rank is None or counter.next > MAX_NUMBER:
        return None
    now, seq, number, mark = engine.now(), state.version + 1, head.next_message, state.mark
    tokens, author = count_message_tokens(message, engine.count), head.actors.index(actor)
    header = exchange_header(message, number, tokens, author, now, seq)
    page = PageRecord(folder | counter.next, folder, rank, header)
    record = MessageRecord(page.key, seq, message, sent)
    value = encode_record(number, record, mark)
    tally = known.tally.plus(1, crc32(rank))
    counters[segment] = Counter(counter.segment, counter.next + 1)
    pages[segment] += 1
    entry = EntryRecord(now, actor, operation, engine.next_commit_id(), (Touched(PAGE_CODE, page.key),))
    new_head = replace(
        head,
        updated=now,
        stamp=head_stamp(state.context, seq),
        counters=tuple(counters),
        tally=tally.pack(),
        next_message=number + 1,
        budget=engine.next_budget,
        counts=Counts(counts.first_entry, tuple(pages), counts.pins, counts.notes, counts.checkpoints),
    )
    writes: list[Write] = [put_page(page, mark), Put(MESSAGE, number, value, is_new=True)]
    engine.store(
        entry, new_head, writes, mark, {page.key: page}, {folder: Folder(tally, rank)}, {number: (record, len(value))}
    )
    return number
