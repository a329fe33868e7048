"""The size and age of a context."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from quire.core.records import NO_MARK, PageRecord, decode_head, decode_page, mark_of
from quire.model.clock import to_datetime
from quire.storage.base import FAMILIES, JOURNAL, MESSAGE, PAGE, Family, Storage, no_such_context, snapshot_of


class ContextInfo(Struct, frozen=True, kw_only=True):
    """The facts in the head of a context: one small read.

    `messages` counts all messages that ever arrived, `numbered` the page numbers that each segment has used. An
    unfinished copy has only a name, and `finished` is False.
    """

    name: str
    seq: int = 0
    messages: int = 0
    created_at: datetime = to_datetime(0)
    updated_at: datetime = to_datetime(0)
    numbered: Mapping[str, int] = {}
    finished: bool = True


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
    families: dict[Family, int]
    """The bytes of each family of records: `body` and `message` are texts, `journal` is the history."""


def info_of(storage: Storage, context: str) -> ContextInfo:
    """Return the facts in the head of a context. Raises `NoSuchContext`, and `Corrupt` if the head is damaged."""
    found = storage.head(context)
    if found is None:
        raise no_such_context(storage, context)
    if found.version < 0:
        return ContextInfo(name=context, finished=False)
    head = decode_head(found.value)
    return ContextInfo(
        name=context,
        seq=found.version,
        messages=head.next_message,
        created_at=to_datetime(head.created),
        updated_at=to_datetime(head.updated),
        numbered={counter.segment: counter.next for counter in head.counters},
    )


def usage_of(storage: Storage, context: str) -> ContextUsage:
    """Return the size of a context. Reads all of it once, streaming. Raises `NoSuchContext`."""
    with snapshot_of(storage, context) as snapshot:
        info_of(snapshot, context)
        head = snapshot.head(context)
        mark = mark_of(decode_head(head.value)) if head and head.version >= 0 else NO_MARK
        sizes: dict[Family, int] = {}
        counts: dict[Family, int] = {}
        pages = tokens = 0
        for family in FAMILIES:
            sizes[family] = counts[family] = 0
            for record in snapshot.scan(context, family):
                sizes[family] += len(record.value) + len(record.order)
                counts[family] += 1
                if family == PAGE:
                    page = decode_page(record, mark)
                    if isinstance(page, PageRecord):
                        pages += 1
                        tokens += 0 if page.header.folder else page.header.tokens
    return ContextUsage(
        name=context,
        bytes=sum(sizes.values()),
        pages=pages,
        messages=counts[MESSAGE],
        entries=counts[JOURNAL],
        tokens=tokens,
        families=sizes,
    )
