"""Export and import: one context as one file, with its journal and vectors, so that undo works after an import.

    quire export 1\\n
    frame: the opening   the name and version of the context, and its head
    frame: a record      one per record, family by family, by key
    frame: the closing   the number of records, and a checksum over everything before it

A frame is its size, its checksum and msgpack. A file without its closing is incomplete and is refused.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from struct import Struct as Layout
from typing import IO, Final, NoReturn, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts
from quire.core.integrity import RecordCheck
from quire.core.records import decode_head, encode_record, head_stamp
from quire.errors import (
    Conflict,
    Corrupt,
    Hint,
    InvalidOperation,
    NewerFormat,
    NoSuchContext,
    OlderFormat,
    QuireError,
    StorageFailure,
    short_repr,
)
from quire.storage.base import (
    FAMILIES,
    MAX_KEY,
    Family,
    Head,
    Record,
    Storage,
    check_context_name,
    check_storage,
    snapshot_of,
)
from quire.storage.file.log import sync_path
from quire.storage.paths import check_path

FORMAT: Final = 1
_TITLE: Final = b"quire export "
_FRAME: Final = Layout(">II")
_TRIES = 5
_REPORT_EVERY = 1_024
_ORDER: Mapping[str, int] = {family: number for number, family in enumerate(FAMILIES)}

T = TypeVar("T")


class _Opening(Struct, frozen=True, array_like=True):
    name: str
    version: int
    head: bytes


class _Line(Struct, frozen=True, array_like=True):
    family: str
    key: int
    value: bytes
    group: int | None = None
    order: bytes = b""


class _Closing(Struct, frozen=True, array_like=True):
    records: int
    checksum: bytes


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
    cannot be written, `Corrupt` if a record is damaged (then no file is written), and `Conflict` if the context keeps
    changing and its storage has no snapshots.
    """
    target = check_target(path, overwrite=overwrite)
    with snapshot_of(check_storage(storage), check_context_name(context)) as snapshot:
        for _ in range(_TRIES):
            head = snapshot.head(context)
            if head is None:
                raise NoSuchContext(f"No context {short_repr(context)} in this storage.")
            if head.version < 0:
                raise InvalidOperation(f"Context {context!r} is an unfinished copy. Finish the copy, then export it.")
            with new_file(target, overwrite=overwrite) as (file, publish):
                try:
                    done = _Writer(file, context, progress).write(snapshot, head)
                except Corrupt:
                    if snapshot.head(context) == head:
                        raise
                    continue  # not damaged: it changed while it was read
                if snapshot.head(context) == head:
                    publish()
                    return done
    raise Conflict(f"Context {context!r} changed during each attempt to export it. Retry later.")


def import_context(
    storage: Storage, path: str | os.PathLike[str], name: str | None = None, *, progress: ProgressCallback | None = None
) -> str:
    """Read an exported file into a storage, under its own name or another; return that name.

    The context appears when everything is read and verified. A second call resumes an interrupted import, and changes
    nothing after a finished one. Raises `InvalidOperation` if another context, or another state of this one, has the
    name, `Corrupt` with the position if the file is damaged or incomplete, `NewerFormat` if a newer quire wrote it.
    """
    check_storage(storage)
    with ExportFile(path) as file:
        context = check_context_name(file.name if name is None else name)
        existing = storage.head(context)
        if existing is not None and existing.version >= 0 and existing != file.head(context):
            raise InvalidOperation(
                f"Another context {context!r} exists already, at version {existing.version}. Delete it first, or import"
                " this one under another name."
            )
        copy_contexts(file, storage, context, progress=progress)
    return context


class _Writer:
    """Writes frames and counts them."""

    def __init__(self, file: IO[bytes], context: str, progress: ProgressCallback | None) -> None:
        self._file = file
        self._context = context
        self._progress = progress
        self._checksum = sha256()
        self._records = 0
        self._size = 0

    def write(self, storage: Storage, head: Head) -> Progress:
        self._put(_TITLE + str(FORMAT).encode() + b"\n")
        self._frame(_Opening(self._context, head.version, head.value))
        check = RecordCheck(self._context, head)
        for family in FAMILIES:
            for record in storage.scan(self._context, family):
                check.add(family, record)
                self._frame(_Line(family, record.key, record.value, record.group, record.order))
                self._records += 1
                if self._records % _REPORT_EVERY == 0:
                    self._report("export")
        check.finish()
        self._frame(_Closing(self._records, self._checksum.digest()))
        return self._report("done")

    def _frame(self, value: Struct) -> None:
        payload = msgspec.msgpack.encode(value)
        self._put(_FRAME.pack(len(payload), crc32(payload)) + payload)

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._checksum.update(data)
        self._size += len(data)

    def _report(self, phase: str) -> Progress:
        done = Progress(context=self._context, phase=phase, records=self._records, bytes=self._size)
        if self._progress is not None:
            self._progress(done)
        return done


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
        sync_path(target.parent)

    try:
        with open(fresh, "xb") as file:
            yield file, publish
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(target)!r}: {_reason(error, target)}.") from error
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


def _exists_error(target: Path) -> InvalidOperation:
    return InvalidOperation(
        f"{str(target)!r} exists already.", Hint("export", arguments="overwrite=True", purpose="to replace it")
    )


def _reason(error: OSError, target: Path) -> str:
    """Return the reason of an error without the temporary file name."""
    if isinstance(error, FileNotFoundError):
        return f"there is no folder {str(target.parent)!r}; create it first"
    return error.strerror or str(error)


class ExportFile:
    """An exported context as a read-only storage. Opening it reads and checks the whole file.

    It holds one context and accepts any context name.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_path(path)
        try:
            self._file = open(self.path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError as error:
            raise StorageFailure(f"There is no file {str(self.path)!r}.") from error
        except OSError as error:
            raise StorageFailure(f"Cannot read {str(self.path)!r}: {error.strerror or error}.") from error
        try:
            self._starts: dict[str, int] = {}
            self._check_all()
        except BaseException:
            self._file.close()
            raise

    def head(self, context: str) -> Head:
        head = decode_head(self._head.value)
        if head.belongs_to(context, self._head.version):
            return self._head
        renamed = replace(head, stamp=head_stamp(context, self._head.version))
        return Head(self._head.version, encode_record(0, renamed))

    def get(self, context: str, family: Family, key: int) -> Record | None:
        return next(self.scan(context, family, key, key), None)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        if reverse:
            self._refuse()
        offset = self._starts.get(family)
        while offset is not None:
            place = offset
            payload, offset = self._read_frame(place)
            line = self._decode(payload, _Line, place) if payload[0] == _LINE_MARK else None
            if line is None or line.family != family or line.key > stop:
                return
            if line.key >= start:
                yield Record(line.key, line.value, line.group, line.order)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InvalidOperation(f"{str(self.path)!r} is a file that can only be read by key, forwards. Import it first.")

    members = commit = fork = drop = _refuse

    def contexts(self, after: str = "") -> Iterator[str]:
        return iter([self.name] if self.name > after else [])

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "ExportFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_all(self) -> None:
        """Check every frame and the checksum, and find the start of each family. Raises `Corrupt`, `NewerFormat`."""
        title = self._file.readline(64)
        offset = self._check_title(title)
        checksum = sha256(title)
        opening: _Opening | None = None
        last, records = (-1, -1), 0
        while True:
            start = offset
            payload, offset = self._read_frame(offset)
            if opening is None:
                opening = self._decode(payload, _Opening, start)
                self._read_opening(opening, start)
            elif payload[0] == _LINE_MARK:
                line = self._decode(payload, _Line, start)
                last = self._check_order(line, last, start)
                self._starts.setdefault(line.family, start)
                records += 1
            else:
                closing = self._decode(payload, _Closing, start)
                break
            checksum.update(_FRAME.pack(len(payload), crc32(payload)) + payload)
        if closing != _Closing(records, checksum.digest()):
            self._damage_error(start, "its closing has another number of records or another checksum")
        if self._file.read(1):
            self._damage_error(offset, "it has bytes after its end")

    def _check_title(self, title: bytes) -> int:
        number = title.removeprefix(_TITLE).strip()
        if not title.startswith(_TITLE) or not title.endswith(b"\n") or not number.isdigit():
            raise Corrupt(
                f"{str(self.path)!r} is no exported context: only files of the format 'quire' are imported here."
                " ctx.pages.load reads the format 'json'."
            )
        if int(number) > FORMAT:
            raise NewerFormat(
                f"{str(self.path)!r} has export format {int(number)}; this quire reads up to {FORMAT}."
                " Install a newer quire."
            )
        return len(title)

    def _read_opening(self, opening: _Opening, offset: int) -> None:
        if opening.version <= 0:
            self._damage_error(offset, f"its version is {opening.version}")
        try:
            decode_head(opening.head)
            self.name = check_context_name(opening.name)
        except (NewerFormat, OlderFormat):
            raise
        except QuireError as error:
            self._damage_error(offset, str(error).rstrip("."))
        self._head = Head(opening.version, opening.head)

    def _check_order(self, line: _Line, last: tuple[int, int], offset: int) -> tuple[int, int]:
        if line.family not in _ORDER:
            raise NewerFormat(
                f"{str(self.path)!r} holds {short_repr(line.family)} records, which this quire does not know."
                " Install a newer quire."
            )
        here = (_ORDER[line.family], line.key)
        if here <= last or line.key > MAX_KEY:
            self._damage_error(offset, f"{line.family} record {line.key} is out of order")
        return here

    def _read_frame(self, offset: int) -> tuple[bytes, int]:
        """Return the payload of the frame at an offset, and the offset after it."""
        try:
            self._file.seek(offset)
            head = self._file.read(_FRAME.size)
            size, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, -1)
            payload = self._file.read(size) if size else b""
        except (OSError, MemoryError, OverflowError) as error:
            raise StorageFailure(f"Cannot read {str(self.path)!r}: {error}.") from error
        if len(head) < _FRAME.size or (len(payload) < size and not self._file.read(1)):
            self._damage_error(offset, "the file ends here without its closing; it is incomplete")
        if len(payload) < size or not payload or crc32(payload) != checksum:
            self._damage_error(offset, "the checksum does not match")
        return payload, offset + _FRAME.size + size

    def _decode(self, payload: bytes, kind: type[T], offset: int) -> T:
        try:
            return msgspec.msgpack.decode(payload, type=kind)
        except msgspec.MsgspecError as error:
            self._damage_error(offset, str(error))

    def _damage_error(self, offset: int, reason: str) -> NoReturn:
        raise Corrupt(f"{str(self.path)!r} is damaged at byte {offset}: {reason}.")


_LINE_MARK: Final = msgspec.msgpack.encode(_Line(FAMILIES[0], 0, b""))[0]
"""The first byte of the frame of a record: a msgpack array of five."""
