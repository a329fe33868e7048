"""One context as one file: everything it has, journal and vectors included, so that undo works where it is read.

    quire export 1\\n
    frame: the opening   of which context at which version, and its head
    frame: a record      as many as there are, family by family, by key
    frame: the closing   how many records there were, and a checksum over all before it

A frame is its size, its checksum and msgpack. A file without its closing was never finished and is not read.
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

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts
from quire.core.integrity import RecordCheck
from quire.core.records import decode_head
from quire.errors import (
    Conflict,
    Corrupt,
    InvalidOperation,
    NewerFormat,
    NoSuchContext,
    QuireError,
    StorageFailure,
    short_repr,
)
from quire.storage.base import (
    FAMILIES,
    MAX_KEY,
    Commit,
    Family,
    Head,
    Record,
    Storage,
    check_context_name,
    check_storage,
    snapshot_of,
)
from quire.storage.paths import check_path

FORMAT: Final = 1
_TITLE: Final = b"quire export "
_FRAME: Final = Layout(">II")
_TRIES = 5
_TELL_EVERY = 1_024
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
    """Write one context to a file that appears only when it is whole; what was written.

    Raises `NoSuchContext`, `InvalidOperation` if the file exists and is not to be overwritten, `StorageFailure` if it
    cannot be written, `Corrupt` naming what is damaged in the context (then there is no file), and `Conflict` if the
    context never stood still and its storage cannot hold it still.
    """
    target = check_path(path)
    if target.exists() and not overwrite:
        raise _taken(target)
    with snapshot_of(check_storage(storage), check_context_name(context)) as still:
        for _ in range(_TRIES):
            head = still.head(context)
            if head is None:
                raise NoSuchContext(f"No context {short_repr(context)} in this storage.")
            if head.version < 0:
                raise InvalidOperation(f"Context {context!r} is an unfinished copy: finish that, then export.")
            with _written(target, overwrite=overwrite) as (file, keep):
                try:
                    done = _Writer(file, context, progress).write(still, head)
                except Corrupt:
                    if still.head(context) == head:
                        raise
                    continue  # it was changed while it was read, that is all
                if still.head(context) == head:
                    keep()
                    return done
    raise Conflict(f"Context {context!r} changed all the while it was exported: try again when it is quieter.")


def import_context(
    storage: Storage, path: str | os.PathLike[str], name: str | None = None, *, progress: ProgressCallback | None = None
) -> str:
    """Read a file that `export_context` wrote into a storage, under its own name or another; that name.

    The context is there at once, when everything is read and verified; called again after an interruption, it goes on,
    and called again after that, it finds the context as it is in the file and changes nothing. Raises
    `InvalidOperation` if there is another context of that name, or another state of it, `Corrupt` with the place if
    the file is damaged or was never finished, `NewerFormat` if a newer quire wrote it.
    """
    check_storage(storage)
    with ExportFile(path) as file:
        context = check_context_name(file.name if name is None else name)
        there = storage.head(context)
        if there is not None and there.version >= 0 and there != file.head(context):
            raise InvalidOperation(
                f"There is another context {context!r} already, at version {there.version}: pass name=… to import this"
                " one under another name, or delete that one first."
            )
        copy_contexts(file, storage, context, progress=progress)
    return context


class _Writer:
    """Writes frames and counts them."""

    def __init__(self, file: IO[bytes], context: str, progress: ProgressCallback | None) -> None:
        self._file = file
        self._context = context
        self._report = progress
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
                if self._records % _TELL_EVERY == 0:
                    self._tell("export")
        check.finish()
        self._frame(_Closing(self._records, self._checksum.digest()))
        return self._tell("done")

    def _frame(self, value: Struct) -> None:
        payload = msgspec.msgpack.encode(value)
        self._put(_FRAME.pack(len(payload), crc32(payload)) + payload)

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._checksum.update(data)
        self._size += len(data)

    def _tell(self, phase: str) -> Progress:
        done = Progress(context=self._context, phase=phase, records=self._records, bytes=self._size)
        if self._report is not None:
            self._report(done)
        return done


@contextmanager
def _written(target: Path, *, overwrite: bool) -> Iterator[tuple[IO[bytes], Callable[[], None]]]:
    """A fresh file beside the target and the call that puts it in its place; without that, it is gone at the end."""
    fresh = target.with_name(f".{target.name[:80]}.{os.urandom(6).hex()}.new")

    def keep() -> None:
        file.flush()
        os.fsync(file.fileno())
        _place(fresh, target, overwrite=overwrite)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    try:
        with open(fresh, "xb") as file:
            yield file, keep
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(target)!r}: {_said(error, target)}.") from error
    finally:
        fresh.unlink(missing_ok=True)


def _place(fresh: Path, target: Path, *, overwrite: bool) -> None:
    """Give a file its name. One that somebody else made meanwhile is not lost, if the file system can tell."""
    if not overwrite:
        try:
            os.link(fresh, target)
            return
        except FileExistsError:
            raise _taken(target) from None
        except OSError:  # a file system without a second name for a file
            if target.exists():
                raise _taken(target) from None
    os.replace(fresh, target)


def _taken(target: Path) -> InvalidOperation:
    return InvalidOperation(f"{str(target)!r} exists already; choose another path, or pass overwrite=True.")


def _said(error: OSError, target: Path) -> str:
    """What was wrong, without the name that a file has before it is whole."""
    if isinstance(error, FileNotFoundError):
        return f"there is no folder {str(target.parent)!r}; make it first"
    return error.strerror or str(error)


class ExportFile:
    """An exported context as a storage to read from. Opening it reads it through once and refuses damage.

    It answers to whatever name it is asked by: it holds one context.
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
            self._look_through()
        except BaseException:
            self._file.close()
            raise

    def head(self, context: str) -> Head:
        """Where the exported context stood."""
        return self._head

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """One record, or None."""
        return next(self.scan(context, family, key, key), None)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        """The records of a family in order. Streams."""
        if reverse:
            raise InvalidOperation("An exported file is read forwards only: import it first.")
        place = self._starts.get(family)
        while place is not None:
            payload, place = self._frame(place)
            line = self._decoded(payload, _Line, place) if payload[0] == _LINE_MARK else None
            if line is None or line.family != family or line.key > stop:
                return
            if line.key >= start:
                yield Record(line.key, line.value, line.group, line.order)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        """Not kept in such a file."""
        raise InvalidOperation("An exported file is read in the order of keys only: import it first.")

    def commit(self, context: str, commit: Commit) -> None:
        """Not possible."""
        raise self._read_only()

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        """Not possible."""
        raise self._read_only()

    def contexts(self, after: str = "") -> Iterator[str]:
        """The one name it has."""
        return iter([self.name] if self.name > after else [])

    def drop(self, context: str) -> None:
        """Not possible."""
        raise self._read_only()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "ExportFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_only(self) -> InvalidOperation:
        return InvalidOperation(f"{str(self.path)!r} is an exported file, which is read only: import it first.")

    def _look_through(self) -> None:
        """Check every frame and the whole, and note where each family starts. Raises `Corrupt`, `NewerFormat`."""
        title = self._file.readline(64)
        place = self._check_title(title)
        checksum = sha256(title)
        opening: _Opening | None = None
        last, records = (-1, -1), 0
        while True:
            start = place
            payload, place = self._frame(place)
            if opening is None:
                opening = self._decoded(payload, _Opening, start)
                self._take(opening, start)
            elif payload[0] == _LINE_MARK:
                line = self._decoded(payload, _Line, start)
                last = self._next_place(line, last, start)
                self._starts.setdefault(line.family, start)
                records += 1
            else:
                closing = self._decoded(payload, _Closing, start)
                break
            checksum.update(_FRAME.pack(len(payload), crc32(payload)) + payload)
        if closing != _Closing(records, checksum.digest()):
            self._damaged(start, "it does not close with the number and the checksum of what stands before")
        if self._file.read(1):
            self._damaged(place, "something follows after its end")

    def _check_title(self, title: bytes) -> int:
        number = title.removeprefix(_TITLE).strip()
        if not title.startswith(_TITLE) or not title.endswith(b"\n") or not number.isdigit():
            raise Corrupt(f"{str(self.path)!r} is no exported context: it does not begin like one.")
        if int(number) > FORMAT:
            raise NewerFormat(
                f"{str(self.path)!r} has export format {int(number)}; this quire reads up to {FORMAT}."
                " Install a newer quire."
            )
        return len(title)

    def _take(self, opening: _Opening, place: int) -> None:
        if opening.version <= 0:
            self._damaged(place, f"its version is {opening.version}")
        try:
            decode_head(opening.head)
            self.name = check_context_name(opening.name)
        except NewerFormat:
            raise
        except QuireError as error:
            self._damaged(place, str(error).rstrip("."))
        self._head = Head(opening.version, opening.head)

    def _next_place(self, line: _Line, last: tuple[int, int], place: int) -> tuple[int, int]:
        if line.family not in _ORDER:
            raise NewerFormat(
                f"{str(self.path)!r} holds {short_repr(line.family)} records, which this quire does not know."
                " Install a newer quire."
            )
        here = (_ORDER[line.family], line.key)
        if here <= last or line.key > MAX_KEY:
            self._damaged(place, f"{line.family} record {line.key} is out of order")
        return here

    def _frame(self, place: int) -> tuple[bytes, int]:
        """The payload of the frame at a place, and the place after it."""
        try:
            self._file.seek(place)
            head = self._file.read(_FRAME.size)
            size, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, -1)
            payload = self._file.read(size) if size else b""
        except (OSError, MemoryError, OverflowError) as error:
            raise StorageFailure(f"Cannot read {str(self.path)!r}: {error}.") from error
        if len(head) < _FRAME.size or (len(payload) < size and not self._file.read(1)):
            self._damaged(place, "it ends here without its closing: it was never finished, or cut off")
        if len(payload) < size or not payload or crc32(payload) != checksum:
            self._damaged(place, "the checksum of what stands there does not match")
        return payload, place + _FRAME.size + size

    def _decoded(self, payload: bytes, kind: type[T], place: int) -> T:
        try:
            return msgspec.msgpack.decode(payload, type=kind)
        except msgspec.MsgspecError as error:
            self._damaged(place, str(error))

    def _damaged(self, place: int, what: str) -> NoReturn:
        raise Corrupt(f"{str(self.path)!r} is damaged at byte {place}: {what}.")


_LINE_MARK: Final = msgspec.msgpack.encode(_Line(FAMILIES[0], 0, b""))[0]
"""How the frame of a record begins: an array of five."""
