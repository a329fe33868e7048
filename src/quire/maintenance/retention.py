"""Retention: delete or archive contexts that have not changed for a long time."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from quire.core.companion import drop_with_companions
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
from quire.maintenance.context_usage import info_of
from quire.maintenance.export import ExportFile, export_context
from quire.storage.contract import Id, Loaded, Storage
from quire.storage.paths import check_path, file_name
from quire.system.scrub import Remainder, remains_without_scrub, scrub_bytes

Action = Literal["delete", "archive"]
ENDING = ".quire"
"""The ending of the file of an archived context."""


class Expired(Struct, frozen=True, kw_only=True):
    """A context that was removed, or would be: the time of its last change, and the file it was written to.

    If the removal failed, `problem` is the reason; then the context still exists and there is no file. `updated_at` is
    None if the head cannot be read. `scrubbed` is True if the store has no byte of the removed context any more; else
    `remains` says what it has and why.
    """

    name: str
    updated_at: datetime | None
    action: Action
    path: str | None = None
    problem: str = ""
    scrubbed: bool = False
    remains: tuple[Remainder, ...] = ()


def cutoff_of(older_than: timedelta | datetime) -> datetime:
    """Return the cutoff time for an age or a time. Raises `InvalidValue`."""
    if isinstance(older_than, timedelta) and older_than >= timedelta(0):
        try:
            return datetime.now(UTC) - older_than
        except OverflowError:  # before the year 1
            return datetime.min.replace(tzinfo=UTC)
    if isinstance(older_than, datetime) and older_than.tzinfo is not None:
        return older_than
    raise InvalidValue(
        f"is {short_repr(older_than)}; a timedelta from 0, or a datetime with a time zone, is needed.",
        argument="older_than",
    )


def expire(
    storage: Storage,
    names: Iterable[str],
    cutoff: datetime,
    action: Action,
    folder: str | os.PathLike[str] | None,
    *,
    dry_run: bool,
    scrub: bool,
) -> tuple[Expired, ...]:
    """Remove the contexts with a last change before `cutoff`, and with `scrub` their bytes; return what was removed.

    A context that changes meanwhile stays. One that another process removes is returned too if its file exists. One
    that cannot be read is returned with its problem, and the others are removed. Raises `InvalidValue`, and
    `StorageFailure` if the store or the folder fails.
    """
    target = _check_folder(action, folder)
    if target is not None and not dry_run:
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailure(f"Cannot create the folder {str(target)!r}: {error}.") from error
    ids = list[Id]()
    done = list[Expired]()
    for name in names:
        expired = Expired(name=name, updated_at=None, action=action)
        try:
            found = storage.load(name)
            expired = replace(expired, updated_at=info_of(storage, name).updated_at)
            if found is not None and expired.updated_at is not None and expired.updated_at < cutoff:
                path = _file_of(target, name, found)[0] if dry_run else _remove(storage, name, found, target, ids)
                done.append(replace(expired, path=None if path is None else str(path)))
        except (NoSuchContext, Conflict):  # another process removed or changed it
            continue
        except StorageFailure:
            raise
        except QuireError as error:
            done.append(replace(expired, problem=str(error)))
    left = (scrub_bytes(storage, ids) if ids else ()) if scrub else remains_without_scrub(storage)
    return tuple(each if each.problem else replace(each, scrubbed=not left, remains=left) for each in done)


def _remove(storage: Storage, name: str, found: Loaded, folder: Path | None, ids: list[Id]) -> Path | None:
    """Archive and remove a context; return its file. Raises `Conflict` if it changed meanwhile: then it stays."""
    path, is_new = (None, False) if folder is None else _archive(storage, name, found, folder)
    try:
        ids += drop_with_companions(storage, name, (found.id, found.seq))
    except Conflict:
        now = storage.load(name)
        if path is not None and (now is None or now.id != found.id):
            return path  # another process removed it; this file may be the only copy
        if path is not None and is_new:
            path.unlink(missing_ok=True)
        raise
    return path


def _archive(storage: Storage, name: str, found: Loaded, folder: Path) -> tuple[Path, bool]:
    """Write a context to a file and read it back. Return the file, and whether it was not written before.

    Raises `Conflict` if the context is not as found any more.
    """
    while True:
        path, is_written = _file_of(folder, name, found)
        if is_written or path is None:
            return path or folder, False
        try:
            export_context(storage, name, path)
        except InvalidOperation:
            if not os.path.lexists(path):
                raise
            continue  # another process wrote this file at the same time
        written = _state_in(path, name)
        if written == (found.seq, found.head):
            return path, True
        path.unlink(missing_ok=True)
        if written is None:
            raise Corrupt(f"The archive of {name!r} in {str(path)!r} reads back differently. Check the disk.")
        raise Conflict(f"Context {name!r} changed meanwhile.")


def _file_of(folder: Path | None, name: str, found: Loaded) -> tuple[Path | None, bool]:
    """Return the file to write, and whether an interrupted call has written it already.

    A context that was created again after it was archived gets another file.
    """
    if folder is None:
        return None, False
    for number in count(1):
        path = folder / f"{file_name(name)}{f'.{number}' if number > 1 else ''}{ENDING}"
        if not os.path.lexists(path):
            return path, False
        if _state_in(path, name) == (found.seq, found.head):
            return path, True
    raise AssertionError("unreachable")


def _state_in(path: Path, name: str) -> tuple[int, bytes] | None:
    """Return the entry and the head in a file; None if the file is damaged or of another context."""
    try:
        file = ExportFile(path)
    except QuireError:
        return None
    return (file.contents.seq, file.contents.head) if file.name == name else None


def _check_folder(action: object, folder: object) -> Path | None:
    if action not in get_args(Action):
        raise InvalidValue(f"is {short_repr(action)}; use 'delete' or 'archive'.", argument="action")
    if action == "archive":
        if folder is None:
            raise InvalidValue("is missing; action='archive' needs the folder to write to.", argument="folder")
        return check_path(folder)
    if folder is not None:
        raise InvalidValue(
            f"is {short_repr(folder)}, but action='delete' writes no files; use action='archive'.", argument="folder"
        )
    return None
