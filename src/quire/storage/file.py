"""The backend a person can read: a folder per context, a commit log that is the truth, readable files beside it.

    DIR/<context>/log            the truth: one frame a commit
    DIR/<context>/stamp.json     how far the readable files and the log were at the last orderly moment
    DIR/<context>/segments.json  readable
    DIR/<context>/pages/…        readable: <index>.json and <index>.txt

A commit is acknowledged once its frame is in the log; the readable files follow, and opening catches up on them.
The records of a context are indexed in memory, so this backend suits thousands of pages rather than millions.
"""

import json
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from quire.errors import Busy, Conflict, Corrupt, QuireError, StorageClosed, StorageFailure
from quire.records import decode_head
from quire.storage.base import (
    MAX_KEY,
    Commit,
    Durability,
    Family,
    Head,
    Put,
    Record,
    Write,
    check_context_name,
    check_durability,
    conflict,
    fork_by_copy,
)
from quire.storage.log import FRAME_HEAD, Frame, encode_frame, holds_frame, read_frames
from quire.storage.mirror import Mirror
from quire.storage.names import file_name
from quire.storage.table import Row, Table

try:
    import fcntl
except ImportError:  # pragma: no cover - no such platform among ours
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from quire.storage.symptoms import Symptom

_TITLE = b"quire log 1 "
_STAMP_EVERY = 256
_OPEN_FILES = 64
Place = tuple[int, int]
"""Where a value is in the log: (offset, size)."""


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
        self.path = Path(path)
        self.durability = check_durability(durability)
        self._busy_seconds = busy_seconds
        self._lock = RLock()
        self._logs: OrderedDict[str, _Log] = OrderedDict()
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
                    log = self._keep(context, _Log(folder, context))
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
            names = [_title(folder) for folder in self.path.iterdir() if not folder.name.startswith(".")]
        yield from sorted(name for name in names if name is not None and name > after)

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
                    _sync_folder(self.path)
                _remove(trash)

    def examine(self, *, repair: bool = False) -> "list[Symptom]":
        """What in the folder belongs to no context. Nothing of it is removed: it may be somebody's."""
        from quire.storage.symptoms import Symptom

        with self._lock, _errors(self.path):
            self._check_open()
            strays = sorted(f.name for f in self.path.iterdir() if not f.name.startswith(".") and _title(f) is None)
        text = "It holds no context: it is something else, or the first commit of a context was torn."
        return [
            Symptom(code="no_context", severity="note", where=name, text=text, remedy="Look at it, then remove it.")
            for name in strays
        ]

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

    def _folder(self, context: str) -> Path:
        return self.path / file_name(check_context_name(context))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed(f"The storage {str(self.path)!r} is closed: open it again.")

    def _open(self, context: str) -> "_Log | None":
        with self._lock, _errors(self.path):
            return self._log(context)

    def _log(self, context: str, *, fresh: bool = False) -> "_Log | None":
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
                return None
            log = _Log(folder, context)
            try:
                log.start()
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

    def _keep(self, context: str, log: "_Log") -> "_Log":
        """Remember the log, and park those that were not asked for lately."""
        self._logs[context] = log
        self._logs.move_to_end(context)
        for other in list(self._logs.values())[:-_OPEN_FILES]:
            other.park()
        return log

    def _stream(self, log: "_Log", rows: Iterator[tuple[int, Row[Place]]]) -> Iterator[Record]:
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

    def _log(self, context: str, *, fresh: bool = False) -> "_Log | None":
        return super()._log(context)

    def close(self) -> None:
        with self._lock:
            for log in self._logs.values():
                log.close()
            self._logs.clear()
            super().close()


class _Log:
    """One context's log: its records by place, its head, and the readable files that follow it."""

    def __init__(self, folder: Path, context: str) -> None:
        self.table: Table[Place] = Table()
        self.head: Head | None = None
        self._folder = folder
        self._path = folder / "log"
        self._title = _TITLE + json.dumps(context).encode() + b"\n"
        self._descriptor: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._identity = _identity(os.fstat(self._descriptor))
        self._end = 0
        self._mirror = Mirror(folder)
        self._stamped, self._files = self._read_stamp()
        self._unmirrored: set[tuple[Family, int]] = set()
        self._since_stamp = 0
        self._rebuild = False
        self.closed = False

    @property
    def _file(self) -> int:
        """The open file; one that was parked is opened again."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            if _identity(os.fstat(self._descriptor)) != self._identity:
                self.close()
                raise StorageFailure(f"The context in {str(self._folder)!r} was dropped: refresh() and retry.")
        return self._descriptor

    def park(self) -> None:
        """Give the file back to the system until it is needed again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def start(self) -> None:
        """Read the log for the first time. Raises `Corrupt` if it ends before a point it had reached in order."""
        self.catch_up()
        if self._end < self._stamped:
            raise Corrupt(f"{str(self._path)!r} is damaged after byte {self._end} of {self._stamped}.")
        torn = os.fstat(self._file).st_size > self._end
        self._rebuild = torn or self._files != self._mirror.count()  # the readable files say more or less than the log

    def is_current(self) -> bool:
        """Whether the file this log reads is still the one at its path, and has all that was read of it."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return _identity(there) == self._identity and there.st_size >= self._end

    def catch_up(self) -> None:
        """Take in what was appended since the last look. Raises `Corrupt`."""
        if self._end == 0:
            title = os.pread(self._file, len(self._title), 0)
            if title != self._title:
                if self._title.startswith(title):  # killed while creating it
                    return
                raise Corrupt(f"{str(self._path)!r} does not begin like a log of this context.")
            self._end = len(title)
        data = _read(self._file, self._end)
        for frame in read_frames(data, self._end):
            self._apply(frame)

    def append(self, commit: Commit, *, full: bool) -> None:
        """Append a commit and, with `full`, wait until it is on disk. The file lock is held."""
        created = self._end == 0
        start = len(self._title) if created else self._end
        frame = encode_frame(commit)
        data = self._title + frame if created else frame
        try:
            os.ftruncate(self._file, start if not created else 0)  # a torn tail, if there is one
            _write(self._file, data, start - (len(self._title) if created else 0))
            if full or created:
                os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, 0 if created else start)
            raise
        if created:
            _sync_folder(self._folder)
            _sync_folder(self._folder.parent)
        self._apply(next(read_frames(frame, start)))

    def rewrite(self) -> None:
        """Put a log in the place of this one that holds what is there now and no history. The file lock is held."""
        if self.head is None:
            return
        fresh = self._path.with_name("log.new")
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            end = len(self._title)
            _write(file, self._title, 0)
            for writes in self._everything():
                frame = encode_frame(Commit(0, self.head.version, self.head.value, writes))
                _write(file, frame, end)
                end += len(frame)
            os.fsync(file)
        finally:
            os.close(file)
        (self._folder / "stamp.json").unlink(missing_ok=True)  # it speaks of the old log
        os.replace(fresh, self._path)
        _sync_folder(self._folder)

    def _everything(self) -> Iterator[list[Write]]:
        """All records, in parts of about a megabyte."""
        part: list[Write] = []
        size = 0
        for family, key in sorted(self.table.keys()):
            row = self.table.get(family, key)
            if row is not None:
                record = self.record(key, row)
                part.append(Put(family, key, record.value, record.group, record.order))
                size += len(record.value)
                if size > 1 << 20:
                    yield part
                    part, size = [], 0
        yield part

    def record(self, key: int, row: Row[Place]) -> Record:
        """A record with its value read from the log."""
        offset, size = row.value
        value = os.pread(self._file, size, offset) if size else b""
        if len(value) < size:  # another writer took back a commit that it could not finish
            raise Conflict(f"The context in {str(self._folder)!r} was changed by another writer: refresh() and retry.")
        return Record(key, value, row.group, row.order)

    def mirror(self) -> None:
        """Write the readable files of what changed. They are a courtesy: a failure here does not undo the commit.

        The file lock is held.
        """
        if self.head is None or self.head.version < 0 or not (self._unmirrored or self._rebuild):
            return
        with suppress(OSError, QuireError):
            if self._rebuild:
                self._mirror.clear()
                self._unmirrored = set(self.table.keys())
                self._rebuild = False
            self._mirror.write(decode_head(self.head.value), self._unmirrored, self._lookup)
            self._unmirrored.clear()
            self._since_stamp += 1
            if self._since_stamp >= _STAMP_EVERY:
                self.stamp()

    def stamp(self) -> None:
        """Note how far the readable files are, and that the log reached so far."""
        if self.head is None or self._unmirrored or self._rebuild:
            return
        os.fdatasync(self._file)
        (self._folder / "stamp.json").touch()
        stamp = {"version": self.head.version, "size": self._end, "files": self._mirror.count()}
        fresh = self._folder / "stamp.json.new"
        fresh.write_text(json.dumps(stamp))
        os.replace(fresh, self._folder / "stamp.json")
        self._since_stamp = 0

    def close(self) -> None:
        self.closed = True
        self.park()

    def _apply(self, frame: Frame) -> None:
        for entry in frame.entries:
            family, key = entry.family, entry.key
            if entry.is_delete:
                self.table.delete(family, key)
            else:
                old = self.table.get(family, key)
                group, order = (old.group, old.order) if old and not entry.is_put else (entry.group, entry.order)
                if entry.is_put or old:
                    self.table.put(family, key, (entry.offset, entry.size), group, order)
            if frame.start >= self._stamped:
                self._unmirrored.add((family, key))
        self.head = Head(frame.version, frame.head)
        self._end = frame.end

    def _lookup(self, family: Family, key: int) -> Record | None:
        row = self.table.get(family, key)
        return self.record(key, row) if row else None

    def _read_stamp(self) -> tuple[int, int]:
        """How far the log was at the last orderly moment, and how many readable files there were."""
        try:
            stamp = json.loads((self._folder / "stamp.json").read_bytes())
            return int(stamp["size"]), int(stamp["files"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0, -1


def _title(folder: Path) -> str | None:
    """The context a folder holds, or None if it holds none, or one whose first commit was torn."""
    try:
        with open(folder / "log", "rb") as log:
            first = log.readline(4_096)
            if not first.startswith(_TITLE) or not holds_frame(
                log.read(FRAME_HEAD), os.fstat(log.fileno()).st_size - len(first)
            ):
                return None
        return str(json.loads(first.removeprefix(_TITLE)))
    except (OSError, ValueError):
        return None


def _remove(folder: Path) -> None:
    from shutil import rmtree  # here, because importing it costs a tenth of importing quire

    rmtree(folder, ignore_errors=True)


def _read(file: int, offset: int) -> bytes:
    parts = []
    while part := os.pread(file, 1 << 24, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


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
        return _identity(os.stat(path)) == _identity(os.fstat(file))
    except FileNotFoundError:
        return False


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailure(f"{str(path)!r}: {error}.") from error
