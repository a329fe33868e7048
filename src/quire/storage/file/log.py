"""The log of one context: one checksummed frame per commit, appended and never changed.

Unreadable bytes at the end are a torn tail: a crash interrupted a commit that was not acknowledged. Unreadable bytes
before a readable frame are damage. The exception is a gap: a block of zeros after the last position that is known to be
on disk.
A power failure leaves it if the system wrote a later block first. Then the log ends before the gap.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from errno import EACCES, EMFILE, ENFILE, EPERM, EROFS
from pathlib import Path

from quire.errors import Conflict, Corrupt, Hint, QuireError, StorageFailure
from quire.model.text import format_json
from quire.storage.base import PAGE, SEGMENT, Commit, Family, Head, Put, Record, Write
from quire.storage.file import Description, PageFile, current_describer
from quire.storage.file.frames import (
    DELETE,
    FRAME_HEAD,
    PATCH,
    Frame,
    encode_frame,
    find_frame,
    has_gap,
    holds_frame,
    read_frames,
)
from quire.storage.memory import Row, Table
from quire.storage.paths import decode_file_name, file_name

UNWRITABLE = (EROFS, EACCES, EPERM)
"""The errors of a file that can only be read."""
_EXHAUSTED = (EMFILE, ENFILE)
_TITLE = b"quire log 1 "
_LOST = "log.lost-"
"""The beginning of the name of a file with the bytes after a gap; the rest is their offset in the log."""
_STAMP_EVERY = 256
_PART_BYTES = 1 << 20
Position = tuple[int, int]
"""The position of a value in the log: (offset, size)."""


class ContextLog:
    """The log of one context: the positions of its records, its head, and the readable files that follow it."""

    def __init__(self, folder: Path, context: str, *, create: bool = False) -> None:
        self.table: Table[Position] = Table()
        self.head: Head | None = None
        self._folder = folder
        self._context = context
        self._path = folder / "log"
        self._title = _TITLE + json.dumps(context).encode() + b"\n"
        self._descriptor: int | None = _open_log(self._path, os.O_CREAT if create else 0)
        self._identity = file_identity(os.fstat(self._descriptor))
        self._end = 0
        self.lost = 0
        """The number of bytes at the end that a power failure made unreadable."""
        self._mirror = Mirror(folder)
        self._stamped, self._files = self._read_stamp()
        self._unmirrored: set[tuple[Family, int]] = set()
        self._since_stamp = 0
        self._rebuild = False
        self.closed = False

    @property
    def _file(self) -> int:
        """The open file. A parked log is opened again."""
        if self._descriptor is None:
            self._descriptor = _open_log(self._path)
            if file_identity(os.fstat(self._descriptor)) != self._identity:
                self.close()
                raise StorageFailure(
                    f"The context in {str(self._folder)!r} was dropped.", Hint("refresh", purpose="and retry")
                )
        return self._descriptor

    def park(self) -> None:
        """Close the file until it is needed again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def start(self) -> None:
        """Read the log for the first time. Raises `Corrupt` if it ends before the position in the stamp."""
        self.catch_up()
        if self._end < self._stamped:
            if self.head is None:
                raise missing_log(self._folder)
            raise Corrupt(f"{str(self._path)!r} is damaged after byte {self._end} of {self._stamped}.")
        torn = os.fstat(self._file).st_size > self._end
        self._rebuild = torn or self._files != self._mirror.count()  # the readable files do not match the log

    def is_current(self) -> bool:
        """Return whether the path still has the same file, and the file still has all bytes that were read."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        return file_identity(found) == self._identity and found.st_size >= self._end

    def freeze(self) -> "ContextLog":
        """Return the log as it is now, for reading. Later commits are not visible in it."""
        frozen = copy(self)
        frozen.table = self.table.copy()
        frozen._descriptor = os.dup(self._file)
        return frozen

    def catch_up(self) -> None:
        """Read the frames that were appended since the last call. Raises `Corrupt`."""
        if self._end == 0:
            title = os.pread(self._file, len(self._title), 0)
            if title != self._title:
                if self._title.startswith(title):  # the process died while it created the log
                    return
                raise Corrupt(f"{str(self._path)!r} does not begin like a log of this context.")
            self._end = len(title)
        data, base = _read(self._file, self._end), self._end
        while True:
            try:
                for frame in read_frames(data, self._end):
                    self._apply(frame)
                return
            except Corrupt:
                tail, again = data[self._end - base :], _read(self._file, self._end)
                if again.startswith(tail):
                    if self._end < self._stamped or not has_gap(tail[: find_frame(tail, 1)], self._end):
                        raise
                    self._report_lost(len(tail))
                    return
                data, base = again, self._end  # meanwhile a writer cut a torn tail and appended

    def check_end(self) -> None:
        """Look for a gap after the last frame. The caller holds the file lock, so no frame is being written."""
        tail = _read(self._file, self._end)
        if not self.lost and self._end >= self._stamped and has_gap(tail, self._end):
            self._report_lost(len(tail))

    def _report_lost(self, size: int) -> None:
        if not self.lost:
            logging.getLogger("quire").warning("%s %s", lost_text(self._folder, self.head, size), "Run doctor.")
        self.lost = size

    def append(self, commit: Commit, *, full: bool) -> None:
        """Append a commit; with `full`, wait until it is on disk. The caller holds the file lock."""
        created = self._end == 0
        start = len(self._title) if created else self._end
        frame = encode_frame(commit)
        data = self._title + frame if created else frame
        try:
            self._cut_tail()
            _write(self._file, data, self._end)
            if full or created:
                os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        if created:
            sync_path(self._folder)
            sync_path(self._folder.parent)
        self._apply(next(read_frames(frame, start)))

    def _cut_tail(self) -> None:
        """Cut a torn tail. Copy bytes that a power failure made unreadable to another file first."""
        if os.fstat(self._file).st_size > self._end:
            self.check_end()
            if self.lost:
                lost = self._folder / f"{_LOST}{self._end}"
                lost.write_bytes(_read(self._file, self._end))
                sync_path(lost)
            os.ftruncate(self._file, self._end)
            os.fdatasync(self._file)  # otherwise a power failure could restore old bytes between new frames

    def rewrite(self) -> None:
        """Replace the log by one with the current records and without older ones. The caller holds the file lock."""
        if self.head is None:
            return
        fresh = self._path.with_name("log.new")
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            end = len(self._title)
            _write(file, self._title, 0)
            for writes in self._all_records():
                frame = encode_frame(Commit(0, self.head.version, self.head.value, writes))
                _write(file, frame, end)
                end += len(frame)
            os.fsync(file)
        finally:
            os.close(file)
        (self._folder / "stamp.json").unlink(missing_ok=True)  # it describes the old log
        for lost in self._folder.glob(f"{_LOST}*"):
            lost.unlink(missing_ok=True)
        os.replace(fresh, self._path)
        sync_path(self._folder)

    def _all_records(self) -> Iterator[list[Write]]:
        """Yield all records in parts of about a megabyte."""
        part: list[Write] = []
        size = 0
        for family, key in sorted(self.table.keys()):
            record = self._lookup(family, key)
            if record is not None:
                part.append(Put(family, key, record.value, record.group, record.order))
                size += len(record.value)
                if size > _PART_BYTES:
                    yield part
                    part, size = [], 0
        yield part

    def record(self, key: int, row: Row[Position]) -> Record:
        """Return a record with its value, read from the log."""
        offset, size = row.value
        value = os.pread(self._file, size, offset) if size else b""
        if len(value) < size:  # another writer took back a commit that it could not finish
            raise Conflict(
                f"Another writer changed the context in {str(self._folder)!r}.", Hint("refresh", purpose="and retry")
            )
        return Record(key, value, row.group, row.order)

    def mirror(self) -> None:
        """Write the readable files of changed records. A failure is ignored: it does not undo the commit.

        The caller holds the file lock.
        """
        describe = current_describer()
        if describe is None or self.head is None or self.head.version < 0 or not (self._unmirrored or self._rebuild):
            return
        with suppress(OSError, QuireError):
            if self._rebuild:
                self._mirror.clear()
                self._unmirrored = set(self.table.keys())
                self._rebuild = False
            self._mirror.write(describe(self.head.value, self._lookup), self._unmirrored)
            self._unmirrored.clear()
            self._since_stamp += 1
            if self._since_stamp >= _STAMP_EVERY:
                self.stamp()

    def stamp(self) -> None:
        """Write the stamp: the readable files are complete, and the log has at least this size.

        The caller holds the file lock.
        """
        if self.head is None or self._unmirrored or self._rebuild or not self._since_stamp:
            return
        os.fdatasync(self._file)
        (self._folder / "stamp.json").touch()  # `count` counts the stamp too
        stamp: dict[str, str | int] = {"context": self._context, "version": self.head.version, "size": self._end}
        stamp["files"] = self._mirror.count()
        fresh = self._folder / "stamp.json.new"
        fresh.write_text(json.dumps(stamp))
        os.replace(fresh, self._folder / "stamp.json")
        self._stamped, self._since_stamp = self._end, 0

    def close(self) -> None:
        self.closed = True
        self.park()

    def _apply(self, frame: Frame) -> None:
        before, now = 0 if self.head is None else self.head.version, frame.version
        is_next = now >= before > 0 or now < 0 < before or (before <= 0 and (now > 0 or now <= before))
        if not is_next:  # versions grow; those of a copy in progress are negative and fall
            raise Corrupt(f"{str(self._path)!r} is damaged at byte {frame.start}: its commits are out of order.")
        for entry in frame.entries:
            family, key = entry.family, entry.key
            if entry.kind == DELETE:
                self.table.delete(family, key)
            elif entry.kind == PATCH:
                self.table.patch(family, key, (entry.offset, entry.size))
            else:
                self.table.put(family, key, (entry.offset, entry.size), entry.group, entry.order)
            if frame.start >= self._stamped:
                self._unmirrored.add((family, key))
        self.head = Head(frame.version, frame.head)
        self._end = frame.end
        self.lost = 0

    def _lookup(self, family: Family, key: int) -> Record | None:
        row = self.table.get(family, key)
        return self.record(key, row) if row else None

    def _read_stamp(self) -> tuple[int, int]:
        """Return the size of the log and the number of readable files at the last stamp."""
        try:
            stamp = json.loads((self._folder / "stamp.json").read_bytes())
            return int(stamp["size"]), int(stamp["files"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0, -1


def has_log(folder: Path) -> bool:
    """Return whether a folder holds the log of a context with a complete first commit."""
    try:
        with open(folder / "log", "rb") as log:
            first = log.readline(4_096)
            size = os.fstat(log.fileno()).st_size - len(first)
            return first.startswith(_TITLE) and holds_frame(log.read(FRAME_HEAD), size)
    except OSError as error:
        if error.errno in _EXHAUSTED:  # too many open files: the log may exist
            raise
        return False


def has_traces(folder: Path) -> bool:
    """Return whether a folder has files that are only written after the log."""
    return any((folder / name).exists() for name in ("stamp.json", "segments.json", "pages"))


def missing_log(folder: Path) -> Corrupt:
    """Return the error for a folder without its log."""
    return Corrupt(
        f"{str(folder)!r} held a context, but its log is missing or empty. Restore the log from a backup, or delete the"
        " context. The readable files in pages/ may show its content."
    )


def lost_text(folder: Path, head: Head | None, size: int) -> str:
    """Return the text about bytes that a power failure made unreadable."""
    version = head.version if head else 0
    return (
        f"{str(folder / 'log')!r} has a gap after version {version} (power failure). Changes in the {size:,} bytes"
        " after it are lost."
    )


def find_lost(folder: Path) -> list[str]:
    """Return the names of the files with bytes that a power failure made unreadable."""
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith(_LOST))
    except (FileNotFoundError, NotADirectoryError):  # it was dropped just now, or is a file of another program
        return []


def context_in(folder: Path) -> str | None:
    """Return the name of the context in a folder; None if it cannot be known."""
    name = decode_file_name(folder.name)
    if name is not None:
        return name
    for read in (_name_in_log, _name_in_stamp):  # the folder of a long name ends with a hash
        try:
            found = read(folder)
        except OSError as error:
            if error.errno in _EXHAUSTED:
                raise
            continue
        except (ValueError, TypeError, KeyError):
            continue
        if file_name(found) == folder.name:
            return found
    return None


def _name_in_log(folder: Path) -> str:
    with open(folder / "log", "rb") as log:
        return str(json.loads(log.readline(4_096).removeprefix(_TITLE)))


def _name_in_stamp(folder: Path) -> str:
    return str(json.loads((folder / "stamp.json").read_bytes())["context"])


def _open_log(path: Path, flags: int = 0) -> int:
    """Open a log for writing; only for reading if its file system or its permissions do not allow more."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


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


def sync_path(path: Path) -> None:
    """Write a file, or a folder's list of names, to disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def file_identity(file: os.stat_result) -> tuple[int, int]:
    """Return a value that is equal for two handles on one file."""
    return file.st_dev, file.st_ino


class Mirror:
    """The readable files of one context: a JSON header and a text per page, and the list of segments.

    They are written after the log and never read as data. If `pages` is deleted, opening the store writes it again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Remove the files of all pages before they are written again. Files of other programs stay."""
        for file in self._files(".json", ".txt", ".new"):
            if file.parent != self._folder:
                file.unlink(missing_ok=True)

    def count(self) -> int:
        """Return the number of readable files."""
        return sum(1 for _ in self._files(".json", ".txt"))

    def write(self, description: Description, changed: Iterable[tuple[Family, int]]) -> None:
        """Update the files of these records."""
        keys = set(changed)
        if any(family == SEGMENT for family, _ in keys):
            _replace(self._folder / "segments.json", _json(description.segments()))
        for family, key in keys:
            if family == PAGE:
                self._write_page(description.page(key))

    def _files(self, *endings: str) -> Iterator[Path]:
        pages = self._folder / "pages"
        inner = sorted(folder for folder in pages.iterdir() if folder.is_dir()) if pages.is_dir() else []
        for folder in (self._folder, *inner):
            yield from (folder / name for name in os.listdir(folder) if name.endswith(endings))

    def _write_page(self, page: PageFile) -> None:
        stem = self._folder / "pages" / file_name(page.segment) / file_name(page.index)
        header, text = stem.with_suffix(".json"), stem.with_suffix(".txt")
        if page.header is None:
            header.unlink(missing_ok=True)
            text.unlink(missing_ok=True)
            return
        body = page.header["body"]
        if not body:
            text.unlink(missing_ok=True)
        elif _body_in(header) != body:
            _replace(text, page.text().encode())
        _replace(header, _json(page.header))


def _body_in(header: Path) -> object:
    """Return the body, or the messages, that the text file holds according to its header; None if unknown."""
    try:
        return json.loads(header.read_bytes())["body"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _json(value: object) -> bytes:
    return format_json(value) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_bytes(data)
    except FileNotFoundError:  # the folder is new, or was deleted
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(data)
    os.replace(fresh, path)
