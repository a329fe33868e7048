"""Copying a whole store while it is in use: a new store that can be opened like any other, checked before it counts."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts, ignore_progress
from quire.core.integrity import find_damage
from quire.errors import (
    Conflict,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    NoSuchContext,
    QuireError,
    StorageFailure,
    short_repr,
)
from quire.storage.base import Storage, SupportsExamine, snapshot_of
from quire.storage.file.storage import FileStorage
from quire.storage.paths import check_path
from quire.storage.sqlite.storage import SQLiteStorage
from quire.storage.urls import masked, storage_at

_TRIES = 5


class Backup(Struct, frozen=True, kw_only=True):
    """A backup that was made: where it is, how many contexts it has, and its size in bytes.

    `problems` names what is wrong in the original: records that cannot be read or are missing, which were copied as
    they are, contexts that could not be copied for it, and derived data that was made anew in the copy.
    """

    path: str
    contexts: int
    bytes: int
    problems: tuple[str, ...] = ()


def backup(
    where: str | os.PathLike[str] | Storage, target: str | os.PathLike[str], *, progress: ProgressCallback | None = None
) -> Backup:
    """Copy a store that may be in use into a new one: `target` is a path for an SQLite file, or `file:DIR`.

    Every context is copied as it is at one moment (an SQLite file into another: all at the same one), and everything is
    read through once. The target appears when it is whole. A damaged context is among the `problems` of the result, and
    the others are copied. Raises `InvalidOperation` if the target exists, `StorageFailure` if it cannot be written,
    `Corrupt` if the source is too damaged to be copied.
    """
    kind, path = _target(target)
    if os.path.lexists(path):
        raise InvalidOperation(f"{str(path)!r} exists already; a backup is a new store: choose another path.")
    if not path.parent.is_dir():
        raise StorageFailure(f"Cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; make it first.")
    storage, owned = storage_at(where, create=False)
    fresh = path.with_name(f".{path.name[:80]}.{os.urandom(6).hex()}.new")
    try:
        problems = _copy(storage, kind, fresh, progress or ignore_progress)
        contexts, found = _read_through(kind, fresh, progress or ignore_progress)
        size = _size(fresh)
        _put_in_place(fresh, path)
    except StorageFailure as error:
        if str(fresh) not in str(error):
            raise
        raise StorageFailure(str(error).replace(str(fresh), str(path))) from error
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
    finally:
        _remove(fresh)
        if owned:
            storage.close()
    named = tuple(problem.replace(str(fresh), str(path)) for problem in (*problems, *found))
    return Backup(path=str(path), contexts=contexts, bytes=size, problems=named)


Kind = Callable[[Path], Storage]


def _target(target: object) -> tuple[Kind, Path]:
    if isinstance(target, str):
        scheme, colon, rest = target.partition(":")
        if colon and scheme in ("file", "sqlite"):
            return FileStorage if scheme == "file" else SQLiteStorage, check_path(rest.removeprefix("//"))
        if colon and len(scheme) > 1:
            raise InvalidValue(
                f"target is {short_repr(masked(target))}; a backup is a new SQLite file (a path) or folder (file:DIR)."
                " migrate() copies into other stores."
            )
    return SQLiteStorage, check_path(target)


def _copy(storage: Storage, kind: Kind, fresh: Path, report: ProgressCallback) -> list[str]:
    """Copy what can be copied; what is wrong with the rest. Raises `Corrupt` if a damaged file gives nothing."""
    if not isinstance(storage, SQLiteStorage) or kind is not SQLiteStorage:
        return _copy_all(storage, kind, fresh, report)
    try:
        return storage.copy_to(fresh, lambda size: report(Progress(context="", phase="copy", records=0, bytes=size)))
    except Corrupt as error:
        _remove(fresh)
        problems = [f"file: {error} Its contexts were copied one by one.", *_copy_all(storage, kind, fresh, report)]
        if not _has_contexts(kind, fresh):
            raise
        return problems


def _copy_all(storage: Storage, kind: Kind, fresh: Path, report: ProgressCallback) -> list[str]:
    """Copy the contexts one by one; those that could not be, and why."""
    problems = _headless(storage)
    target = kind(fresh)
    try:
        for name in _names(storage, problems):
            try:
                _copy_context(storage, target, name, report)
            except Corrupt as error:
                problems.append(f"{name}: not copied: {error}")
    finally:
        target.close()
    return problems


def _headless(storage: Storage) -> list[str]:
    """Contexts that nothing leads to any more: they are not among those that are copied."""
    try:
        found = storage.examine(repair=False) if isinstance(storage, SupportsExamine) else []
    except QuireError:  # who may copy may not be allowed to look at all the rest
        return []
    lost = (symptom for symptom in found if symptom.code == "head_lost" and symptom.severity == "error")
    return [f"{symptom.where}: {symptom.text}" for symptom in lost]


def _has_contexts(kind: Kind, path: Path) -> bool:
    store = kind(path)
    try:
        return next(store.contexts(), None) is not None
    finally:
        store.close()


def _names(storage: Storage, problems: list[str]) -> Iterator[str]:
    """The contexts, as far as the list of them can be read."""
    try:
        yield from storage.contexts()
    except Corrupt as error:
        problems.append(f"list of contexts: {error}")


def _copy_context(storage: Storage, target: Storage, name: str, report: ProgressCallback) -> None:
    """Copy a context as it is at one moment; one that is gone by now or was never finished is left out."""
    for attempt in range(_TRIES):
        with snapshot_of(storage, name) as still:
            head = still.head(name)
            if head is None or head.version < 0:
                return
            try:
                copy_contexts(still, target, name, progress=report, check=False)
                return
            except NoSuchContext:
                return
            except Conflict:  # it changed meanwhile, and this storage cannot hold it still
                if attempt == _TRIES - 1:
                    raise


def _read_through(kind: Kind, path: Path, report: ProgressCallback) -> tuple[int, tuple[str, ...]]:
    store = kind(path)
    contexts = 0
    problems: list[str] = []
    try:
        for name in _names(store, problems):
            contexts += 1
            problems += [f"{name}: {problem}" for problem in find_damage(store, name)]
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
