"""The size and age of a context."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from quire.core.codec import decode_head, decode_page
from quire.core.integrity import snapshot_of
from quire.core.records import MESSAGES, PageRecord
from quire.model.clock import to_datetime
from quire.storage.base import no_such_context
from quire.storage.contract import FAMILIES, PAGE, TEXT, Storage


class ContextInfo(Struct, frozen=True, kw_only=True):
    """The facts in the head of a context: one small read.

    `messages` counts all messages that ever arrived, `numbered` the page numbers that each segment has used.
    """

    name: str
    seq: int = 0
    messages: int = 0
    created_at: datetime = to_datetime(0)
    updated_at: datetime = to_datetime(0)
    numbered: Mapping[str, int] = {}


class ContextUsage(Struct, frozen=True, kw_only=True):
    """The size of a context. `bytes` is the size of its records without the overhead of the backend.

    `pages` counts existing pages, archived ones too. `tokens` is the sum over all pages except folders.
    """

    name: str
    bytes: int
    pages: int
    messages: int
    entries: int
    tokens: int
    families: dict[str, int]
    """The bytes of each family of records: `text` are bodies and messages, `journal` is the history."""


def info_of(storage: Storage, context: str) -> ContextInfo:
    """Return the facts in the head of a context. Raises `NoSuchContext`, and `Corrupt` if the head is damaged."""
    found = storage.load(context)
    if found is None:
        raise no_such_context(storage, context)
    head = decode_head(found.seq, found.head)
    return ContextInfo(
        name=context,
        seq=found.seq,
        messages=head.next_message,
        created_at=to_datetime(head.created),
        updated_at=to_datetime(head.updated),
        numbered={counter.segment: counter.next for counter in head.counters},
    )


def usage_of(storage: Storage, context: str) -> ContextUsage:
    """Return the size of a context. Reads all of it once, streaming. Raises `NoSuchContext`."""
    sizes: dict[str, int] = dict.fromkeys((*FAMILIES, "journal"), 0)
    pages = tokens = messages = entries = 0
    with snapshot_of(storage, context) as (snapshot, found):
        if found is None:
            raise no_such_context(storage, context)
        for family in FAMILIES:
            for record in snapshot.scan(found.id, family):
                sizes[family] += len(record.value)
                messages += family == TEXT and record.key >= MESSAGES
                page = decode_page(record) if family == PAGE else None
                if isinstance(page, PageRecord):
                    pages += 1
                    tokens += 0 if page.header.folder else page.header.tokens
        for entry in snapshot.entries(found.id):
            entries += 1
            sizes["journal"] += len(entry.head) + len(entry.entry)
    return ContextUsage(
        name=context,
        bytes=sum(sizes.values()),
        pages=pages,
        messages=messages,
        entries=entries,
        tokens=tokens,
        families=sizes,
    )
