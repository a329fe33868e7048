"""The commit log of an SQLite file: a small commit is one row, which is applied to the tables later.

A commit changes several tables, and SQLite writes every page of the file that changes. A row of the log changes one
page, so it takes a fifth of the time, and other writers wait less. Many rows are applied to the tables at once.

A connection appends only if the last commit of the context is its own. So a context with several writers is rarely in
the log. These first apply the log of the context to the tables: a scan, a read by another connection, a larger commit,
a fork, the end of the connection. A connection that cannot write now, or that reads a snapshot, shows the log on top of
the tables.
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
from quire.storage.sqlite.lock_waiter import LockWaiter
from quire.storage.sqlite.schema import context_numbers, head_of, reading, roll_back
from quire.storage.sqlite.tables import Tables

if TYPE_CHECKING:
    from quire.storage.overlay import OverlayStorage

_MOST: Final = 16
"""The number of commits in the log of a context. More would make the turn slower that applies them."""
_MOST_CONTEXTS: Final = 64
"""The number of contexts that one connection keeps in memory."""
_MAX_BYTES: Final = 8_192
_MAX_MEAN: Final = 512
_MAX_FOLD: Final = 65_536
"""A commit in the log has at most 8 kB, or at most 512 bytes for each write and 64 kB in all, as a fold. Larger texts
fill pages of their own, so the log would not save any."""
_MAX_LOG: Final = 262_144
"""The most bytes in the log of a context."""
_APPEND: Final = """INSERT INTO commit_log (id, head, writes, checksum)
    SELECT ?, ?, ?, ? FROM context WHERE id = ? AND version = ? AND head = ?"""
"""Appends a commit if the tables are at a version. The row id is unique, so no other writer has committed after it."""
_LAST: Final = "SELECT max(id) FROM commit_log WHERE id BETWEEN ? AND ?"
_ROWS: Final = "SELECT id, head, writes, checksum FROM commit_log WHERE id BETWEEN ? AND ? ORDER BY id"
_CLEAR: Final = "DELETE FROM commit_log WHERE id BETWEEN ? AND ?"
_VERSION: Final = "SELECT name, version, head FROM context WHERE id = ?"
_MOVE: Final = "UPDATE context SET version = ?, head = ? WHERE id = ?"

_encode: Final = Encoder().encode
_decode: Final = Decoder(tuple[Write, ...]).decode


class _Log:
    """The log of a context in which this connection made the last commit."""

    def __init__(self, base: Head) -> None:
        self.base = base
        """The head of the context in the tables."""
        self.last = base
        """The head after the last commit."""
        self.commits: list[Sequence[Write]] = []
        self.size = 0
        """The bytes of all commits."""
        self._merged = 0
        self._writes: dict[tuple[Family, int], Write] = {}

    def add(self, head: Head, writes: Sequence[Write], size: int) -> None:
        """Add a commit. If it is interrupted, `last` differs from the file, so the log is read from there."""
        self.size += size
        self.commits.append(writes)
        self.last = head

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
            self._merged += 1
        return self._writes


class CommitLog:
    """The commits of all contexts that are not in the tables yet. Callers hold the lock of the storage."""

    def __init__(self, db: apsw.Connection, tables: Tables, sharing: ForkSharing, waiter: LockWaiter) -> None:
        self._db = db
        self._tables = tables
        self._sharing = sharing
        self._waiter = waiter
        self.may_apply = True
        """Whether this connection may apply the log to the tables."""
        self._logs: dict[int, _Log] = {}
        """The logs of contexts in which this connection committed last. Others may have committed more since."""
        self._overlays: dict[int, tuple[tuple[object, ...], OverlayStorage]] = {}

    def append(self, number: int, commit: Commit) -> bool:
        """Store a commit as one row, as a transaction of its own. Return False if it must go to the tables."""
        log = self._logs.get(number)
        if log is None or log.last.version < 1 or commit.version != log.last.version + 1:  # 0: an unfinished copy
            return False
        if len(log.commits) >= _MOST or not commit.follows(log.last) or self._db.in_transaction:
            return False
        if self._sharing.lineage(number) or _erases(commit.writes):
            return False
        writes = tuple(commit.writes)
        packed = _encode(writes)
        most = max(_MAX_BYTES, min(_MAX_FOLD, _MAX_MEAN * len(writes)))
        if len(packed) > most or log.size + len(packed) > _MAX_LOG:
            return False
        row = number << KEY_BITS | commit.version
        checksum = _checksum(row, commit.head, packed)
        try:
            values = (row, commit.head, packed, checksum, number, log.base.version, log.base.value)
            self._tables.execute(_APPEND, values)
        except apsw.ConstraintError:  # another connection appended this version
            return False
        if self._db.changes() != 1:  # another connection applied the log, or committed to the tables
            return False
        log.add(Head(commit.version, commit.head), writes, len(packed))
        return True

    def follow(self, number: int, head: Head) -> None:
        """Remember the head of a context after a commit of this connection to the tables."""
        self._logs.pop(number, None)
        if len(self._logs) >= _MOST_CONTEXTS:
            del self._logs[next(iter(self._logs))]
        self._logs[number] = _Log(head)

    def forget(self, number: int) -> None:
        """Forget a context. Its next commit goes to the tables."""
        self._logs.pop(number, None)
        self._overlays.pop(number, None)

    def read(self, number: int, family: Family, key: int) -> tuple[bool, Record | None]:
        """Return whether this connection made all commits in the log of a context, and if it did, a record."""
        log = self._logs.get(number)
        if log is None or not log.commits:
            return False, None
        write, record = log.writes().get((family, key)), None
        if isinstance(write, Put):
            record = Record(key, write.value, write.group, write.order)
        elif not isinstance(write, Delete):
            record = self._tables.read(number, family, key)
            if record is not None and write is not None:
                record = replace(record, value=write.value)
        return self._last(number) == log.last.version, record  # if so, the tables have not changed since

    def settle(self, number: int) -> bool:
        """Apply the log of a context in a transaction of its own. Return False if it cannot be applied at once."""
        is_settled = not self._last(number) or self._apply_now([number])
        if is_settled and self._overlays:
            self._overlays.pop(number, None)
        return is_settled

    def settle_own(self) -> None:
        """Apply the logs that this connection wrote, at its end. What cannot be applied at once stays in the file."""
        numbers = [number for number, log in self._logs.items() if log.commits]
        try:
            with suppress(Corrupt, apsw.Error):
                if numbers:
                    self._apply_now(numbers)
        finally:
            self._logs.clear()

    def _apply_now(self, numbers: Sequence[int]) -> bool:
        """Apply logs in a transaction of their own; return False if this cannot be done at once. Raises `Corrupt`."""
        if not self.may_apply or self._db.in_transaction:
            return False
        try:
            with self._waiter.impatient():
                self._tables.execute("BEGIN IMMEDIATE")
            for number in numbers:
                self.apply(number)
            self._tables.execute("COMMIT")
        except apsw.Error:
            roll_back(self._db)
            return False
        except BaseException:
            roll_back(self._db)
            raise
        for number in numbers:
            log = self._logs.get(number)
            if log is not None:  # if another connection has committed since, the next commit meets another version
                self._logs[number] = _Log(log.last)
        return True

    def apply_all(self) -> None:
        """Apply the log of all contexts in the open transaction. A damaged log stays as it is."""
        for number in list(context_numbers(self._db, "commit_log")):
            with suppress(Corrupt, UnicodeDecodeError):
                self.apply(number)

    def apply(self, number: int) -> None:
        """Apply the log of a context in the open transaction. Raises `Corrupt`."""
        last = self._last(number)
        if not last:
            return
        log = self._logs.get(number)
        if log is None or log.last.version != last:  # another connection appended to it
            log = self._read(number)
            if log is None:  # the context was dropped
                return
        self.clear(number)
        self._tables.execute(_MOVE, (log.last.version, log.last.value, number))
        if self._db.changes() == 1:  # else the context was dropped
            self._tables.apply(number, log.writes().values(), is_fork=False)  # a commit to a fork is not in the log

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
                log = self._read(number)
                if log is not None and log.commits:
                    writes = list(log.writes().values())
                    overlay.commit(context, Commit(log.base.version, log.last.version, log.last.value, writes))
                if len(self._overlays) >= _MOST_CONTEXTS:
                    self._overlays.clear()
                known = self._overlays[number] = state, overlay
        return known[1]

    def _last(self, number: int) -> int:
        """Return the last version of a context in the log; 0 if there is none."""
        base = number << KEY_BITS
        last: int | None = self._db.execute(_LAST, (base, base | MAX_KEY)).get
        return last & MAX_KEY if last else 0

    def _read(self, number: int) -> _Log | None:
        """Read the log of a context; None if there is no such context. Raises `Corrupt` if it is damaged."""
        found = self._db.execute(_VERSION, (number,)).fetchone()
        if found is None:
            return None
        name, base = found[0], number << KEY_BITS
        log = _Log(head_of(*found))
        for version, (row, head, packed, checksum) in enumerate(
            self._db.execute(_ROWS, (base, base | MAX_KEY)), log.base.version + 1
        ):
            if row & MAX_KEY != version:
                raise _damage_error(name, f": version {version} is missing")
            if type(head) is not bytes or type(packed) is not bytes or checksum != _checksum(row, head, packed):
                raise _damage_error(name, f" at version {version}")
            try:
                log.add(Head(version, head), _decode(packed), len(packed))
            except DecodeError as error:
                raise _damage_error(name, f" at version {version}") from error
        return log


def _damage_error(name: str, place: str) -> Corrupt:
    return Corrupt(f"The commit log of context {name!r} is damaged{place}. Restore the context from a backup.")


def _erases(writes: Iterable[Write]) -> bool:
    """Return whether some writes remove or replace a text."""
    for write in writes:  # noqa: SIM110 - a generator takes longer
        if type(write) is not Put and write.family in IMMUTABLE:
            return True
    return False


def _checksum(row: int, head: bytes, packed: bytes) -> int:
    return crc32(packed, crc32(head, (row ^ row >> KEY_BITS) & 0xFFFFFFFF))
