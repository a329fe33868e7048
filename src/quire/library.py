"""Library: many contexts on one backend."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quire.context import Context, Options, open_in, setup_of
from quire.core.records import decode_head
from quire.errors import Corrupt, InvalidOperation, InvalidValue, short_repr
from quire.maintenance.context_usage import ContextInfo, ContextUsage, info_of, usage_of
from quire.model.clock import as_milliseconds
from quire.storage.base import Durability, Storage, check_context_name, no_such_context
from quire.storage.migrate import Progress, Report, migrate
from quire.storage.urls import storage_at
from quire.system import ContextSystem
from quire.system.rules import check_bool, check_whole_number

if TYPE_CHECKING:
    from typing import Unpack

    from quire.maintenance.retention import Action, Expired


class Library:
    """The contexts of one store, given by URL, path or storage object. Contexts opened from it share its connection."""

    def __init__(
        self, where: str | os.PathLike[str] | Storage, *, durability: Durability = "normal", create: bool = True
    ) -> None:
        self.storage, self._owns_storage = storage_at(where, durability=durability, create=create)

    # One context

    def open(self, name: str = "default", *, create: bool = True, **options: "Unpack[Options]") -> Context:
        """Open a context, creating it if it is new. The options are those of `quire.open`.

        With `create=False` nothing is written: one that is not there is `NoSuchContext`.
        """
        return open_in(self.storage, name, setup_of(options), create=check_bool(create, "create"))

    def create(self, name: str, **options: "Unpack[Options]") -> Context:
        """Make a new context and open it. Raises `InvalidOperation` if there is one of that name."""
        return open_in(self.storage, name, setup_of(options), anew=True)

    def exists(self, name: str) -> bool:
        """Whether there is a context of this name."""
        return self.storage.head(name) is not None

    def delete(self, name: str) -> None:
        """Remove a context with all its pages and history, damaged or not. Raises `NoSuchContext`."""
        with suppress(Corrupt):
            self._known(name)
        self.storage.drop(name)

    def fork(self, name: str, new_name: str, at: str | int | None = None) -> None:
        """Make another context of one, as it is or as it was at a checkpoint or a seq. Raises `NoSuchContext`."""
        self._known(name)
        ContextSystem(self.storage, name).fork(new_name, at)

    def info(self, name: str) -> ContextInfo:
        """When a context was made and changed, and how much it has had: one small read. Raises `NoSuchContext`."""
        return info_of(self.storage, name)

    def usage(self, name: str) -> ContextUsage:
        """What a context takes up: bytes, pages, messages, journal entries and tokens. Reads all of it, streaming."""
        return usage_of(self.storage, name)

    def export(
        self, name: str, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Report | None = None
    ) -> Progress:
        """Write one context to one file, history included; it appears when it is whole. Writers go on meanwhile.

        Raises `NoSuchContext`, `InvalidOperation` if the file exists, `StorageFailure` if it cannot be written,
        `Corrupt` naming what is damaged in the context: then there is no file.
        """
        from quire.maintenance.export import export_context

        return export_context(self.storage, name, path, overwrite=overwrite, progress=progress)

    def import_(self, path: str | os.PathLike[str], name: str | None = None, *, progress: Report | None = None) -> str:
        """Read an exported context back, under its own name or another; that name. All of it, or nothing.

        A context that is there as the file has it is left as it is. Raises `InvalidOperation` if the name is taken by
        another one or by another state of it, `Corrupt` naming the place in a damaged file.
        """
        from quire.maintenance.export import import_context

        return import_context(self.storage, path, name, progress=progress)

    # All of them

    def list(
        self,
        after: str = "",
        *,
        limit: int | None = None,
        prefix: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[str]:
        """The names of contexts greater than `after`, in order, at most `limit`. Streams: a page costs what it shows.

        `prefix` is how names begin. `since` and `until`, both included, bound the last change; they read the head of
        every context in question. Unfinished copies are among the names unless a time is asked for.
        """
        span = _span(since, until)
        if limit is not None:
            check_whole_number(limit, "limit")
        names = self._names(after, prefix)
        if span is not None:
            names = (name for name in names if self._changed_within(name, *span))
        return islice(names, limit)

    def expire(
        self,
        older_than: timedelta | datetime,
        *,
        action: "Action" = "delete",
        folder: str | os.PathLike[str] | None = None,
        prefix: str = "",
        dry_run: bool = False,
    ) -> "tuple[Expired, ...]":
        """Let go of the contexts that nobody changed for so long, or since a moment; what was let go of.

        `action="archive"` first writes each to a file in `folder`, which `import_` reads back, and reads it through.
        One that is changed meanwhile stays. One that is damaged stays too and is among the result, with its `problem`.
        With `dry_run` nothing is done. Raises `InvalidValue`, and `StorageFailure` if the store or the folder fails.
        """
        from quire.maintenance.retention import cutoff_of, expire

        names = self._names("", prefix)
        return tuple(expire(self.storage, names, cutoff_of(older_than), action, folder, dry_run=dry_run))

    def migrate(
        self,
        target: "str | os.PathLike[str] | Storage | Library",
        *,
        replace: bool = False,
        progress: Report | None = None,
    ) -> Progress:
        """Copy every context to another store, verified; called again, an interrupted copy goes on. See `migrate`."""
        to = target.storage if isinstance(target, Library) else target
        return migrate(self.storage, to, replace=replace, progress=progress)

    def _names(self, after: str, prefix: str) -> Iterator[str]:
        for field, value in (("after", after), ("prefix", prefix)):
            if not isinstance(value, str):
                raise InvalidValue(f"{field} is {short_repr(value)}; text is needed.")
        return self._from(after, prefix)

    def _from(self, after: str, prefix: str) -> Iterator[str]:
        if after < prefix and _can_be(prefix) and self.exists(prefix):
            yield prefix
        for name in self.storage.contexts(max(after, prefix)):
            if not name.startswith(prefix):
                return
            yield name

    def _changed_within(self, name: str, first: int, last: int) -> bool:
        head = self.storage.head(name)
        return head is not None and head.version >= 0 and first <= decode_head(head.value).updated <= last

    def _known(self, name: str) -> None:
        if not self.exists(name):
            raise no_such_context(self.storage, name)

    def close(self) -> None:
        """Release the storage, if this library opened it."""
        if self._owns_storage:
            self.storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _can_be(name: str) -> bool:
    try:
        return bool(check_context_name(name))
    except InvalidOperation:
        return False


def _span(since: object, until: object) -> tuple[int, int] | None:
    if since is None and until is None:
        return None
    bounds = [0, 1 << 62]
    for place, (field, value) in enumerate((("since", since), ("until", until))):
        if value is None:
            continue
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise InvalidValue(f"{field} is {short_repr(value)}; a datetime with a time zone is needed.")
        bounds[place] = as_milliseconds(value)
    return bounds[0], bounds[1]
