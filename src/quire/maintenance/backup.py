"""Backup: copy a whole store that may be in use into a new store, and check the copy."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts, ignore_progress
from quire.errors import (
    Corrupt,
    Hint,
    InvalidOperation,
    InvalidValue,
    NoSuchContext,
    QuireError,
    StorageFailure,
    names_options,
    short_repr,
)
from quire.maintenance.doctor import IndexExamination, doctor
from quire.maintenance.retention import REMOVING_HEAD
from quire.storage.base import Head, Storage, SupportsExamine, Symptom, list_contexts, read_snapshot
from quire.storage.file.log import sync_path
from quire.storage.file.storage import FileStorage
from quire.storage.paths import check_path
from quire.storage.sqlite.storage import SQLiteStorage
from quire.storage.urls import StoreLocation, existing_storage, mask_address


class Backup(Struct, frozen=True, kw_only=True):
    """A finished backup: its path, the number of its contexts, and its size in bytes.

    `problems` lists what `doctor` reports about the original: unreadable or missing records, which were copied
    unchanged, contexts that could not be copied, and derived data, which is right in the copy.
    """

    path: str
    contexts: int
    bytes: int
    problems: tuple[str, ...] = ()


@names_options
def backup(where: StoreLocation, target: str | os.PathLike[str], *, progress: ProgressCallback | None = None) -> Backup:
    """Copy a store that may be in use into a new one: `target` is a path for an SQLite file, or `file:DIR`.

    Every context is copied at one moment (from SQLite to SQLite: all at the same moment). `doctor` examines the copy,
    and repairs what is safe there. The target appears when it is complete. A damaged context is listed in `problems`,
    and the others are copied. Raises `InvalidOperation` if the target exists, `StorageFailure` if it cannot be written,
    and `Corrupt` if the source is too damaged to be copied.
    """
    kind, path = _target(target)
    if os.path.lexists(path):
        raise InvalidOperation(f"{str(path)!r} exists already. A backup is a new store; choose another path.")
    if not path.parent.is_dir():
        raise StorageFailure(f"Cannot write {str(path)!r}: there is no folder {str(path.parent)!r}. Create it first.")
    storage, owned = existing_storage(where)
    fresh = path.with_name(f".{path.name[:80]}.{os.urandom(6).hex()}.new")
    try:
        contexts, problems = _copy(storage, kind, fresh, progress or ignore_progress)
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
    named = tuple(problem.replace(str(fresh), str(path)) for problem in problems)
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


def _copy(storage: Storage, kind: Kind, fresh: Path, report: ProgressCallback) -> tuple[int, list[str]]:
    """Copy the contexts; return their number and the problems. Raises `Corrupt` if a damaged file has no contexts."""
    if not isinstance(storage, SQLiteStorage) or kind is not SQLiteStorage:
        problems = _copy_all(storage, kind, fresh, report)
        contexts, found = _examine_copy(kind, fresh, report)
        return contexts, [*problems, *found]
    try:
        storage.copy_to(fresh, lambda size: report(Progress(context="", phase="copy", records=0, bytes=size)))
        return _examine_copy(kind, fresh, report)
    except Corrupt as error:
        _remove(fresh)
        problems = [f"file: {error} Its contexts were copied one by one.", *_copy_all(storage, kind, fresh, report)]
        if not _has_contexts(kind, fresh):
            raise
        contexts, found = _examine_copy(kind, fresh, report)
        return contexts, [*problems, *found]


def _copy_all(storage: Storage, kind: Kind, fresh: Path, report: ProgressCallback) -> list[str]:
    """Copy the contexts one by one; return the problems of the store and of its search indexes."""
    symptoms = _examine_store(storage)
    problems = _lines(symptoms)
    has_index = not any(symptom.code == "search_damaged" for symptom in symptoms)
    target = kind(fresh)
    try:
        indexes = IndexExamination(storage, repair=False, pages=target) if has_index else None
        for name in _names(storage, problems):
            try:
                head = _copy_context(storage, target, name, report)
            except Corrupt as error:
                problems.append(f"{name}: not copied: {error}")
                continue
            if head is not None and head.version < 0 and head.value != REMOVING_HEAD:
                problems.append(f"{name}: not copied: it is an unfinished copy.")
            elif head is not None and indexes is not None:
                problems += _lines(indexes.symptoms(name, head))
        return [*problems, *(_lines(indexes.shared_symptoms()) if indexes is not None else ())]
    finally:
        target.close()


def _examine_store(storage: Storage) -> list[Symptom]:
    try:
        return storage.examine(repair=False) if isinstance(storage, SupportsExamine) else []
    except QuireError:  # a role that may read contexts may not be allowed to examine the store
        return []


def _lines(symptoms: Iterable[Symptom]) -> list[str]:
    """Return the symptoms as text, without notes and without removals that may be in progress."""
    problems = (each for each in symptoms if each.severity != "note" and each.code != "removal_unfinished")
    return [
        ": ".join(filter(None, (each.context, each.where, each.text))) + (" Repaired in the copy." * each.repaired)
        for each in problems
    ]


def _has_contexts(kind: Kind, path: Path) -> bool:
    store = kind(path)
    try:
        return next(list_contexts(store), None) is not None
    finally:
        store.close()


def _names(storage: Storage, problems: list[str]) -> Iterator[str]:
    """Yield the contexts, as far as their list can be read."""
    try:
        yield from list_contexts(storage)
    except Corrupt as error:
        problems.append(f"list of contexts: {error}")


def _copy_context(storage: Storage, target: Storage, name: str, report: ProgressCallback) -> Head | None:
    """Copy a context at one moment and return its head. A dropped or unfinished one is left out."""

    def copy(snapshot: Storage) -> Head | None:
        head = snapshot.head(name)
        if head is not None and head.version >= 0:
            with suppress(NoSuchContext):
                copy_contexts(snapshot, target, name, progress=report, check=False)
        return head

    return read_snapshot(storage, name, copy)


def _examine_copy(kind: Kind, path: Path, report: ProgressCallback) -> tuple[int, list[str]]:
    """Examine the copy and repair derived data in it; return the number of contexts and the problems.

    Raises `Corrupt` if the file itself is damaged.
    """
    store = kind(path)
    try:
        found = doctor(
            store,
            repair=True,
            progress=lambda name: report(Progress(context=name, phase="verify", records=0, bytes=0)),
        )
        for each in found.symptoms:
            if each.severity == "error" and each.where in ("store", "file") and not each.repaired:
                raise Corrupt(
                    f"The copy is damaged like its original: {each.text}", Hint("doctor", purpose="to list all damage")
                )
        return sum(1 for _ in _names(store, [])), _lines(found.symptoms)
    finally:
        store.close()


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
