"""Loading: read the head and the segments of a context, and prove that they are whole."""

from collections.abc import Callable
from typing import NamedTuple

from quire.core.missing import deleted_context
from quire.core.records import (
    FORMAT,
    HeadRecord,
    SegmentRecord,
    decode_head,
    decode_segment,
    mark_of,
)
from quire.errors import Corrupt, Hint, InvalidOperation, short_repr
from quire.storage.base import SEGMENT, Head, Prefetch, Storage, StorageReader


class LoadedContext(NamedTuple):
    """The head of a context as it was `found` and decoded, its segments, and a reader for its small records."""

    found: Head | None
    head: HeadRecord
    segments: dict[int, SegmentRecord]
    near: StorageReader


def load_context(
    storage: Storage, prefetch: Callable[[str], Prefetch] | None, context: str, *, may_be_new: bool
) -> LoadedContext:
    """Read a context. Raises `NoSuchContext` if it does not exist and may not be new, or `Corrupt`."""
    found, near = prefetch(context) if prefetch else Prefetch(storage.head(context), storage)
    if found is None and not may_be_new:
        raise deleted_context(context)
    if found is not None and found.version < 0:
        raise InvalidOperation(
            f"Context {context!r} is an unfinished copy.", Hint("migrate", purpose="again to finish it")
        )
    try:
        head = decode_head(found.value) if found else HeadRecord(FORMAT, 0, 0, 1)
        if found is not None and not head.belongs_to(context, found.version):
            raise Corrupt("its head belongs to another context or version.")
        mark = mark_of(head)
        stored = near.scan(context, SEGMENT) if found else ()
        segments = {record.key: decode_segment(record.key, record.value, mark) for record in stored}
    except Corrupt as error:
        raise _corrupt(context, str(error)) from error
    if len(segments) < len(head.counters):
        if storage.head(context) != found:  # it was deleted and created again meanwhile
            return load_context(storage, prefetch, context, may_be_new=may_be_new)
        number = next(number for number in range(len(head.counters)) if number not in segments)
        raise _corrupt(context, f"segment record {number} ({head.counters[number].segment!r}) is missing.")
    return LoadedContext(found, head, segments, near)


def _corrupt(context: str, text: str) -> Corrupt:
    return Corrupt(f"Context {short_repr(context)}: {text}")
