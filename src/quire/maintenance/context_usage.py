"""What a context is and what it takes up."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from quire.core.records import PageRecord, decode_head, decode_page
from quire.model.clock import to_datetime
from quire.storage.base import FAMILIES, JOURNAL, MESSAGE, PAGE, Family, Storage, no_such_context, snapshot_of


class ContextInfo(Struct, frozen=True, kw_only=True):
    """What the head of a context tells: one small read.

    `messages` are those that ever arrived, `numbered` the page numbers that each segment has used up. Of a copy that is
    not `finished` nothing but the name is known.
    """

    name: str
    seq: int = 0
    messages: int = 0
    created_at: datetime = to_datetime(0)
    updated_at: datetime = to_datetime(0)
    numbered: Mapping[str, int] = {}
    finished: bool = True


class ContextUsage(Struct, frozen=True, kw_only=True):
    """What a context takes up. `bytes` is what is stored for it, without the backend's own overhead.

    `pages` are those there are, archived ones too; `tokens` is the sum over all that hold something themselves.
    """

    name: str
    bytes: int
    pages: int
    messages: int
    entries: int
    tokens: int
    families: dict[Family, int]
    """The bytes of each family of records: `body` and `message` are texts, `journal` is history."""


def info_of(storage: Storage, context: str) -> ContextInfo:
    """What the head of a context tells. Raises `NoSuchContext`, and `Corrupt` if the head is damaged."""
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
    """What a context takes up: reads all of it once, streaming. Raises `NoSuchContext`."""
    with snapshot_of(storage, context) as still:
        info_of(still, context)
        sizes: dict[Family, int] = {}
        counts: dict[Family, int] = {}
        pages = tokens = 0
        for family in FAMILIES:
            sizes[family] = counts[family] = 0
            for record in still.scan(context, family):
                sizes[family] += len(record.value) + len(record.order)
                counts[family] += 1
                if family == PAGE:
                    page = decode_page(record)
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
