"""Export and import: one context as one file, with its journal, so that undo works after an import.

    quire export 2\\n
    frame: the opening   the name, the newest entry and its head
    frame: a commit      commits that make the context again; the last one has the newest entry

A frame is its size, its checksum and msgpack. A file that ends before or after the newest entry is refused.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct as Layout
from typing import IO, Final, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.core.codec import decode_head
from quire.core.context_copy import Contents, Meter, Progress, ProgressCallback, contents_of, copy
from quire.core.integrity import check_records, snapshot_of
from quire.errors import (
    Corrupt,
    Hint,
    InvalidOperation,
    InvalidValue,
    NewerFormat,
    NoSuchContext,
    OlderFormat,
    StorageFailure,
    short_repr,
)
from quire.storage.base import check_context_name, check_storage
from quire.storage.contract import Commit, Storage
from quire.storage.paths import check_path, make_private

FORMAT: Final = 2
_TITLE: Final = b"quire export "
_FRAME: Final = Layout(">II")
T = TypeVar("T")


class _Opening(Struct, frozen=True, array_like=True):
    name: str
    seq: int
    head: bytes


def export_context(
    storage: Storage,
    context: str,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> Progress:
    """Write one context to a file, which appears when it is complete; return the totals.

    Raises `NoSuchContext`, `InvalidOperation` if the file exists and `overwrite` is False, `StorageFailure` if it
    cannot be written, and `Corrupt` if a record is damaged (then no file is written).
    """
    target = check_target(path, overwrite=overwrite)
    with snapshot_of(check_storage(storage), check_context_name(context)) as (snapshot, found):
        if found is None:
            raise NoSuchContext(f"No context {short_repr(context)} in this storage.")
        check_records(snapshot, context, found)
        meter = Meter(context, progress)
        with new_file(target, overwrite=overwrite) as (file, publish):
            file.write(_TITLE + b"%d\n" % FORMAT)
            _write(file, _Opening(context, found.seq, found.head))
            for commit in meter.through("export", contents_of(snapshot, found).commits()):
                _write(file, commit)
            size = file.tell()
            publish()
    return meter.tell("done", size)


def import_context(
    storage: Storage, path: str | os.PathLike[str], name: str | None = None, *, progress: ProgressCallback | None = None
) -> str:
    """Read an exported file into a storage, under its own name or another; return that name.

    The file is checked first, and the context appears when everything is read and verified. If the same context is
    there, nothing changes. Raises `InvalidOperation` if another context, or another state of this one, has the name,
    `Corrupt` with the position if the file is damaged or incomplete, `NewerFormat` if a newer quire wrote it.
    """
    check_storage(storage)
    file = ExportFile(path)
    context = check_context_name(file.name if name is None else name)
    older, contents = storage.load(context), file.contents
    if older is not None and (older.seq, older.head) != (contents.seq, contents.head):
        raise InvalidOperation(
            f"Another context {context!r} exists already, at version {older.seq}. Delete it first, or import"
            " this one under another name."
        )
    copy(contents, storage, Meter(context, progress), older)
    return context


def _write(file: IO[bytes], value: Struct) -> None:
    payload = msgspec.msgpack.encode(value)
    file.write(_FRAME.pack(len(payload), crc32(payload)) + payload)


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the path of a file to write. Raises `InvalidOperation` if it exists and `overwrite` is False.

    Raises `StorageFailure` if the system refuses the path.
    """
    target = check_path(path)
    try:
        is_there = target.exists()
    except OSError as error:
        raise StorageFailure(f"Cannot write {short_repr(str(target))}: {error.strerror}.") from error
    if is_there and not overwrite:
        raise _exists_error(target)
    if not target.name:  # such as . or /
        raise StorageFailure(f"Cannot write {str(target)!r}: it is a folder.")
    return target


@contextmanager
def new_file(target: Path, *, overwrite: bool) -> Iterator[tuple[IO[bytes], Callable[[], None]]]:
    """Yield a new file next to the target, and a function that renames it to the target; else it is deleted."""
    fresh = target.with_name(f".{target.name[:80]}.{os.urandom(6).hex()}.new")

    def publish() -> None:
        file.flush()
        os.fsync(file.fileno())
        _rename(fresh, target, overwrite=overwrite)
        sync_folder(target.parent)

    try:
        make_private(fresh)
        with open(fresh, "r+b") as file:
            yield file, publish
    except OSError as error:
        is_lost = isinstance(error, FileNotFoundError)
        reason = f"there is no folder {str(target.parent)!r}; create it first" if is_lost else error.strerror or error
        raise StorageFailure(f"Cannot write {str(target)!r}: {reason}.") from error
    finally:
        fresh.unlink(missing_ok=True)


def _rename(fresh: Path, target: Path, *, overwrite: bool) -> None:
    """Rename a file. Without `overwrite`, a target that another process created meanwhile is not replaced."""
    if not overwrite:
        try:
            os.link(fresh, target)
            return
        except FileExistsError:
            raise _exists_error(target) from None
        except OSError:  # the file system has no hard links
            if target.exists():
                raise _exists_error(target) from None
    os.replace(fresh, target)


def sync_folder(path: Path) -> None:
    """Write the names in a folder to disk, as far as the system can."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _exists_error(target: Path) -> InvalidOperation:
    return InvalidOperation(
        f"{str(target)!r} exists already.", Hint("export", arguments="overwrite=True", purpose="to replace it")
    )


class ExportFile:
    """An exported context. Making this object checks the whole file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = check_path(path)
        with self._opened() as file:
            opening, start = self._read(file, self._check_title(file.readline(64)), _Opening)
        try:
            decode_head(opening.seq, opening.head)
            self.name = check_context_name(opening.name)
        except (Corrupt, InvalidValue) as error:
            raise self._damage(start, str(error).rstrip(".")) from error
        self.contents = Contents(opening.seq, opening.head, lambda: self._commits(start, opening.seq))
        for _ in self.contents.commits():
            pass

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        try:
            with open(self._path, "rb") as file:
                yield file
        except FileNotFoundError as error:
            raise StorageFailure(f"There is no file {str(self._path)!r}.") from error
        except OSError as error:
            raise StorageFailure(f"Cannot read {str(self._path)!r}: {error.strerror or error}.") from error

    def _check_title(self, title: bytes) -> int:
        """Return the offset of the first frame. Raises `Corrupt`, `NewerFormat`, `OlderFormat`."""
        number = title.removeprefix(_TITLE).strip()
        if not title.startswith(_TITLE) or not title.endswith(b"\n") or not number.isdigit():
            raise Corrupt(
                f"{str(self._path)!r} is no exported context: only files of the format 'quire' are imported here."
                " ctx.pages.load reads the format 'json'."
            )
        found = f"{str(self._path)!r} has export format {int(number)}; this quire reads {FORMAT}."
        if int(number) > FORMAT:
            raise NewerFormat(f"{found} Install a newer quire.")
        if int(number) < FORMAT:
            raise OlderFormat(f"{found} Export the messages with quire 0.2, and import them: see docs/storage.md.")
        return len(title)

    def _commits(self, offset: int, last: int) -> Iterator[Commit]:
        """Yield the commits of the file, which end with the entry `last`. Raises `Corrupt`."""
        seq = 0
        with self._opened() as file:
            while seq != last or offset != os.fstat(file.fileno()).st_size:
                commit, end = self._read(file, offset, Commit)
                if commit.first <= 0 or (seq and commit.first != seq + 1) or commit.seq > last:
                    raise self._damage(offset, f"entry {commit.first} follows entry {seq} of {last}")
                yield commit
                seq, offset = commit.seq, end

    def _read(self, file: IO[bytes], offset: int, kind: type[T]) -> tuple[T, int]:
        """Return the value of the frame at an offset, and the offset after it. Raises `Corrupt`."""
        file.seek(offset)
        head = file.read(_FRAME.size)
        size, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, -1)
        end = offset + _FRAME.size + size
        if len(head) < _FRAME.size or end > os.fstat(file.fileno()).st_size:
            raise self._damage(offset, "the file ends before this part does; it is incomplete")
        payload = file.read(size)
        if crc32(payload) != checksum:
            raise self._damage(offset, "the checksum does not match")
        try:
            return msgspec.msgpack.decode(payload, type=kind), end
        except msgspec.MsgspecError as error:
            raise self._damage(offset, str(error)) from error

    def _damage(self, offset: int, reason: str) -> Corrupt:
        return Corrupt(f"{str(self._path)!r} is damaged at byte {offset}: {reason}.")
