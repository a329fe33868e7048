"""Summary board: which folded pages of a context wait for a model's summary, and the summaries that came back.

The board is a companion of the context. So a worker can store a summary even if the handle that requested it is
closed, and its commits do not conflict with commits to the context. A page on the board has its key and the digest of
its state.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import takewhile
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.core.codec import decode_head
from quire.core.companion import SUMMARIES, Write, companion_of, write_companion
from quire.errors import Conflict
from quire.storage.contract import NOTE, Loaded, Storage

_MAX_TRIES: Final = 10
"""A page whose summary failed so many times is removed."""
_CONFLICTS: Final = 50


class SummaryRecord(Struct, frozen=True, array_like=True, gc=False):
    """A page on the board: the digest of its state, the most tokens of its summary, and the summary when it came."""

    version: bytes
    tokens: int
    summary: str = ""
    tries: int = 0


class _BoardHead(Struct, frozen=True, array_like=True, gc=False):
    """The context of a board by name and identity, and how many pages wait for a summary."""

    context: str
    identity: bytes
    pending: int


_decode_head = msgspec.msgpack.Decoder(_BoardHead).decode
_decode = msgspec.msgpack.Decoder(SummaryRecord).decode
Records = Mapping[int, SummaryRecord]
Changes = Mapping[int, SummaryRecord | None]


class SummaryBoard:
    """The board of one context."""

    def __init__(self, storage: Storage, context: str, identity: bytes) -> None:
        self.storage = storage
        self._context = context
        self._identity = identity
        self._name = companion_of(context, SUMMARIES)

    def read(self) -> dict[int, SummaryRecord]:
        """Return the pages on the board by key."""
        return self._read(self.storage.load(self._name))

    def update(self, changes: Changes) -> None:
        """Write these pages; remove those with None."""
        self._change(lambda _: changes, may_create=any(changes.values()))

    def store(self, key: int, version: bytes, summary: str | None) -> bool:
        """Store the summary of a page; without one, remove the page. Return False if the page changed since."""
        return self._replace(key, version, lambda found: replace(found, summary=summary) if summary else None)

    def put_off(self, key: int, version: bytes) -> None:
        """Record that the summary of a page failed. After the last try the page is removed."""

        def try_later(found: SummaryRecord) -> SummaryRecord | None:
            return replace(found, tries=found.tries + 1) if found.tries + 1 < _MAX_TRIES else None

        self._replace(key, version, try_later)

    def _replace(self, key: int, version: bytes, make: Callable[[SummaryRecord], SummaryRecord | None]) -> bool:
        def plan(records: Records) -> Changes:
            found = records.get(key)
            return {key: make(found)} if found is not None and found.version == version else {}

        return self._change(plan)

    def _read(self, found: Loaded | None) -> dict[int, SummaryRecord]:
        if found is None or _decode_head(found.head).identity != self._identity:
            return {}  # the context was created again
        return {record.key: _decode(record.value) for record in found.notes or ()}

    def _change(self, plan: Callable[[Records], Changes], *, may_create: bool = False) -> bool:
        """Commit what `plan` returns for the pages on the board; plan again if another worker was first.

        Return whether anything changed. Raises `Conflict` if another worker is always first.
        """
        for attempt in range(_CONFLICTS):
            found = self.storage.load(self._name)
            before = self._read(found)
            changes = plan(before)
            if not changes or (found is None and not may_create):
                return False
            after = {key: record for key, record in {**before, **changes}.items() if record is not None}
            writes: list[Write] = [(NOTE, old.key, None) for old in (found.notes if found and not before else ()) or ()]
            writes += [(NOTE, key, msgspec.msgpack.encode(new) if new else None) for key, new in changes.items()]
            pending = sum(not record.summary for record in after.values())
            head = msgspec.msgpack.encode(_BoardHead(self._context, self._identity, pending))
            try:
                write_companion(self.storage, self._name, found, head, writes)
            except Conflict:
                if attempt + 1 == _CONFLICTS:
                    raise
                continue
            if found is None and not _is_at(self.storage, self._context, self._identity):
                self.storage.drop(self._name)  # the context was removed meanwhile
            return True
        return False


def pending_boards(storage: Storage) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the identity of every context with pages that wait for a summary."""
    for name in list(takewhile(lambda name: name.startswith(SUMMARIES), storage.contexts(SUMMARIES))):
        found = storage.load(name)
        head = _decode_head(found.head) if found is not None else None
        if head is not None and head.pending and _is_at(storage, head.context, head.identity):
            yield head.context, head.identity


def page_digest(state: object) -> bytes:
    """Return the digest of the state of a page."""
    return blake2b(repr(state).encode(), digest_size=12).digest()


def _is_at(storage: Storage, context: str, identity: bytes) -> bool:
    found = storage.load(context)
    return found is not None and decode_head(found.seq, found.head).identity == identity
