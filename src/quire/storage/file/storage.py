"""The file backend: a folder per context with a commit log, and readable files.

    DIR/<context>/log            the records: one frame per commit
    DIR/<context>/stamp.json     the state of the log and of the readable files when they last matched
    DIR/<context>/segments.json  readable
    DIR/<context>/pages/…        readable: <index>.json and <index>.txt

A commit is acknowledged when its frame is in the log. The readable files are written afterwards, and opening a context
brings them up to date. All records of a context are indexed in memory, so this backend suits thousands of pages, not
millions.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EROFS
from pathlib import Path
from threading import RLock

from quire.errors import Busy, Corrupt, ReadOnly, StorageClosed, StorageFailure
from quire.storage.base import (
    MAX_KEY,
    Commit,
    Durability,
    Family,
    Head,
    Record,
    Symptom,
    check_context_name,
    check_durability,
    check_families,
    conflict,
    fork_by_copy,
)
from quire.storage.file.log import (
    UNWRITABLE,
    ContextLog,
    Position,
    context_in,
    file_identity,
    find_lost,
    has_log,
    has_traces,
    lost_text,
    missing_log,
    sync_path,
)
from quire.storage.memory import Row
from quire.storage.paths import check_path, file_name

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

_OPEN_FILES = 64
_OPEN_ATTEMPTS = 3


class FileStorage:
    """Records in a folder. Several processes and threads can share it.

    With `durability="normal"` a commit survives `kill -9`; with `"full"` it survives power loss too. `Busy` is raised
    if another writer holds the lock longer than `busy_seconds`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, durability: Durability = "normal", busy_seconds: float = 5.0
    ) -> None:
        if fcntl is None:  # pragma: no cover
            raise StorageFailure("The file backend needs POSIX file locks; use an SQLite file here.")
        self.path = check_path(path)
        self.durability = check_durability(durability)
        self._busy_seconds = busy_seconds
        self._lock = RLock()
        self._logs: OrderedDict[str, ContextLog] = OrderedDict()
        self._closed = False
        with _errors(self.path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as error:
                raise StorageFailure(f"Cannot open {str(self.path)!r}: a folder is needed, not a file.") from error
            for trash in self.path.glob(".dropped-*"):  # left by a drop that was interrupted
                _remove(trash)

    def head(self, context: str) -> Head | None:
        with self._lock, _errors(self.path):
            log = self._log(context, fresh=True)
            return log.head if log else None

    def get(self, context: str, family: Family, key: int) -> Record | None:
        with self._lock, _errors(self.path):
            log = self._log(context)
            row = log.table.get(family, key) if log else None
            return log.record(key, row) if log and row else None

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        log = self._open(context)
        return self._stream(log, log.table.scan(family, start, stop, reverse=reverse)) if log else iter(())

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        log = self._open(context)
        return self._stream(log, log.table.members(family, group, after, reverse=reverse)) if log else iter(())

    def sum_members(self, context: str, family: Family, group: int) -> tuple[int, int]:
        log = self._open(context)
        return log.table.sum_members(family, group) if log else (0, 0)

    def commit(self, context: str, commit: Commit) -> None:
        folder = self._folder(context)
        check_families(commit.writes)
        with self._lock, _errors(self.path):
            self._check_open()
            with _file_lock(folder, self._busy_seconds, create=commit.expect == 0) as is_locked:
                log = self._log(context, fresh=True) if is_locked else None
                head = log.head if log else None
                if not commit.follows(head):
                    raise conflict(context, head, commit.expect)
                if log is None:
                    log = self._cache(context, ContextLog(folder, context, create=True))
                log.append(commit, full=self.durability == "full")
                log.mirror()

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        folder = self._folder(context)
        with self._lock, _errors(self.path):
            self._check_open()
            with _file_lock(folder, self._busy_seconds) as is_locked:
                if not is_locked:
                    raise conflict(context, None, commit.expect)
                fork_by_copy(self, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        with self._lock, _errors(self.path):
            self._check_open()
            named = {
                name: folder for folder in self._folders() if (name := context_in(folder)) is not None and name > after
            }
        for name in sorted(named):
            with _errors(self.path):
                is_context = has_log(named[name]) or has_traces(named[name])  # report a context without its log too
            if is_context:
                yield name

    def drop(self, context: str) -> None:
        folder = self._folder(context)
        with self._lock, _errors(self.path):
            self._check_open()
            log = self._logs.pop(context, None)
            if log:
                log.close()
            trash = self.path / f".dropped-{os.urandom(8).hex()}"
            with _file_lock(folder, self._busy_seconds) as is_locked:
                if not is_locked:
                    return
                folder.rename(trash)  # atomic; removing the files takes longer
                sync_path(self.path)
            _remove(trash)

    def examine(self, *, repair: bool = False) -> list[Symptom]:
        """Report folders without a context, which are never removed, and bytes that power failures made unreadable."""
        with self._lock, _errors(self.path):
            self._check_open()
            folders = sorted(self._folders())
            found = [symptom for folder in folders for symptom in (self._stray(folder), *self._lost_commits(folder))]
        return [symptom for symptom in found if symptom is not None]

    def _lost_commits(self, folder: Path) -> Iterator[Symptom]:
        """Report a log with a gap, and files with the bytes after earlier gaps."""
        context = context_in(folder) or ""
        for name in find_lost(folder):
            text = f"A power failure made the end of the log unreadable. The file {name!r} holds its bytes."
            remedy = "The changes in it are lost. Remove the file when you do not need it."
            yield Symptom("commits_lost", "warning", "log", text, remedy, context)
        with suppress(Corrupt):  # reported with the context
            log = self._log(context) if context and has_log(folder) else None
            if log is not None and log.lost:
                text, remedy = lost_text(folder, log.head, log.lost), "The next commit moves them to a separate file."
                yield Symptom("commits_lost", "warning", "log", text, remedy, context)

    def _stray(self, folder: Path) -> Symptom | None:
        if has_traces(folder) and context_in(folder) is None:
            text, remedy = str(missing_log(folder)), "Restore it from a backup."
            return Symptom("head_lost", "error", folder.name, text, remedy)
        if has_traces(folder) or has_log(folder):
            return None
        text = "It holds no context. It belongs to another program, or the first commit of a context was interrupted."
        remedy = "Look at it, then remove it."
        return Symptom("no_context", "note", folder.name, text, remedy)

    def scrub(self, contexts: Sequence[str] | None) -> None:
        """Rewrite the logs and the readable files of these contexts with their current records only.

        Remove leftover files of dropped contexts.
        """
        for context in self.contexts() if contexts is None else contexts:
            folder = self._folder(context)
            with self._lock, _errors(self.path):
                self._check_open()
                with _file_lock(folder, self._busy_seconds) as is_locked:
                    log = self._log(context, fresh=True) if is_locked else None
                    if log is not None:
                        log.rewrite()
                        log.close()
                        del self._logs[context]
                        log = self._log(context)
                    if log is not None:
                        log.mirror()
        with self._lock, _errors(self.path):
            for trash in self.path.glob(".dropped-*"):
                _remove(trash, strict=True)

    @contextmanager
    def snapshot(self, context: str) -> Iterator["FileStorage"]:
        """Return a block in which the context is read up to the current end of its log."""
        snapshot = _FileSnapshot(self)
        try:
            snapshot.head(context)
            yield snapshot
        finally:
            snapshot.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for context, log in self._logs.items():
                with suppress(OSError, Busy, ReadOnly), _file_lock(self._folder(context), 0) as is_locked:
                    if is_locked and log.is_current():  # otherwise the stamp would describe a log that was replaced
                        log.stamp()
                log.close()
            self._logs.clear()

    def _folders(self) -> Iterator[Path]:
        """Return the folders that may hold a context."""
        return (self.path / name for name in os.listdir(self.path) if not name.startswith("."))

    def _folder(self, context: str) -> Path:
        return self.path / file_name(check_context_name(context))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed(f"The storage {str(self.path)!r} is closed. Open it again.")

    def _open(self, context: str) -> ContextLog | None:
        with self._lock, _errors(self.path):
            return self._log(context)

    def _log(self, context: str, *, fresh: bool = False) -> ContextLog | None:
        """Return the log of a context, or None. With `fresh`, read the commits of other writers first."""
        self._check_open()
        log = self._logs.get(check_context_name(context))
        if log is not None and fresh and not log.is_current():
            log.close()
            del self._logs[context]
            log = None
        if log is None:
            log = self._open_log(self._folder(context), context)
            if log is None:
                return None
            self._cache(context, log)
            with suppress(Busy, ReadOnly), _file_lock(self._folder(context), 0) as is_locked:
                if is_locked and log.is_current():  # otherwise the files would show a context that was dropped
                    log.catch_up()
                    log.check_end()
                    log.mirror()  # a writer that holds the lock does it itself
        elif fresh:
            log.catch_up()
        return self._cache(context, log)

    def _open_log(self, folder: Path, context: str) -> ContextLog | None:
        """Read a log. Before damage is reported, look again: another process may create, drop or rewrite the log."""
        for _ in range(_OPEN_ATTEMPTS - 1):
            with suppress(Corrupt, FileNotFoundError):
                return _read_log(folder, context)
        return _read_log(folder, context)

    def _cache(self, context: str, log: ContextLog) -> ContextLog:
        """Cache the log, and park the least recently used ones."""
        self._logs[context] = log
        self._logs.move_to_end(context)
        for other in list(self._logs.values())[:-_OPEN_FILES]:
            other.park()
        return log

    def _stream(self, log: ContextLog, rows: Iterator[tuple[int, Row[Position]]]) -> Iterator[Record]:
        while True:
            with self._lock, _errors(self.path):
                self._check_open()
                found = None if log.closed else next(rows, None)  # closed: the context was dropped
                if found is None:
                    return
                record = log.record(*found)
            yield record


class _FileSnapshot(FileStorage):
    """Shows each context as it was when it was first read."""

    def __init__(self, source: FileStorage) -> None:
        vars(self).update(vars(source))
        self._source = source
        self._frozen: dict[str, ContextLog | None] = {}

    def _log(self, context: str, *, fresh: bool = False) -> ContextLog | None:
        if context not in self._frozen:
            log = self._source._log(context, fresh=True)
            self._frozen[context] = log.freeze() if log else None
        return self._frozen[context]

    def close(self) -> None:
        for log in self._frozen.values():
            if log is not None:
                log.close()


def _read_log(folder: Path, context: str) -> ContextLog | None:
    """Return the log in a folder; None if it has no commit. Raises `Corrupt`."""
    if not (folder / "log").exists():
        if has_traces(folder):
            raise missing_log(folder)
        return None
    log = ContextLog(folder, context)
    try:
        log.start()
        if log.head is None and has_traces(folder):
            raise missing_log(folder)
    except BaseException:
        log.close()
        raise
    if log.head is None:  # the process died before the first commit
        log.close()
        return None
    return log


def _remove(folder: Path, *, strict: bool = False) -> None:
    from shutil import rmtree  # deferred: the import is slow

    with suppress(FileNotFoundError):  # another process removes it too
        rmtree(folder, ignore_errors=not strict)


@contextmanager
def _file_lock(folder: Path, seconds: float, *, create: bool = False) -> Iterator[bool]:
    """Hold the lock of a context between processes. Yields False if the context has no folder and `create` is not set.

    The kernel releases the lock if the process dies.
    """
    deadline = time.monotonic() + seconds
    while True:
        if create:
            folder.mkdir(exist_ok=True)
        file = _open_lock(folder)
        if file is not None:
            try:
                _wait_for(file, deadline, folder)
                if _is_at(file, folder / "lock"):  # otherwise the context was dropped meanwhile
                    yield True
                    return
            finally:
                os.close(file)
        elif not create:
            yield False
            return


def _open_lock(folder: Path) -> int | None:
    try:
        return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReadOnly(f"{str(folder)!r} is read-only: {error}.") if error.errno in UNWRITABLE else error from error


def _wait_for(file: int, deadline: float, folder: Path) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Busy(f"{str(folder)!r} is locked by another writer. Retry.") from None
            time.sleep(0.002)


def _is_at(file: int, path: Path) -> bool:
    """Return whether the open file is still the one at this path."""
    try:
        return file_identity(os.stat(path)) == file_identity(os.fstat(file))
    except FileNotFoundError:
        return False


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == EROFS:
            raise ReadOnly(f"{str(path)!r} is read-only: {error}.") from error
        raise StorageFailure(f"{str(path)!r}: {error}.") from error
