"""The commit log of an SQLite file: a small commit is one row, which is applied to the tables later.

A commit changes several tables, and SQLite writes every page of the file that changes. A row of the log changes one
page, so it takes a fifth of the time, and other writers wait less. Many rows are applied to the tables at once.

A connection appends only if the last commit of the context is its own. So a context with several writers is rarely in
the log. Every other operation first applies the log of its context to the tables: a scan, a larger commit, a fork, the
end of the connection. A connection that cannot write, or that reads a snapshot, shows the log on top of the tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final, cast
from zlib import crc32

import apsw
from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from quire.errors import Corrupt
from quire.storage.base import (
    IMMUTABLE,
    KEY_BITS,
    MAX_KEY,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Storage,
    Write,
)
from quire.storage.sqlite.forks import ForkSharing
from quire.storage.sqlite.schema import context_numbers, reading, roll_back
from quire.storage.sqlite.tables import Tables

if TYPE_CHECKING:
    from quire.storage.overlay import OverlayStorage

_MOST: Final = 16
"""The number of commits in the log of a context. More would make the turn slower that applies them."""
_MOST_CONTEXTS: Final = 64
"""The number of contexts in the log that one connection keeps in memory."""
_MAX_BYTES: Final = 8_192
_MAX_MEAN: Final = 512
"""The most bytes of a commit in the log, and the mean of each write in a larger one, such as a fold. Larger texts fill
pages of their own, so the log would not save any."""
_APPEND: Final = """INSERT INTO commit_log (id, head, writes, checksum)
    SELECT ?, ?, ?, ? FROM context WHERE id = ? AND version = ? AND head = ?"""
"""Appends a commit if the tables are at a version. The row id is unique, so no other writer has committed after it."""
_LAST: Final = "SELECT max(id) FROM commit_log WHERE id BETWEEN ? AND ?"
_ROWS: Final = "SELECT id, head, writes, checksum FROM commit_log WHERE id BETWEEN ? AND ? ORDER BY id"
_CLEAR: Final = "DELETE FROM commit_log WHERE id BETWEEN ? AND ?"
_VERSION: Final = "SELECT name, version FROM context WHERE id = ?"
_MOVE: Final = "UPDATE context SET version = ?, head = ? WHERE id = ?"

_encode: Final = Encoder().encode
_decode: Final = Decoder(list[Write]).decode


class _Pending:
    """The commits of one context that are in the log: the last one, and the effect of all of them."""

    def __init__(self, base: Head) -> None:
        self.base = base
        """The head of the context in the tables."""
        self.last = base
        self.commits: list[Sequence[Write]] = []
        self._merged = 0
        self._writes: dict[tuple[Family, int], Write] = {}

    def add(self, head: Head, writes: Sequence[Write]) -> None:
        self.last = head
        self.commits.append(writes)

    def writes(self) -> Mapping[tuple[Family, int], Write]:
        """Return the last write of each record. A patch of a record that another write made is part of that write."""
        for writes in self.commits[self._merged :]:
            for write in writes:
                place = write.family, write.key
                if isinstance(write, Patch):
                    old = self._writes.get(place)
                    if isinstance(old, Delete):
                        continue
                    if isinstance(old, Put):
                        write = replace(old, value=write.value)
                self._writes[place] = write
        self._merged = len(self.commits)
        return self._writes


class CommitLog:
    """The commits of all contexts that are not in the tables yet. Callers hold the lock of the storage."""

    def __init__(self, db: apsw.Connection, tables: Tables, sharing: ForkSharing, *, writes: bool) -> None:
        self._db = db
        self._tables = tables
        self._sharing = sharing
        self.writes = writes
        """Whether this connection may apply the log to the tables."""
        self._own: dict[int, Head] = {}
        """The head of each context after the last commit of this connection."""
        self._pending: dict[int, _Pending] = {}
        """What this connection appended. Other connections may have appended more, or applied it."""
        self._overlays: dict[int, tuple[tuple[object, ...], OverlayStorage]] = {}

    def append(self, number: int, commit: Commit) -> bool:
        """Store a commit as one row, as a transaction of its own. Return False if it must go to the tables."""
        own, pending = self._own.get(number), self._pending.get(number)
        if own is None or not 0 < own.version == commit.version - 1 or not commit.follows(own):
            return False
        if pending is None and len(self._pending) >= _MOST_CONTEXTS:
            self.settle_own()
        elif pending is not None and len(pending.commits) >= _MOST:
            return False
        if self._sharing.lineage(number) or _erases(commit.writes):
            return False
        writes = _encode(commit.writes)
        if len(writes) > max(_MAX_BYTES, _MAX_MEAN * len(commit.writes)):
            return False
        row = number << KEY_BITS | commit.version
        base = own if pending is None else pending.base
        values = (row, commit.head, writes, _checksum(row, commit.head, writes), number, base.version, base.value)
        try:
            self._tables.execute(_APPEND, values)
        except apsw.ConstraintError:  # another connection appended this version
            return False
        if self._db.changes() != 1:  # another connection applied the log, or committed to the tables
            return False
        if pending is None:
            pending = self._pending[number] = _Pending(base)
        head = self._own[number] = Head(commit.version, commit.head)
        pending.add(head, commit.writes)
        return True

    def committed(self, number: int, commit: Commit) -> None:
        """Remember a commit of this connection to the tables."""
        self._own[number] = Head(commit.version, commit.head)
        self.forget(number)

    def forget(self, number: int) -> None:
        """Forget what this connection appended, after it was applied."""
        self._pending.pop(number, None)

    def has_all(self, number: int) -> bool:
        """Return whether the log of a context is what this connection appended."""
        pending = self._pending.get(number)
        return pending is not None and self._last(number) == pending.last.version

    def get(self, number: int, family: Family, key: int) -> Record | None:
        """Return a record of a context for which `has_all` is true."""
        write = self._pending[number].writes().get((family, key))
        match write:
            case None:
                return self._tables.read(number, family, key)
            case Put():
                return Record(key, write.value, write.group, write.order)
            case Patch():
                old = self._tables.read(number, family, key)
                return None if old is None else replace(old, value=write.value)
            case Delete():
                return None

    def settle(self, number: int) -> bool:
        """Apply the log of a context to the tables. Return False if it cannot be applied now."""
        if not self._last(number):
            return True
        if not self.writes or self._db.in_transaction:
            return False
        try:
            self._tables.execute("BEGIN IMMEDIATE")
            self.apply(number)
            self._tables.execute("COMMIT")
        except apsw.Error:
            roll_back(self._db)
            return False
        except BaseException:
            roll_back(self._db)
            raise
        self.forget(number)
        return True

    def settle_own(self) -> None:
        """Apply what this connection appended. What cannot be applied stays in the log."""
        for number in list(self._pending):
            self.settle(number)

    def apply_all(self) -> None:
        """Apply the log of all contexts, in the open transaction."""
        for number in list(context_numbers(self._db, "commit_log")):
            self.apply(number)

    def apply(self, number: int) -> None:
        """Apply the log of a context in the open transaction. Raises `Corrupt`."""
        last = self._last(number)
        if not last:
            return
        pending = self._pending.get(number)
        if pending is None or pending.last.version != last:  # another connection appended to it
            pending = _Pending(Head(0, b""))  # its base is not needed
            for head, writes in self._read(number):
                pending.add(head, writes)
        self._tables.apply(number, pending.writes().values(), is_fork=bool(self._sharing.lineage(number)))
        self.clear(number)
        self._tables.execute(_MOVE, (pending.last.version, pending.last.value, number))

    def clear(self, number: int) -> None:
        """Remove the log of a context, in the open transaction."""
        base = number << KEY_BITS
        self._tables.execute(_CLEAR, (base, base | MAX_KEY))

    def overlay(self, context: str, number: int) -> "OverlayStorage":
        """Return the tables with the log of a context on top."""
        from quire.storage.overlay import OverlayStorage  # deferred: few programs need it

        with nullcontext() if self._db.in_transaction else reading(self._db):
            state = self._last(number), self._db.execute(_VERSION, (number,)).get
            known = self._overlays.get(number)
            if known is None or known[0] != state:
                overlay = OverlayStorage(cast(Storage, self._tables), context)  # it is only read
                for head, writes in self._read(number):
                    overlay.commit(context, Commit(head.version - 1, head.version, head.value, writes))
                known = self._overlays[number] = state, overlay
        return known[1]

    def _last(self, number: int) -> int:
        """Return the last version of a context in the log; 0 if there is none."""
        base = number << KEY_BITS
        last: int | None = self._db.execute(_LAST, (base, base | MAX_KEY)).get
        return last & MAX_KEY if last else 0

    def _read(self, number: int) -> list[tuple[Head, list[Write]]]:
        """Return the commits of a context in the log. Raises `Corrupt` if one is damaged or missing."""
        found = self._db.execute(_VERSION, (number,)).fetchone()
        if found is None:  # the context was dropped
            return []
        (name, version), base = found, number << KEY_BITS
        commits: list[tuple[Head, list[Write]]] = []
        for row, head, writes, checksum in self._db.execute(_ROWS, (base, base | MAX_KEY)):
            version += 1
            if row & MAX_KEY != version:
                raise Corrupt(f"The commit log of context {name!r} is damaged: version {version} is missing.")
            is_whole = type(head) is bytes and type(writes) is bytes and checksum == _checksum(row, head, writes)
            with suppress(DecodeError):
                if is_whole:
                    commits.append((Head(version, head), _decode(writes)))
                    continue
            raise Corrupt(f"The commit log of context {name!r} is damaged at version {version}.")
        return commits


def _erases(writes: Iterable[Write]) -> bool:
    """Return whether some writes remove or replace a text."""
    for write in writes:  # noqa: SIM110 - a generator takes longer
        if type(write) is not Put and write.family in IMMUTABLE:
            return True
    return False


def _checksum(row: int, head: bytes, writes: bytes) -> int:
    return crc32(writes, crc32(head, (row ^ row >> KEY_BITS) & 0xFFFFFFFF))
