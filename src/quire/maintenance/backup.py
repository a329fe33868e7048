"""Backup: copy a whole store that may be in use into a new store, and check the copy."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts, ignore_progress
from quire.core.integrity import find_damage
from quire.errors import (
    Conflict,
    Corrupt,
    Hint,
    InvalidOperation,
    InvalidValue,
    NoSuchContext,
    QuireError,
    StorageFailure,
    short_repr,
)
from quire.storage.base import Storage, SupportsExamine, snapshot_of
from quire.storage.file.log import sync_path
from quire.storage.file.storage import FileStorage
from quire.storage.paths import check_path
from quire.storage.sqlite.storage import SQLiteStorage
from quire.storage.urls import mask_address, storage_at

_TRIES = 5


class Backup(Struct, frozen=True, kw_only=True):
    """A finished backup: its path, the number of its contexts, and its size in bytes.

    `problems` lists the damage of the original: unreadable or missing records, which were copied unchanged, contexts
    that could not be copied, and derived data that was created again in the copy.
    """

    path: str
    contexts: int
    bytes: int
    problems: tuple[str, ...] = ()


def backup(
    where: str | os.PathLike[str] | Storage, target: str | os.PathLike[str], *, progress: ProgressCallback | None = None
) -> Backup:
    """Copy a store that may be in use into a new one: `target` is a path for an SQLite file, or `file:DIR`.

    Every context is copied at one moment (from SQLite to SQLite: all at the same moment), and the copy is read once to
    check it. The target appears when it is complete. A damaged context is listed in `problems`, and the others are
    copied. Raises `InvalidOperation` if the target exists, `StorageFailure` if it cannot be written, and `Corrupt` if
    the source is too damaged to be copied.
    """
    kind, path = _target(target)
    if os.path.lexists(path):
        raise InvalidOperation(f"{str(path)!r} exists already. A backup is a new store; choose another path.")
    if not path.parent.is_dir():
        raise StorageFailure(f"Cannot write {str(path)!r}: there is no folder {str(path.parent)!r}. Create it first.")
    storage, owned = storage_at(where, create=False)
    fresh = path.with_name(f".{path.name[:80]}.{os.urandom(6).hex()}.new")
    try:
        problems = _copy(storage, kind, fresh, progress or ignore_progress)
        contexts, found = _check_copy(kind, fresh, progress or ignore_progress)
        size = _size(fresh)
        _rename(fresh, path)
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
            shown = short_repr(mask_address(target))
            raise InvalidValue(
                f"is {shown}; a backup is a new SQLite file (a path) or folder (file:DIR).",
                Hint("migrate", purpose="to copy into another store"),
                argument="target",
            )
    return SQLiteStorage, check_path(target)


def _copy(storage: Storage, kind: Kind, fresh: Path, report: ProgressCallback) -> list[str]:
    """Copy the contexts; return the problems. Raises `Corrupt` if nothing can be read from a damaged file."""
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
    """Copy the contexts one by one; return the problems."""
    problems = _lost_heads(storage)
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


def _lost_heads(storage: Storage) -> list[str]:
    """Return the contexts without a head, which cannot be copied."""
    try:
        found = storage.examine(repair=False) if isinstance(storage, SupportsExamine) else []
    except QuireError:  # a role that may read contexts may not be allowed to examine the store
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
    """Yield the contexts, as far as their list can be read."""
    try:
        yield from storage.contexts()
    except Corrupt as error:
        problems.append(f"list of contexts: {error}")


def _copy_context(storage: Storage, target: Storage, name: str, report: ProgressCallback) -> None:
    """Copy a context at one moment. A dropped or unfinished one is left out."""
    for attempt in range(_TRIES):
        with snapshot_of(storage, name) as snapshot:
            head = snapshot.head(name)
            if head is None or head.version < 0:
                return
            try:
                copy_contexts(snapshot, target, name, progress=report, check=False)
                return
            except NoSuchContext:
                return
            except Conflict:  # it changed, and this storage has no snapshots
                if attempt == _TRIES - 1:
                    raise


def _check_copy(kind: Kind, path: Path, report: ProgressCallback) -> tuple[int, tuple[str, ...]]:
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


def _rename(fresh: Path, path: Path) -> None:
    sync_path(fresh)
    if os.path.lexists(path):
        raise InvalidOperation(f"{str(path)!r} was created by another process meanwhile. Choose another path.")
    os.rename(fresh, path)
    sync_path(path.parent)


def _remove(fresh: Path) -> None:
    if fresh.is_dir():
        from shutil import rmtree

        rmtree(fresh, ignore_errors=True)
        return
    for ending in ("", "-wal", "-shm"):
        fresh.with_name(fresh.name + ending).unlink(missing_ok=True)
