"""Retention: delete or archive contexts that have not changed for a long time."""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from quire.core.records import decode_head
from quire.core.summary_board import drop_with_companions
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
from quire.storage.base import Commit, Head, Remainder, Storage
from quire.storage.paths import check_path, file_name
from quire.system.purge import remains_without_scrub, scrub_bytes

Action = Literal["delete", "archive"]
ENDING = ".quire"
"""The ending of the file of an archived context."""
REMOVING_HEAD = b"quire: leaving"
"""The head of a context during its removal. It cannot be opened any more."""


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
) -> Iterator[Expired]:
    """Remove the contexts with a last change before `cutoff`; yield each when it is done.

    A context that changes meanwhile stays. One that another process removes is yielded too if its file exists. One that
    cannot be read is yielded with its problem, and the others are removed. Raises `InvalidValue`, and `StorageFailure`
    if the store or the folder fails.
    """
    target = _check_folder(action, folder)
    if target is not None and not dry_run:
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailure(f"Cannot create the folder {str(target)!r}: {error}.") from error
    for name in names:
        removal = _Removal(storage, name, action, target)
        try:
            expired = removal.run(cutoff, dry_run=dry_run)
        except (NoSuchContext, Conflict):  # another process removed or changed it
            continue
        except StorageFailure:
            raise
        except QuireError as error:
            expired = Expired(name=name, updated_at=removal.updated_at, action=action, problem=str(error))
        if expired is not None:
            yield expired


class _Removal:
    """The removal of one context."""

    def __init__(self, storage: Storage, name: str, action: Action, folder: Path | None) -> None:
        self.updated_at: datetime | None = None
        self._storage = storage
        self._name = name
        self._action = action
        self._folder = folder

    def run(self, cutoff: datetime, *, dry_run: bool) -> Expired | None:
        """Remove the context if it is due; None if it stays."""
        head = self._storage.head(self._name)
        if head is None:
            return None
        if head.version < 0:
            if head.value == REMOVING_HEAD and not dry_run:  # left by a removal that was interrupted
                drop_with_companions(self._storage, self._name)
            return None
        self.updated_at = info_of(self._storage, self._name).updated_at
        if self.updated_at >= cutoff:
            return None
        path, is_written = self._path(head)
        try:
            is_removed = dry_run or self._remove(head, path, is_written)
        except InvalidOperation:
            if path is None or not os.path.lexists(path):
                raise
            path, is_written = self._path(head)  # another process wrote this file at the same time
            is_removed = self._remove(head, path, is_written)
        if not is_removed:
            return None
        return Expired(
            name=self._name, updated_at=self.updated_at, action=self._action, path=None if path is None else str(path)
        )

    def _path(self, head: Head) -> tuple[Path | None, bool]:
        """Return the file to write, and whether an interrupted call has written it already.

        A context that was created again after it was archived gets another file.
        """
        if self._folder is None:
            return None, False
        stem = file_name(self._name)
        for number in count(1):
            path = self._folder / (f"{stem}.{number}{ENDING}" if number > 1 else f"{stem}{ENDING}")
            if not os.path.lexists(path):
                return path, False
            if self._read_head(path) == head:
                return path, True
        raise AssertionError("unreachable")

    def _read_head(self, path: Path) -> Head | None:
        """Return the head in a file; None if the file is damaged or of another context."""
        try:
            with ExportFile(path) as file:
                return file.head(self._name) if file.name == self._name else None
        except QuireError:
            return None

    def _remove(self, head: Head, path: Path | None, is_written: bool) -> bool:
        if path is None or is_written:
            return drop_if(self._storage, self._name, head)
        export_context(self._storage, self._name, path)
        written = self._read_head(path)  # read it back before the only other copy is deleted
        if written == head and drop_if(self._storage, self._name, head):
            return True
        now = self._storage.head(self._name)
        if written is None:
            path.unlink(missing_ok=True)
            if now == head:
                raise Corrupt(f"The archive of {self._name!r} in {str(path)!r} reads back differently. Check the disk.")
            return False
        if _is_gone(now, written):  # another process removed it; this file may be the only copy
            return True
        if now != written:  # it changed, so the file is out of date
            path.unlink(missing_ok=True)
        return False


def _is_gone(now: Head | None, then: Head) -> bool:
    """Return whether the context at head `then` is gone; another one may have its name."""
    if now is None or now.version < 0:
        return True
    return decode_head(now.value).identity != decode_head(then.value).identity


def drop_if(storage: Storage, context: str, head: Head) -> bool:
    """Remove a context if it is still at this head; return whether it was. No later change is lost."""
    try:
        storage.commit(context, Commit(head.version, -1, REMOVING_HEAD, (), head.value))
    except Conflict:
        return False
    drop_with_companions(storage, context)
    return True


def with_remains(storage: Storage, removed: tuple[Expired, ...], *, scrub: bool, dry_run: bool) -> tuple[Expired, ...]:
    """Return the results with what remains of the removed contexts in the store, after scrubbing it."""
    names = [each.name for each in removed if not each.problem]
    left = () if scrub else remains_without_scrub(storage)
    if scrub and names and not dry_run:
        left = scrub_bytes(storage, names)
    return tuple(each if each.problem else replace(each, scrubbed=not left, remains=left) for each in removed)


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
