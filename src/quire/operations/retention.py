"""Letting go of contexts that nobody changed for long: deleted, or written to files first."""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from quire.errors import Conflict, InvalidOperation, InvalidValue, NoSuchContext, StorageFailure, shown
from quire.operations.exporting import ExportFile, export_context
from quire.operations.usage import info_of
from quire.storage.base import Commit, Head, Storage, check_path
from quire.storage.names import file_name

Action = Literal["delete", "archive"]
ENDING = ".quire"
"""What the name of an archived context's file ends in."""
LEAVING = b"quire: leaving"
"""The head of a context that is on its way out: nobody opens it any more."""


class Expired(Struct, frozen=True, kw_only=True):
    """A context that was let go of, or would be: when it was changed last, and the file it was written to."""

    name: str
    updated_at: datetime
    action: Action
    path: str | None = None


def cutoff_of(older_than: timedelta | datetime) -> datetime:
    """The moment that an age or a moment stands for. Raises `InvalidValue`."""
    if isinstance(older_than, timedelta) and older_than >= timedelta(0):
        return datetime.now(UTC) - older_than
    if isinstance(older_than, datetime) and older_than.tzinfo is not None:
        return older_than
    raise InvalidValue(
        f"older_than is {shown(older_than)}; a timedelta from 0, or a datetime with a time zone, is needed."
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

    A context that someone changes meanwhile stays. Raises `InvalidValue`.
    """
    place = _checked(action, folder)
    if place is not None and not dry_run:
        _make(place)
    for name in names:
        head = storage.head(name)
        if head is None:
            continue
        if head.version < 0:
            if head.value == LEAVING and not dry_run:  # of a call that was killed half way
                storage.drop(name)
            continue
        try:
            found = info_of(storage, name)
        except NoSuchContext:
            continue
        if found.updated_at >= cutoff:
            continue
        target = None if place is None else place / (file_name(name) + ENDING)
        gone = Expired(
            name=name, updated_at=found.updated_at, action=action, path=None if target is None else str(target)
        )
        if dry_run or _let_go(storage, name, head, target):
            yield gone


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
        raise InvalidValue(f"action is {shown(action)}; use 'delete' or 'archive'.")
    if action == "archive":
        if folder is None:
            raise InvalidValue("action='archive' needs the folder to write to: pass folder=….")
        return check_path(folder)
    if folder is not None:
        raise InvalidValue(f"folder is {shown(folder)}, but action='delete' writes no files; use action='archive'.")
    return None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailure(f"Cannot make the folder {str(folder)!r}: {error}.") from error


def _let_go(storage: Storage, context: str, head: Head, target: Path | None) -> bool:
    if target is not None:
        try:
            export_context(storage, context, target)
        except (NoSuchContext, Conflict):
            return False
        except InvalidOperation:  # a file is there: of an interrupted call, or of another context of that name
            if not target.exists():
                raise
        with ExportFile(target) as written:  # read back before the only other copy goes
            if (written.name, written.head(context)) != (context, head):
                return _refuse(context, target) if storage.head(context) == head else False
    return drop_if(storage, context, head)


def _refuse(context: str, target: Path) -> bool:
    raise InvalidOperation(
        f"{str(target)!r} holds another state of {context!r}, perhaps of an earlier context of that name: move it away."
    )
