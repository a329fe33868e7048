"""Copying a whole store while it is in use: a new store that can be opened like any other, checked before it counts."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from quire.errors import Conflict, InvalidOperation, InvalidValue, NoSuchContext, StorageFailure, shown
from quire.storage.base import Storage, at_rest, check_path
from quire.storage.file import FileStorage
from quire.storage.migrate import Progress, Report, copy_contexts
from quire.storage.opening import masked, storage_at
from quire.storage.sqlite import SQLiteStorage
from quire.system.check import unreadable

_TRIES = 5


class Backup(Struct, frozen=True, kw_only=True):
    """A backup that was made: where it is, how many contexts it has, and its size in bytes.

    `problems` names the records that cannot be read, in the original either: they were copied as they are.
    """

    path: str
    contexts: int
    bytes: int
    problems: tuple[str, ...] = ()


def backup(
    where: str | os.PathLike[str] | Storage, target: str | os.PathLike[str], *, progress: Report | None = None
) -> Backup:
    """Copy a store that may be in use into a new one: `target` is a path for an SQLite file, or `file:DIR`.

    Every context is copied as it is at one moment (an SQLite file into another: all at the same one), and everything is
    read through once. The target appears when it is whole. Raises `InvalidOperation` if it exists, `StorageFailure` if
    it cannot be written, `Corrupt` if the source is too damaged to be copied.
    """
    kind, path = _target(target)
    if os.path.lexists(path):
        raise InvalidOperation(f"{str(path)!r} exists already; a backup is a new store: choose another path.")
    if not path.parent.is_dir():
        raise StorageFailure(f"Cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; make it first.")
    storage, owned = storage_at(where, create=False)
    fresh = path.with_name(f".{path.name[:80]}.{os.urandom(6).hex()}.new")
    try:
        _copy(storage, kind, fresh, progress or _silent)
        contexts, problems = _read_through(kind, fresh, progress or _silent)
        size = _size(fresh)
        _put_in_place(fresh, path)
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
    finally:
        _remove(fresh)
        if owned:
            storage.close()
    return Backup(path=str(path), contexts=contexts, bytes=size, problems=problems)


Kind = Callable[[Path], Storage]


def _target(target: object) -> tuple[Kind, Path]:
    if isinstance(target, str):
        scheme, colon, rest = target.partition(":")
        if colon and scheme in ("file", "sqlite"):
            return FileStorage if scheme == "file" else SQLiteStorage, check_path(rest.removeprefix("//"))
        if colon and len(scheme) > 1:
            raise InvalidValue(
                f"target is {shown(masked(target))}; a backup is a new SQLite file (a path) or a folder (file:DIR)."
                " migrate() copies into other stores."
            )
    return SQLiteStorage, check_path(target)


def _copy(storage: Storage, kind: Kind, fresh: Path, report: Report) -> None:
    if isinstance(storage, SQLiteStorage) and kind is SQLiteStorage:
        storage.copy_to(fresh, lambda size: report(Progress(context="", phase="copy", records=0, bytes=size)))
        return
    target = kind(fresh)
    try:
        for name in storage.contexts():
            _copy_context(storage, target, name, report)
    finally:
        target.close()


def _copy_context(storage: Storage, target: Storage, name: str, report: Report) -> None:
    """Copy a context as it is at one moment; one that is gone by now or was never finished is left out."""
    for attempt in range(_TRIES):
        with at_rest(storage, name) as still:
            head = still.head(name)
            if head is None or head.version < 0:
                return
            try:
                copy_contexts(still, target, name, progress=report, sound=False)
                return
            except NoSuchContext:
                return
            except Conflict:  # it changed meanwhile, and this storage cannot hold it still
                if attempt == _TRIES - 1:
                    raise


def _read_through(kind: Kind, path: Path, report: Report) -> tuple[int, tuple[str, ...]]:
    store = kind(path)
    contexts = 0
    problems: list[str] = []
    try:
        for name in store.contexts():
            contexts += 1
            problems += [f"{name}: {problem.text}" for problem in unreadable(store, name)]
            report(Progress(context=name, phase="verify", records=contexts, bytes=0))
    finally:
        store.close()
    return contexts, tuple(problems)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _put_in_place(fresh: Path, path: Path) -> None:
    for place in (fresh, path.parent):
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if place is fresh:
            if os.path.lexists(path):
                raise InvalidOperation(f"{str(path)!r} was made by somebody else meanwhile: choose another path.")
            os.rename(fresh, path)


def _remove(fresh: Path) -> None:
    if fresh.is_dir():
        from shutil import rmtree

        rmtree(fresh, ignore_errors=True)
        return
    for ending in ("", "-wal", "-shm"):
        fresh.with_name(fresh.name + ending).unlink(missing_ok=True)


def _silent(progress: Progress) -> None:
    """Report to nobody."""
