"""Summary board: which folded pages of a context wait for a model's summary, who asks for it, and what came back.

The board is a small companion context in the same storage, like a lease. So a worker can store a summary even if the
handle that requested it is closed, and its commits do not conflict with commits to the context. A page on the board has
its key and the digest of its state. A worker claims a page before it asks the model; a claim expires.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import takewhile
from os import urandom
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.core.lease import companion_of, identify_process, is_dead, now_milliseconds
from quire.core.records import decode_head
from quire.errors import Conflict
from quire.storage.base import NOTE, RESERVED, Commit, Delete, Head, Put, Storage, Write

BOARDS: Final = f"{RESERVED}summaries."
CLAIM_SECONDS = 600.0
"""A claim expires after so many seconds. A claim of a process on this machine also ends with the process."""
_DELAY = 60.0
_MAX_TRIES = 10
"""A failed summary is requested again after one minute, then two, then four, and so on, at most so many times."""
_CONFLICTS = 50


class SummaryRecord(Struct, frozen=True, array_like=True, gc=False):
    """A page on the board: the digest of its state, the most tokens of its summary, and the summary when it came.

    `claimant` is the worker that asks for it, in `process`. `expires` is the time in milliseconds after which another
    worker may claim it.
    """

    version: bytes
    tokens: int
    summary: str = ""
    claimant: str = ""
    process: str = ""
    expires: int = 0
    tries: int = 0

    @property
    def is_free(self) -> bool:
        """True if a worker may ask for this summary."""
        if self.summary:
            return False
        return self.expires < now_milliseconds() or is_dead(self.process)


class _BoardHead(Struct, frozen=True, array_like=True, gc=False):
    """The context of a board by name and identity, and how many pages wait for a summary."""

    context: str
    identity: bytes
    pending: int


_head_decoder = msgspec.msgpack.Decoder(_BoardHead)
_decoder = msgspec.msgpack.Decoder(SummaryRecord)
Records = Mapping[int, SummaryRecord]
Changes = Mapping[int, SummaryRecord | None]


class SummaryBoard:
    """The board of one context, as one worker sees it."""

    def __init__(self, storage: Storage, context: str, identity: bytes) -> None:
        self.storage = storage
        self._context = context
        self._identity = identity
        self._name = board_of(context)
        self._claimant = urandom(8).hex()

    def read(self) -> dict[int, SummaryRecord]:
        """Return the pages on the board by key."""
        return self._read(self.storage.head(self._name))

    def new_claim(self, record: SummaryRecord) -> SummaryRecord:
        """Return a record with a claim of this worker, to be stored by `update`."""
        expires = now_milliseconds() + int(CLAIM_SECONDS * 1_000)
        return replace(record, claimant=self._claimant, process=identify_process(), expires=expires)

    def update(self, changes: Changes) -> None:
        """Write these pages; remove those with None. Another worker's newer claim is kept."""

        def plan(records: Records) -> Changes:
            return {
                key: new
                for key, new in changes.items()
                if new is None or not self._is_taken(records.get(key), new.version)
            }

        self._change(plan, may_create=any(changes.values()))

    def claim(self, key: int, version: bytes) -> bool:
        """Claim a page, or renew the claim. Return False if another worker has it or it is not on the board."""
        claimed = False

        def plan(records: Records) -> Changes:
            nonlocal claimed
            found = records.get(key)
            claimed = found is not None and found.version == version and self._may_claim(found)
            return {key: self.new_claim(found)} if found is not None and claimed else {}

        self._change(plan)
        return claimed

    def store(self, key: int, version: bytes, summary: str | None) -> bool:
        """Store the summary of a page; without a summary, remove the page. Return False if the claim was lost."""
        return self._finish(
            key, version, lambda found: replace(_unclaimed(found), summary=summary) if summary else None
        )

    def put_off(self, key: int, version: bytes) -> bool:
        """Give a claim back after a failure. The page is free again after a pause; after the last try it is removed."""

        def give_back(found: SummaryRecord) -> SummaryRecord | None:
            pause = int(_DELAY * 1_000) << found.tries
            later = replace(_unclaimed(found), tries=found.tries + 1, expires=now_milliseconds() + pause)
            return later if later.tries < _MAX_TRIES else None

        return self._finish(key, version, give_back)

    def _finish(self, key: int, version: bytes, make: Callable[[SummaryRecord], SummaryRecord | None]) -> bool:
        done = False

        def plan(records: Records) -> Changes:
            nonlocal done
            found = records.get(key)
            done = found is not None and found.version == version and found.claimant == self._claimant
            return {key: make(found)} if found is not None and done else {}

        self._change(plan)
        return done

    def _is_taken(self, found: SummaryRecord | None, version: bytes) -> bool:
        return found is not None and found.version == version and not self._may_claim(found)

    def _may_claim(self, found: SummaryRecord) -> bool:
        return found.is_free or (found.claimant == self._claimant and not found.summary)

    def _read(self, head: Head | None) -> dict[int, SummaryRecord]:
        if head is None or _head_decoder.decode(head.value).identity != self._identity:
            return {}  # the context was created again
        return {record.key: _decoder.decode(record.value) for record in self.storage.scan(self._name, NOTE)}

    def _change(self, plan: Callable[[Records], Changes], *, may_create: bool = False) -> None:
        """Commit what `plan` returns for the pages on the board. Plan again if another worker was first.

        Raises `Conflict` if another worker is always first.
        """
        for attempt in range(_CONFLICTS):
            head = self.storage.head(self._name)
            if head is None and not may_create:
                return
            before = self._read(head)
            changes = plan(before)
            if not changes:
                return
            after = {key: record for key, record in {**before, **changes}.items() if record is not None}
            writes: list[Write] = [
                Delete(NOTE, key) if record is None else Put(NOTE, key, msgspec.msgpack.encode(record))
                for key, record in changes.items()
            ]
            if head is not None and not before:  # remove the records of an earlier context of this name
                writes[:0] = [Delete(NOTE, old.key) for old in self.storage.scan(self._name, NOTE)]
            pending = sum(not record.summary for record in after.values())
            value = msgspec.msgpack.encode(_BoardHead(self._context, self._identity, pending))
            version = head.version if head else 0
            commit = Commit(version, version + 1, value, writes, head.value if head else b"")
            try:
                self.storage.commit(self._name, commit)
            except Conflict:
                if attempt + 1 == _CONFLICTS:
                    raise
                time.sleep(random.uniform(0, 0.002 * min(attempt + 1, 10)))
                continue
            if head is None and not _is_at(self.storage, self._context, self._identity):
                self.storage.drop(self._name)  # the context was removed meanwhile
            return


def board_of(context: str) -> str:
    """Return the name of the board of a context."""
    return BOARDS + blake2b(context.encode(), digest_size=16).hexdigest()


def pending_boards(storage: Storage) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the identity of every context with pages that wait for a summary."""
    for name in list(takewhile(lambda name: name.startswith(BOARDS), storage.contexts(BOARDS))):
        found = storage.head(name)
        head = _head_decoder.decode(found.value) if found is not None and found.version > 0 else None
        if head is not None and head.pending and _is_at(storage, head.context, head.identity):
            yield head.context, head.identity


def drop_with_companions(storage: Storage, context: str) -> None:
    """Remove a context with its lease and its board."""
    for name in (context, companion_of(context), board_of(context)):
        storage.drop(name)


def page_digest(state: object) -> bytes:
    """Return the digest of the state of a page."""
    return blake2b(repr(state).encode(), digest_size=12).digest()


def _is_at(storage: Storage, context: str, identity: bytes) -> bool:
    head = storage.head(context)
    return head is not None and head.version > 0 and decode_head(head.value).identity == identity


def _unclaimed(record: SummaryRecord) -> SummaryRecord:
    return replace(record, claimant="", process="", expires=0)
