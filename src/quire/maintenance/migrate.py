"""Copying contexts from one store to another."""

import os
from collections.abc import Iterable

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts
from quire.errors import InvalidOperation, names_options
from quire.storage.base import Storage, SupportsPath
from quire.storage.urls import StoreLocation, storage_at


@names_options
def migrate(
    source: StoreLocation,
    target: StoreLocation,
    contexts: str | Iterable[str] | None = None,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
) -> Progress:
    """Copy one, several or (None) all contexts from one store to another; return the totals.

    Everything is copied: pages, history, vectors. A fork becomes a complete context: it shares nothing in the target.
    A context that cannot be copied does not stop the others; the error names it when all others are copied:

    - `Corrupt`: the context is damaged or has lost its head, or a copied record reads back differently.
    - `InvalidOperation`: the name is taken in the target (by an older copy, unless `replace`), or the source context
      is an unfinished copy.
    - `Conflict`: the context changed during the copy.

    Raises `InvalidOperation` if source and target are the same store, `StorageFailure` if the source does not exist.
    Call it again to resume an interrupted copy.
    """
    from_, owns_source = storage_at(source, create=False)
    try:
        to, owns_target = storage_at(target)
        try:
            if _identity(from_) == _identity(to):
                raise InvalidOperation("The source and the target are the same store; give another target.")
            return copy_contexts(from_, to, contexts, replace=replace, progress=progress)
        finally:
            if owns_target:
                to.close()
    finally:
        if owns_source:
            from_.close()


def _identity(storage: Storage) -> object:
    """Return a value that is equal for two handles on one store, as far as it can be known."""
    if isinstance(storage, SupportsPath):
        found = os.stat(storage.path)
        return found.st_dev, found.st_ino
    return repr(storage) if type(storage).__module__.startswith("quire.storage.") else id(storage)
