"""The backend a person can read: a folder per context, a commit log that is the truth, readable files beside it.

    DIR/<context>/log            the truth: one frame a commit
    DIR/<context>/stamp.json     how far the readable files and the log were at the last orderly moment
    DIR/<context>/segments.json  readable
    DIR/<context>/pages/…        readable: <index>.json and <index>.txt

A commit is acknowledged once its frame is in the log; the readable files follow, and opening catches up on them.
The records of a context are indexed in memory, so this backend suits thousands of pages rather than millions.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from quire.errors import Busy, StorageClosed, StorageFailure
from quire.storage.base import (
    MAX_KEY,
    Commit,
    Durability,
    Family,
    Head,
    Record,
    check_context_name,
    check_durability,
    check_path,
    conflict,
    file_name,
    fork_by_copy,
)
from quire.storage.file.log import FolderLog, Place, has_log, has_traces, identity, log_lost, name_in, sync_folder
from quire.storage.memory import Row

try:
    import fcntl
except ImportError:  # pragma: no cover - no such platform among ours
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from quire.storage.base import Symptom

_OPEN_FILES = 64


class FileStorage:
    """Records in a folder. Several processes and threads can share it.

    `durability="normal"` survives `kill -9`; `"full"` survives power loss too. A lock held longer than `busy_seconds`
    is `Busy`.
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
        self._logs: OrderedDict[str, FolderLog] = OrderedDict()
        self._closed = False
        with _errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            for trash in self.path.glob(".dropped-*"):  # of a drop that was killed half way
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

    def commit(self, context: str, commit: Commit) -> None:
        folder = self._folder(context)
        with self._lock, _errors(self.path):
            self._check_open()
            if commit.expect == 0:
                folder.mkdir(exist_ok=True)
            elif not folder.exists():
                raise conflict(context, None, commit.expect)
            with _file_lock(folder, self._busy_seconds):
                log = self._log(context, fresh=True)
                head = log.head if log else None
                if not commit.follows(head):
                    raise conflict(context, head, commit.expect)
                if log is None:
                    log = self._keep(context, FolderLog(folder, context))
                log.append(commit, full=self.durability == "full")
                log.mirror()

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        folder = self._folder(context)
        with self._lock, _errors(self.path):
            self._check_open()
            if not folder.exists():
                raise conflict(context, None, commit.expect)
            with _file_lock(folder, self._busy_seconds):
                fork_by_copy(self, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        with self._lock, _errors(self.path):
            self._check_open()
            named = {
                name: folder for folder in self._folders() if (name := name_in(folder)) is not None and name > after
            }
        for name in sorted(named):
            if has_log(named[name]) or has_traces(named[name]):  # one that lost its log is not passed over
                yield name

    def drop(self, context: str) -> None:
        folder = self._folder(context)
        with self._lock, _errors(self.path):
            self._check_open()
            log = self._logs.pop(context, None)
            if log:
                log.close()
            if folder.exists():
                with _file_lock(folder, self._busy_seconds):
                    trash = self.path / f".dropped-{os.urandom(8).hex()}"
                    folder.rename(trash)  # at once for everyone; removing the files takes longer
                    sync_folder(self.path)
                _remove(trash)

    def examine(self, *, repair: bool = False) -> "list[Symptom]":
        """What in the folder belongs to no context. Nothing of it is removed: it may be somebody's."""
        with self._lock, _errors(self.path):
            self._check_open()
            found = [self._stray(folder) for folder in sorted(self._folders())]
        return [symptom for symptom in found if symptom is not None]

    def _stray(self, folder: Path) -> "Symptom | None":
        from quire.storage.base import Symptom

        if has_traces(folder) and name_in(folder) is None:
            text, remedy = str(log_lost(folder)), "Restore it from a backup."
            return Symptom(code="head_lost", severity="error", where=folder.name, text=text, remedy=remedy)
        if has_traces(folder) or has_log(folder):
            return None
        text = "It holds no context: it is something else, or the first commit of a context was torn."
        remedy = "Look at it, then remove it."
        return Symptom(code="no_context", severity="note", where=folder.name, text=text, remedy=remedy)

    def scrub(self, contexts: Sequence[str]) -> None:
        """Write the logs of these contexts anew with nothing in them but what is there, and the readable files too."""
        for context in contexts:
            folder = self._folder(context)
            with self._lock, _errors(self.path):
                self._check_open()
                if folder.exists():
                    with _file_lock(folder, self._busy_seconds):
                        log = self._log(context, fresh=True)
                        if log is not None:
                            log.rewrite()
                            log.close()
                            del self._logs[context]
                            log = self._log(context)
                        if log is not None:
                            log.mirror()

    @contextmanager
    def snapshot(self, context: str) -> Iterator["FileStorage"]:
        """The context as it is now, whatever is committed meanwhile: its log up to here."""
        still = _Still(self.path)
        try:
            still.head(context)
            yield still
        finally:
            still.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for log in self._logs.values():
                with suppress(OSError):
                    log.stamp()
                log.close()
            self._logs.clear()

    def _folders(self) -> Iterator[Path]:
        """Whatever may be a context."""
        return (self.path / name for name in os.listdir(self.path) if not name.startswith("."))

    def _folder(self, context: str) -> Path:
        return self.path / file_name(check_context_name(context))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed(f"The storage {str(self.path)!r} is closed: open it again.")

    def _open(self, context: str) -> "FolderLog | None":
        with self._lock, _errors(self.path):
            return self._log(context)

    def _log(self, context: str, *, fresh: bool = False) -> "FolderLog | None":
        """The context's log, or None if there is none; with `fresh`, with all that others appended."""
        self._check_open()
        log = self._logs.get(check_context_name(context))
        if log is not None and fresh and not log.is_current():
            log.close()
            del self._logs[context]
            log = None
        if log is None:
            folder = self._folder(context)
            if not (folder / "log").exists():
                if has_traces(folder) and not (folder / "log").exists():  # looked at again: it may just be made
                    raise log_lost(folder)
                return None
            log = FolderLog(folder, context)
            try:
                log.start()
                if log.head is None and has_traces(folder):
                    log.catch_up()  # it may just have been made
                    if log.head is None:
                        raise log_lost(folder)
            except BaseException:
                log.close()
                raise
            if log.head is None:  # created, but killed before its first commit
                log.close()
                return None
            self._keep(context, log)
            with suppress(Busy), _file_lock(folder, 0):  # a writer that is at work catches up itself
                log.mirror()
        elif fresh:
            log.catch_up()
        return self._keep(context, log)

    def _keep(self, context: str, log: "FolderLog") -> "FolderLog":
        """Remember the log, and park those that were not asked for lately."""
        self._logs[context] = log
        self._logs.move_to_end(context)
        for other in list(self._logs.values())[:-_OPEN_FILES]:
            other.park()
        return log

    def _stream(self, log: "FolderLog", rows: Iterator[tuple[int, Row[Place]]]) -> Iterator[Record]:
        while True:
            with self._lock, _errors(self.path):
                self._check_open()
                found = None if log.closed else next(rows, None)  # closed: the context was dropped meanwhile
                if found is None:
                    return
                record = log.record(*found)
            yield record


class _Still(FileStorage):
    """A folder whose logs are read once: what is appended later is not seen."""

    def _log(self, context: str, *, fresh: bool = False) -> "FolderLog | None":
        return super()._log(context)

    def close(self) -> None:
        with self._lock:
            for log in self._logs.values():
                log.close()
            self._logs.clear()
            super().close()


def _remove(folder: Path) -> None:
    from shutil import rmtree  # here, because importing it costs a tenth of importing quire

    rmtree(folder, ignore_errors=True)


@contextmanager
def _file_lock(folder: Path, seconds: float) -> Iterator[None]:
    """The context's lock between processes; the kernel lifts it when its holder dies."""
    deadline = time.monotonic() + seconds
    while True:
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _wait_for(file, deadline, folder)
            if _is_at(file, folder / "lock"):
                yield
                return
        finally:
            os.close(file)
        folder.mkdir(exist_ok=True)  # dropped while we waited: take the new folder's lock


def _wait_for(file: int, deadline: float, folder: Path) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Busy(f"{str(folder)!r} is locked by another writer: retry.") from None
            time.sleep(0.002)


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file is still the one at this path."""
    try:
        return identity(os.stat(path)) == identity(os.fstat(file))
    except FileNotFoundError:
        return False


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailure(f"{str(path)!r}: {error}.") from error
