"""Library: the contexts of one store."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Self, Unpack

from msgspec.structs import replace

from quire.context import Context, Options, PlainOptions, open_in
from quire.core.codec import decode_head
from quire.core.context_copy import Progress, ProgressCallback, migrate
from quire.errors import Hint, InvalidOperation, InvalidValue, names_options, short_repr
from quire.maintenance.context_usage import ContextInfo, ContextUsage, info_of, usage_of
from quire.model.clock import check_moment
from quire.storage.base import Durability, list_contexts, no_such_context
from quire.storage.urls import StoreLocation, release, storage_at
from quire.system import ContextSystem
from quire.system.rules import check_bool, check_whole_number
from quire.view.options import CompressionConfig, Summariser, check_config

if TYPE_CHECKING:
    from quire.maintenance.erasure import Erasure
    from quire.maintenance.person_copy import ExportFormat
    from quire.maintenance.retention import Action, Expired
    from quire.system.scrub import Remainder
    from quire.view.fold.summary_worker import SummaryReport


@names_options
class Library:
    """The contexts of one store, given by URL, path or storage object. Contexts opened from it use its connection.

    `redact` and `summariser` are used for every context that is opened without one of its own; see `quire.open` and
    `CompressionConfig`.
    """

    def __init__(
        self,
        where: StoreLocation,
        *,
        durability: Durability = "normal",
        create: bool = True,
        redact: Callable[[str], str] | None = None,
        summariser: Summariser | None = None,
    ) -> None:
        check_config(CompressionConfig(summariser=summariser))
        self._redact = redact
        self._summariser = summariser
        self.storage, self._owns_storage = storage_at(where, durability=durability, create=create)

    def __repr__(self) -> str:
        return f"<Library {self.storage!r}>"

    # One context

    def open(self, name: str = "default", *, create: bool = True, **options: Unpack[Options]) -> Context:
        """Open a context; create it if it is new. See `quire.open` for the options.

        With `create=False` nothing is written. Raise `NoSuchContext` if there is no such context.
        """
        return open_in(self.storage, name, self._with_defaults(options), create=check_bool(create, "create"))

    @contextmanager
    def turn(
        self,
        name: str = "default",
        *,
        key: str | None = None,
        wait: float = 30.0,
        keep: bool = False,
        **options: Unpack[PlainOptions],
    ) -> Iterator[Context]:
        """Open a context, run a block as a turn of it (see `Context.turn`), and close the context."""
        with self.open(name, **options) as context, context.turn(key, wait=wait, keep=keep):
            yield context

    def create(self, name: str, **options: Unpack[Options]) -> Context:
        """Create a context and open it. Raise `InvalidOperation` if one of that name exists."""
        return open_in(self.storage, name, self._with_defaults(options), must_be_new=True)

    def _with_defaults(self, options: Options) -> Options:
        chosen: Options = {"redact": self._redact, **options}
        config = options.get("compression") or CompressionConfig()
        if self._summariser is not None and isinstance(config, CompressionConfig) and config.summariser is None:
            chosen["compression"] = replace(config, summariser=self._summariser)
        return chosen

    def exists(self, name: str) -> bool:
        """Return whether a context of this name exists."""
        return self.storage.load(name) is not None

    def delete(self, name: str, *, scrub: bool = False) -> "Erasure":
        """Remove a context with all its pages and history, even a damaged one. Raise `NoSuchContext`.

        Forks stay. Without `scrub`, the bytes stay in the store until they are overwritten; the result says so. With
        `scrub`, the store is rewritten without the bytes that no context reads. See `erase`.
        """
        from quire.maintenance.erasure import delete_context

        return delete_context(self.storage, name, scrub=check_bool(scrub, "scrub"))

    def erase(self, name: str, *, forks: bool = True) -> "Erasure":
        """Remove a context, its forks and every byte of them that the store can reach; report what it cannot reach.

        This removes pages, messages, the journal, the search index, vectors and stored views, and rewrites the store.
        Call `scrub` later if the result is not `scrubbed`. Raise `NoSuchContext`, and `InvalidOperation` with
        `forks=False` if there are forks; then nothing is removed.
        """
        from quire.maintenance.erasure import erase_context

        return erase_context(self.storage, name, forks=check_bool(forks, "forks"))

    def fork(self, name: str, new_name: str, at: str | int | None = None, *, check: bool = False) -> None:
        """Copy a context in its current state, or in that of a checkpoint or a seq. Raise `NoSuchContext`.

        With `check`, all its records are read first: `Corrupt` names a damaged one, and nothing is created.
        """
        if not self.exists(name):
            raise no_such_context(self.storage, name)
        ContextSystem(self.storage, name).fork(new_name, at, check=check)

    def info(self, name: str) -> ContextInfo:
        """Return when a context was created and changed, and its counts, in one small read. Raise `NoSuchContext`."""
        return info_of(self.storage, name)

    def usage(self, name: str) -> ContextUsage:
        """Return the bytes, pages, messages, entries and tokens of a context. This reads all of it, as a stream."""
        return usage_of(self.storage, name)

    def export(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        format: "ExportFormat" = "quire",  # noqa: A002 - the word of the command line too
        overwrite: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Progress:
        """Write one context to a file. Writers of the context do not have to wait.

        The format "quire" is the whole archive with its history, which `import_` reads. "json" and "html" are a copy
        for a person: readable, without PRIVATE segments and without the journal; `pages.load` reads the JSON.

        The file appears when it is complete. Raise `NoSuchContext`, `InvalidOperation` if the file exists,
        `StorageFailure` if it cannot be written, or `Corrupt`, which names the damaged record; then no file is written.
        """
        if format == "quire":
            from quire.maintenance.export import export_context

            return export_context(self.storage, name, path, overwrite=overwrite, progress=progress)
        from quire.maintenance.person_copy import write_person_copy

        return write_person_copy(self.storage, name, path, format, overwrite=overwrite, progress=progress)

    def import_(
        self, path: str | os.PathLike[str], name: str | None = None, *, progress: ProgressCallback | None = None
    ) -> str:
        """Read an exported context, under its own name or another. Return that name. Read all of it or nothing.

        A context that is the same as in the file is left unchanged. Raise `InvalidOperation` if the name belongs to
        another context or to another state of it, or `Corrupt`, which names the damaged place in the file.
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
        """Yield the names of contexts greater than `after`, in order, at most `limit` of them.

        `prefix` selects the names that start with it. `since` and `until` bound the time of the last change, both
        inclusive; with them, the head of every selected context is read.
        """
        first, last = check_moment(since, "since"), check_moment(until, "until")
        if limit is not None:
            check_whole_number(limit, "limit")
        names = self._names(after, prefix)
        if first is not None or last is not None:
            names = (name for name in names if self._changed_within(name, first, last))
        return islice(names, limit)

    def expire(
        self,
        older_than: timedelta | datetime,
        *,
        action: "Action" = "delete",
        folder: str | os.PathLike[str] | None = None,
        prefix: str = "",
        dry_run: bool = False,
        scrub: bool = False,
    ) -> "tuple[Expired, ...]":
        """Remove the contexts that did not change for this long, or since this time. Return the removed contexts.

        `action="archive"` first exports each to a file in `folder` and verifies the file; `import_` reads it. A context
        that changes meanwhile is kept. A damaged one is kept too, and the result has its `problem`. With `dry_run`
        nothing is removed. Without `scrub`, the bytes stay in the store until they are overwritten; with it, the store
        is rewritten at the end. Raise `InvalidValue`, or `StorageFailure` if the store or the folder fails.
        """
        from quire.maintenance.retention import cutoff_of, expire

        check_bool(scrub, "scrub")
        names = self._names("", prefix)
        cutoff = cutoff_of(older_than)
        return expire(self.storage, names, cutoff, action, folder, dry_run=dry_run, scrub=scrub)

    def scrub(self) -> "tuple[Remainder, ...]":
        """Erase the bytes of everything that was deleted or overwritten in this store; return what remains of them.

        The store is rewritten, which takes time and space in proportion to its size.
        """
        from quire.system.scrub import scrub_bytes

        return scrub_bytes(self.storage, None)

    def summarise(self, *, max_seconds: float | None = None, summariser: Summariser | None = None) -> "SummaryReport":
        """Ask the summariser for all pending summaries; store what it returns.

        A summary appears in the view after the next fold of its context, by any handle. The default of `summariser` is
        the summariser of this library. The call stops after `max_seconds`, or after three errors in a row. Call it from
        one process at a time: two would pay twice.
        """
        from quire.view.fold.summary_worker import summarise_pending

        chosen = self._summariser if summariser is None else summariser
        if chosen is None:
            raise InvalidOperation(
                "This library has no summariser.",
                Hint("Library", arguments="where, summariser=…", purpose="to set one"),
            )
        return summarise_pending(self.storage, chosen, max_seconds, self._redact)

    def migrate(
        self,
        target: "StoreLocation | Library",
        *,
        replace: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Progress:
        """Copy every context to another store and verify it. See `migrate`."""
        to = target.storage if isinstance(target, Library) else target
        return migrate(self.storage, to, replace=replace, progress=progress)

    def _names(self, after: str, prefix: str) -> Iterator[str]:
        for field, value in (("after", after), ("prefix", prefix)):
            if not isinstance(value, str):
                raise InvalidValue(f"is {short_repr(value)}; text is needed.", argument=field)
        first: list[str] = []
        with suppress(InvalidOperation):  # a prefix need not be a valid name
            first = [prefix] if after < prefix and self.exists(prefix) else []
        names = list_contexts(self.storage, max(after, prefix))
        return chain(first, takewhile(lambda name: name.startswith(prefix), names))

    def _changed_within(self, name: str, first: int | None, last: int | None) -> bool:
        found = self.storage.load(name)
        updated = decode_head(found.seq, found.head).updated if found else None
        return updated is not None and (first is None or first <= updated) and (last is None or updated <= last)

    def close(self) -> None:
        """Release the storage if this library opened it. If a summariser is still working, that happens afterwards."""
        if self._owns_storage:
            self._owns_storage = False
            release(self.storage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
