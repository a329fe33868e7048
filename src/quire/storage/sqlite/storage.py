"""The SQLite backend, the default: one file in WAL mode, many contexts, one table per family.

Numbers of dropped contexts are never used again, so a stale handle only gets `Conflict`. A fork copies pages and shares
immutable records (see `sqlite.forks`). Small commits wait in a log until they are applied to the tables (see
`sqlite.commit_log`).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import apsw

from quire.errors import Conflict, Corrupt, InvalidValue, NewerFormat, StorageFailure
from quire.storage.base import (
    IMMUTABLE,
    MAX_KEY,
    Commit,
    Durability,
    Family,
    Head,
    Prefetch,
    Record,
    Symptom,
    check_context_name,
    check_durability,
    check_families,
    conflict,
)
from quire.storage.paths import check_path
from quire.storage.sqlite.commit_log import CommitLog
from quire.storage.sqlite.forks import ForkSharing
from quire.storage.sqlite.lock_waiter import LockWaiter
from quire.storage.sqlite.schema import (
    APPLICATION_ID,
    COPY,
    HEAD,
    HEAD_AND_BEYOND,
    MAX_CONTEXT,
    MIGRATIONS,
    MOVE,
    MOVE_UNSEEN,
    NEWEST_HEAD,
    StorageLock,
    head_of,
    name_of,
    roll_back,
    transaction,
)
from quire.storage.sqlite.tables import Tables

if TYPE_CHECKING:
    from quire.storage.overlay import OverlayStorage
    from quire.storage.sqlite.search import FtsCheck, FtsIndex, FtsIndexes

_CHUNK = 256
_PAGE_SIZE = 8192  # texts of about a kilobyte pack well: 1.4 kB each with their journal, against 1.6 kB at 4,096
_MIN_WAL_PAGES = 500  # 4 MB
_COMMITS_BETWEEN = 64
"""The number of commits after which the limit of the write-ahead log is adjusted to the length of the file."""
_MAX_WAL_PAGES = 4_000  # fewer, larger checkpoints: hiding a random page of a million costs a fifth less on average


class SQLiteStorage:
    """Records in one SQLite file. Several processes and threads can share it.

    With `durability="normal"` a commit survives `kill -9`; with `"full"` it survives power loss too. `Busy` is raised
    if another writer holds the lock longer than `busy_seconds`. With `read_only`, or on a read-only file system, the
    file is never written; if its folder cannot be written either, later commits of other processes may be invisible.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "normal",
        busy_seconds: float = 5.0,
        read_only: bool = False,
    ) -> None:
        self.path = check_path(path)
        self.durability = check_durability(durability)
        self._lock = StorageLock(self.path)
        self._commits = 0
        with self._lock:
            try:
                self._open(busy_seconds, read_only)
            except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
                if read_only or not _is_unwritable(self.path):
                    raise _cannot_open(self.path, error) from error
                self._open(busy_seconds, read_only=True)

    def _open(self, busy_seconds: float, read_only: bool) -> None:
        self._read_only = read_only
        limit = int(busy_seconds * 1_000)
        self._db = _connect(self.path, read_only=read_only, busy_milliseconds=limit)
        self._sharing = ForkSharing(self._db)
        self._tables = Tables(self._db, self._lock, self._sharing)
        waiter = LockWaiter(busy_seconds)
        self._log = CommitLog(self._db, self._tables, self._sharing, waiter)
        self._log.may_apply = not read_only
        try:
            self._db.set_busy_handler(waiter)
            self._prepare(busy_seconds, read_only)
        except BaseException:
            self._db.close()
            raise

    def head(self, context: str) -> Head | None:
        check_context_name(context)
        with self._lock:
            row = self._head_row(context)
            if row is None:
                self._tables.numbers.pop(context, None)
                return None
            self._tables.numbers[context] = row[0]
            return head_of(context, row[1], row[2])

    def prefetch(self, context: str) -> Prefetch:
        """Return the head. Raises `Corrupt` if the journal continues beyond it: a commit would overwrite entries."""
        check_context_name(context)
        with self._lock:
            row = self._head_row(context, HEAD_AND_BEYOND)
            if row is None:
                self._tables.numbers.pop(context, None)
                return Prefetch(None, self)
            self._tables.numbers[context] = row[0]
        head = head_of(context, row[1], row[2])
        if row[4] and head.version > 0:
            raise Corrupt(
                f"The head of context {context!r} is damaged: it is at version {head.version}, and the journal"
                " continues beyond it. Restore the context from a backup."
            )
        return Prefetch(head, self)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        with self._lock:
            number = self._tables.number(context)
            is_known, record = self._log.read(number, family, key)
            return record if is_known else self._reader(context, number).get(context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        with self._lock:
            reader = self._reader(context, self._tables.number(context))
        yield from reader.scan(context, family, start, stop, reverse=reverse)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        with self._lock:
            reader = self._reader(context, self._tables.number(context))
        yield from reader.members(context, family, group, after=after, reverse=reverse)

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        with self._lock:
            return self._reader(context, self._tables.number(context)).sum_members(context, family, group)

    def commit(self, context: str, commit: Commit) -> None:
        check_families(commit.writes)
        with self._lock.held:
            try:
                number = self._tables.numbers.get(context, 0)
                self._commits += 1
                if not self._commits % _COMMITS_BETWEEN:
                    self._bound_wal()
                if self._log.append(number, commit):
                    return
                if commit.expect:
                    self._sharing.lineage(number)  # in the transaction it would not be cached
                execute = self._tables.execute
                execute("BEGIN IMMEDIATE")
                number = self._move_head(context, commit)
                self._apply(number, commit)
                execute("COMMIT")
            except BaseException as error:
                roll_back(self._db)
                self._lock.check(error)
                raise
            self._log.follow(number, Head(commit.version, commit.head))
            self._tables.numbers[context] = number
            if not commit.expect:
                self._sharing.add_origin(number)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        check_context_name(context)
        check_context_name(target)
        check_families(commit.writes)
        with self._lock, transaction(self._db):
            row = self._head_row(context)
            if row is None or not commit.follows(head_of(context, row[1], row[2])):
                raise self._conflict(context, commit.expect)
            source = row[0]
            self._log.apply(source)
            number = self._new_head(target, commit)
            for family, sql in COPY.items():
                last = min(below.get(family, MAX_KEY + 1) - 1, MAX_KEY)
                self._db.execute(sql, {"source": source, "target": number, "last": last})
            ends = {family: self._sharing.end_of(source, family) for family in IMMUTABLE}
            self._sharing.add(number, source, {f: min(end, below.get(f, end)) for f, end in ends.items()})
            self._apply(number, commit)
            self._log.forget(source)

    def contexts(self, after: str = "") -> Iterator[str]:
        while True:
            with self._lock:
                sql = f"SELECT name FROM context WHERE name > ? ORDER BY name LIMIT {_CHUNK}"
                names = [row[0] for row in self._db.execute(sql, (after,))]
            yield from map(name_of, names)
            if len(names) < _CHUNK:
                return
            after = names[-1]

    def drop(self, context: str) -> None:
        check_context_name(context)
        with self._lock:
            try:
                self._drop(context)
            except (apsw.CorruptError, apsw.SQLError):  # only the search index may be damaged
                self._indexes.reset()
                self._drop(context)
            self._tables.numbers.pop(context, None)

    def search(self, context: str) -> "FtsIndex":
        """Return the search index of a context, which is in the same file."""
        from quire.storage.sqlite.search import FtsIndex

        return FtsIndex(self._indexes, lambda: self._tables.number(context))

    def search_check(self) -> "FtsCheck":
        """Start a check of the search indexes of all contexts."""
        from quire.storage.sqlite.search import FtsCheck

        return FtsCheck(self._indexes, self._tables.number)

    @cached_property
    def _indexes(self) -> "FtsIndexes":
        from quire.storage.sqlite.search import FtsIndexes  # deferred: not every program searches

        return FtsIndexes(self._db, self._lock)

    def copy_to(self, path: Path, report: Callable[[int], None] | None = None) -> None:
        """Copy the whole file to a new one while others write.

        `report` is called with the bytes done so far. Raises `Corrupt`, and `OSError` if the copy cannot be written.
        """
        from quire.storage.sqlite.maintenance import copy_file

        with self._lock.errors():
            copy_file(_connect(self.path, read_only=self._read_only), path, report)

    def examine(self, *, repair: bool = False) -> list[Symptom]:
        """Return the problems of the file below the level of contexts; with `repair`, repair derived data."""
        from quire.storage.sqlite.maintenance import examine_file

        with self._lock:
            return examine_file(self._db, self._indexes, repair=repair)

    def scrub(self, contexts: Sequence[str] | None) -> None:
        """Rewrite the file, so that no deleted or overwritten bytes of any context are left in it."""
        from quire.storage.sqlite.maintenance import scrub_file

        with self._lock:
            with transaction(self._db):
                self._log.apply_all()
            scrub_file(self._db, self._sharing, self._indexes)

    @contextmanager
    def snapshot(self, context: str) -> Iterator["SQLiteStorage"]:
        """Return a block in which the file is read as it is now. The write-ahead log grows meanwhile."""
        with self._lock:
            self._log.settle(self._tables.number(context))
        snapshot = SQLiteStorage(self.path, read_only=self._read_only)
        try:
            with snapshot._lock:
                snapshot._log.may_apply = False
                snapshot._db.execute("BEGIN")
                snapshot.head(context)  # the first read fixes the moment
            yield snapshot
        finally:
            snapshot.close()

    def close(self) -> None:
        with self._lock:
            try:
                self._log.settle_own()
            finally:
                self._db.close()

    def _drop(self, context: str) -> None:
        with transaction(self._db):
            number = self._db.execute("DELETE FROM context WHERE name = ? RETURNING id", (context,)).get
            if number:
                self._log.clear(number)
                self._log.forget(number)
                self._sharing.clear(number)
                self._indexes.clear(number)

    def _reader(self, context: str, number: int) -> "Tables | OverlayStorage":
        """Return a reader that shows the newest commits. The caller holds the lock."""
        return self._tables if self._log.settle(number) else self._log.overlay(context, number)

    def _move_head(self, context: str, commit: Commit) -> int:
        """Set the version of a context if it is the expected one; return the number of the context."""
        if commit.expect == 0:
            return self._new_head(context, commit)
        number = self._tables.number(context)
        self._log.apply(number)
        if commit.seen:
            self._tables.execute(MOVE, (commit.version, commit.head, number, commit.expect, commit.seen))
        else:
            self._tables.execute(MOVE_UNSEEN, (commit.version, commit.head, number, commit.expect))
        if self._db.changes() != 1:
            raise self._conflict(context, commit.expect)
        return number

    def _apply(self, number: int, commit: Commit) -> None:
        """Apply the writes of a commit in the open transaction."""
        self._tables.apply(number, commit.writes, is_fork=bool(commit.expect and self._sharing.lineage(number)))

    def _new_head(self, context: str, commit: Commit) -> int:
        check_context_name(context)
        self._tables.numbers.pop(context, None)  # the number of a dropped context with this name
        self._db.execute(
            "INSERT INTO context (name, version, head) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (context, commit.version, commit.head),
        )
        if self._db.changes() != 1:
            raise self._conflict(context, 0)
        number = self._db.last_insert_rowid()
        if number > MAX_CONTEXT:
            raise StorageFailure(f"{str(self.path)!r} has had {MAX_CONTEXT:,} contexts, the limit. Use a new file.")
        return number

    def _conflict(self, context: str, expect: int) -> Conflict:
        row = self._head_row(context)
        return conflict(context, head_of(context, row[1], row[2]) if row else None, expect)

    def _head_row(self, context: str, sql: str = HEAD) -> tuple[Any, ...] | None:
        """Return the number, the version and the head of a context, or None. The newest head can be in the log."""
        row: tuple[Any, ...] | None = self._db.execute(sql, (context,)).fetchone()
        if row is None or row[3] is None:
            return row
        newest: tuple[Any, ...] | None = self._db.execute(NEWEST_HEAD, (context,)).fetchone()
        return None if newest is None else (*newest, *row[3:])

    def _prepare(self, busy_seconds: float, read_only: bool) -> None:
        """Prepare the connection, after a check that the file is empty or made by quire."""
        with self._db:  # one transaction: another process may be creating the tables
            version = self._schema()
        if read_only:
            if not version:
                raise StorageFailure(f"{str(self.path)!r} is empty. Open it for writing to create its tables.")
            for step in MIGRATIONS[version:]:  # the tables that it lacks are empty
                self._db.execute(step.replace("CREATE T", "CREATE TEMP T"))  # tables and triggers
            return
        if not version:
            self._db.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
        self._use_wal(monotonic() + busy_seconds)
        self._bound_wal()
        self._db.execute(f"PRAGMA synchronous = {'FULL' if self.durability == 'full' else 'NORMAL'}")
        if version < len(MIGRATIONS):
            self._migrate()

    def _bound_wal(self) -> None:
        """Let SQLite write the write-ahead log back when it is about as long as the file."""
        self._db.wal_autocheckpoint(max(_MIN_WAL_PAGES, min(self._db.pragma("page_count"), _MAX_WAL_PAGES)))

    def _use_wal(self, deadline: float) -> None:
        """Switch to WAL mode. SQLite's busy timeout does not apply to this statement, so wait here."""
        while True:
            try:
                self._db.pragma("journal_mode", "wal")
                return
            except apsw.BusyError:
                if monotonic() > deadline:
                    raise
                sleep(0.005)

    def _schema(self) -> int:
        """Return the schema version, 0 for an empty file. Raises if another program or a newer quire created it."""
        version, program = self._db.pragma("user_version"), self._db.pragma("application_id")
        if program != APPLICATION_ID and (version or program or self._db.execute("SELECT 1 FROM sqlite_schema").get):
            raise InvalidValue(
                f"{str(self.path)!r} is an SQLite file of another program. Choose another path, or give"
                " quire.open an open connection to this file: quire then adds its tables."
            )
        if version > len(MIGRATIONS):
            raise NewerFormat(
                f"{str(self.path)!r} has schema {version}; this quire reads up to {len(MIGRATIONS)}."
                " Install a newer quire."
            )
        return int(version)

    def _migrate(self) -> None:
        """Upgrade the file to the current schema in one transaction."""
        with transaction(self._db):
            for step in MIGRATIONS[self._schema() :]:
                self._db.execute(step)
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _connect(path: Path, *, read_only: bool, busy_milliseconds: int = 5_000) -> apsw.Connection:
    return read_only_connection(path, busy_milliseconds) if read_only else apsw.Connection(str(path))


def read_only_connection(path: Path, busy_milliseconds: int) -> apsw.Connection:
    """Return a read-only connection. If the folder is read-only too, the file is opened as immutable."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    url = path.absolute().as_uri()
    try:
        db = apsw.Connection(f"{url}?mode=ro", flags=flags)
        db.set_busy_timeout(busy_milliseconds)
        db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        return db
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:  # an immutable file is read without it
            raise StorageFailure(
                f"{str(path)!r} has newer commits in {log.name!r}, which cannot be read in a read-only folder."
                " Copy both files to a writable folder."
            ) from None
        return apsw.Connection(f"{url}?immutable=1", flags=flags)


def _is_unwritable(path: Path) -> bool:
    """Return whether a file exists and its folder cannot be written to."""
    return path.is_file() and not os.access(path.absolute().parent, os.W_OK)


def _cannot_open(path: Path, error: apsw.Error) -> StorageFailure:
    """Return the error for a file that SQLite cannot open, with the reason that the system gives."""
    if path.is_dir():
        return StorageFailure(f"Cannot open {str(path)!r}: it is a folder; file:DIR opens one")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        reason = str(error)
    except FileNotFoundError:
        reason = f"{error}; does its folder exist?"
    except OSError as found:
        reason = str(found)
    return StorageFailure(f"Cannot open {str(path)!r}: {reason}")
