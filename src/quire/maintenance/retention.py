"""Letting go of contexts that nobody changed for long: deleted, or written to files first."""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from quire.core.records import decode_head
from quire.errors import Conflict, Corrupt, InvalidValue, NoSuchContext, QuireError, StorageFailure, short_repr
from quire.maintenance.context_usage import info_of
from quire.maintenance.export import ExportFile, export_context
from quire.storage.base import Commit, Head, Storage
from quire.storage.paths import check_path, file_name

Action = Literal["delete", "archive"]
ENDING = ".quire"
"""What the name of an archived context's file ends in."""
LEAVING = b"quire: leaving"
"""The head of a context that is on its way out: nobody opens it any more."""


class Expired(Struct, frozen=True, kw_only=True):
    """A context that was let go of, or would be: when it was changed last, and the file it was written to.

    One that should have been and could not be has a `problem`, which says why: it is still there, and no file is. When
    it was changed last is None if its head cannot be read.
    """

    name: str
    updated_at: datetime | None
    action: Action
    path: str | None = None
    problem: str = ""


def cutoff_of(older_than: timedelta | datetime) -> datetime:
    """The moment that an age or a moment stands for. Raises `InvalidValue`."""
    if isinstance(older_than, timedelta) and older_than >= timedelta(0):
        return datetime.now(UTC) - older_than
    if isinstance(older_than, datetime) and older_than.tzinfo is not None:
        return older_than
    raise InvalidValue(
        f"older_than is {short_repr(older_than)}; a timedelta from 0, or a datetime with a time zone, is needed."
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
    """Let go of those contexts that were changed last before a moment; each as it is done.

    A context that someone changes meanwhile stays; one that someone else lets go of is named too if its file is there.
    One that cannot be read is named with its problem, and the others go. Raises `InvalidValue`, and `StorageFailure` if
    the store or the folder fails.
    """
    place = _checked(action, folder)
    if place is not None and not dry_run:
        _make(place)
    for name in names:
        one = _Leaving(storage, name, action, place)
        try:
            gone = one.go(cutoff, dry_run=dry_run)
        except (NoSuchContext, Conflict):  # somebody else removed or changed it
            continue
        except StorageFailure:
            raise
        except QuireError as error:
            gone = Expired(name=name, updated_at=one.updated_at, action=action, problem=str(error))
        if gone is not None:
            yield gone


class _Leaving:
    """One context that may be let go of."""

    def __init__(self, storage: Storage, name: str, action: Action, place: Path | None) -> None:
        self.updated_at: datetime | None = None
        self._storage = storage
        self._name = name
        self._action = action
        self._place = place

    def go(self, cutoff: datetime, *, dry_run: bool) -> Expired | None:
        """Let go of it if it is due; None if it stays."""
        head = self._storage.head(self._name)
        if head is None:
            return None
        if head.version < 0:
            if head.value == LEAVING and not dry_run:  # of a call that was killed half way
                self._storage.drop(self._name)
            return None
        self.updated_at = info_of(self._storage, self._name).updated_at
        if self.updated_at >= cutoff:
            return None
        path, is_there = self._path(head)
        if not dry_run and not self._remove(head, path, is_there):
            return None
        return Expired(
            name=self._name, updated_at=self.updated_at, action=self._action, path=None if path is None else str(path)
        )

    def _path(self, head: Head) -> tuple[Path | None, bool]:
        """Where to write it, and whether it is there already, of a call that was killed half way.

        A name may come again: a context that was made anew after an archive gets a file of its own.
        """
        if self._place is None:
            return None, False
        stem = file_name(self._name)
        for number in count(1):
            path = self._place / (f"{stem}.{number}{ENDING}" if number > 1 else f"{stem}{ENDING}")
            if not os.path.lexists(path):
                return path, False
            if self._written(path) == head:
                return path, True
        raise AssertionError("unreachable")

    def _written(self, path: Path) -> Head | None:
        """The state of the context that a file holds; None if it cannot be read as a whole, or is another's."""
        try:
            with ExportFile(path) as file:
                return file.head(self._name) if file.name == self._name else None
        except QuireError:
            return None

    def _remove(self, head: Head, path: Path | None, is_there: bool) -> bool:
        if path is None or is_there:
            return drop_if(self._storage, self._name, head)
        export_context(self._storage, self._name, path)
        written = self._written(path)  # read back before the only other copy goes
        if written == head and drop_if(self._storage, self._name, head):
            return True
        now = self._storage.head(self._name)
        if written is None:
            path.unlink(missing_ok=True)
            if now == head:
                raise Corrupt(
                    f"What was written of {self._name!r} to {str(path)!r} reads back differently: look at the disk."
                )
            return False
        if _is_gone(now, written):  # with this file, if it was another who archives: it may be all that is left
            return True
        if now != written:  # it went on, so nobody ever lets go of it as it is in the file
            path.unlink(missing_ok=True)
        return False


def _is_gone(now: Head | None, then: Head) -> bool:
    """Whether a context that stood there once is no more; another one of its name may be there."""
    if now is None or now.version < 0:
        return True
    return decode_head(now.value).identity != decode_head(then.value).identity


def drop_if(storage: Storage, context: str, head: Head) -> bool:
    """Remove a context if it is still at this head; whether it was. Nobody's change is lost."""
    try:
        storage.commit(context, Commit(head.version, -1, LEAVING, (), head.value))
    except Conflict:
        return False
    storage.drop(context)
    return True


def _checked(action: object, folder: object) -> Path | None:
    if action not in get_args(Action):
        raise InvalidValue(f"action is {short_repr(action)}; use 'delete' or 'archive'.")
    if action == "archive":
        if folder is None:
            raise InvalidValue("action='archive' needs the folder to write to: pass folder=….")
        return check_path(folder)
    if folder is not None:
        raise InvalidValue(
            f"folder is {short_repr(folder)}, but action='delete' writes no files; use action='archive'."
        )
    return None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailure(f"Cannot make the folder {str(folder)!r}: {error}.") from error
