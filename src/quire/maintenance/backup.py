"""Backup: copy a whole store that may be in use into a new store, and check the copy."""

import os
from pathlib import Path
from shutil import rmtree

from msgspec import Struct

from quire.core.context_copy import Progress, ProgressCallback, copy_context
from quire.errors import (
    Corrupt,
    Hint,
    InvalidOperation,
    InvalidValue,
    NoSuchContext,
    StorageFailure,
    names_options,
    short_repr,
)
from quire.maintenance.doctor import Examination
from quire.maintenance.export import sync_folder
from quire.storage.base import Symptom
from quire.storage.contract import Storage
from quire.storage.paths import check_path
from quire.storage.urls import StoreLocation, existing_storage, mask_address, open_storage


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

    Every context is copied at one moment. `doctor` examines the copy, and repairs what is safe there. The target
    appears when it is complete. A damaged context is listed in `problems`, and the others are copied. Raises
    `InvalidOperation` if the target exists, `StorageFailure` if it cannot be written, and `Corrupt` if the source is
    too damaged to be copied.
    """
    scheme, path = _target(target)
    if os.path.lexists(path):
        raise InvalidOperation(f"{str(path)!r} exists already. A backup is a new store; choose another path.")
    if not path.parent.is_dir():
        raise StorageFailure(f"Cannot write {str(path)!r}: there is no folder {str(path.parent)!r}. Create it first.")
    storage, owned = existing_storage(where)
    fresh = path.with_name(f".{path.name[:80]}.{os.urandom(6).hex()}.new")
    try:
        contexts, problems = _copy_all(storage, f"{scheme}:{fresh}", progress)
        files = [file for file in (fresh, *fresh.rglob("*")) if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        if os.path.lexists(path):
            raise InvalidOperation(f"{str(path)!r} was created by another process meanwhile. Choose another path.")
        os.rename(fresh, path)
        sync_folder(path.parent)
    except StorageFailure as error:
        if str(fresh) not in str(error):
            raise
        raise StorageFailure(str(error).replace(str(fresh), str(path))) from error
    except OSError as error:
        raise StorageFailure(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
    finally:
        rmtree(fresh, ignore_errors=True)
        for ending in ("", "-wal", "-shm"):
            fresh.with_name(fresh.name + ending).unlink(missing_ok=True)
        if owned:
            storage.close()
    named = tuple(problem.replace(str(fresh), str(path)) for problem in problems)
    return Backup(path=str(path), contexts=contexts, bytes=size, problems=named)


def _target(target: object) -> tuple[str, Path]:
    if isinstance(target, str):
        scheme, colon, rest = target.partition(":")
        if colon and scheme in ("file", "sqlite"):
            return scheme, check_path(rest.removeprefix("//"))
        if colon and len(scheme) > 1:
            shown = short_repr(mask_address(target))
            raise InvalidValue(
                f"is {shown}; a backup is a new SQLite file (a path) or folder (file:DIR).",
                Hint("migrate", purpose="to copy into another store"),
                argument="target",
            )
    return "sqlite", check_path(target)


def _copy_all(storage: Storage, url: str, progress: ProgressCallback | None) -> tuple[int, list[str]]:
    """Copy the contexts and examine the copy; return their number and the problems. Raises `Corrupt`."""
    source = Examination(storage, repair=False, removes_unused=False, told=Corrupt)
    symptoms, problems = source.of_store(), list[str]()
    target = open_storage(url, durability="full")
    try:
        for name in source.names(symptoms):
            try:
                copy_context(storage, target, name, progress=progress, check=False)
            except NoSuchContext:
                if name in storage.contexts():  # it was not removed meanwhile
                    problems.append(f"{name}: not copied: its journal is missing.")
            except (Corrupt, InvalidValue) as error:  # a damaged file can hold numbers that no storage takes
                problems.append(f"{name}: not copied: {error}")

        def tell(name: str) -> None:
            if progress is not None:
                progress(Progress(context=name, phase="verify", records=0, bytes=0))

        found = Examination(target, repair=True, removes_unused=False).run(None, tell)
    finally:
        target.close()
    problems += map(_line, (each for each in (*symptoms, *found.symptoms) if each.severity != "note"))
    if problems and not found.contexts:
        raise Corrupt(f"Nothing could be copied. {problems[0]}", Hint("doctor", purpose="to list all damage"))
    return found.contexts, problems


def _line(symptom: Symptom) -> str:
    text = ": ".join(filter(None, (symptom.context, symptom.where, symptom.text)))
    return text + (" Repaired in the copy." if symptom.repaired else "")
