"""What every adapter begins with: a context, given or opened, and a framework that is installed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias, Unpack

from quire.context import Context, Options, setup_of
from quire.context import open as open_context
from quire.errors import InvalidValue, NotInstalled, short_repr
from quire.storage.base import Storage

Where: TypeAlias = "Context | Storage | str | os.PathLike[str]"
"""A context that is open already, or where one is kept: a path, a URL or a storage."""


def context_at(where: Where, name: str = "default", **options: Unpack[Options]) -> Context:
    """The context itself, or the one of this name opened there. Close it if you did not have it before.

    Raises `TypeError` for an option that there is not, and `InvalidValue` for options beside a context that is open
    already: they would change nothing.
    """
    setup_of(options)
    if not isinstance(where, Context):
        return open_context(where, name, **options)
    if options:
        raise InvalidValue(
            f"{short_repr(where)} is open already; give {', '.join(sorted(options))} where it is opened."
        )
    return where


@contextmanager
def installed(extra: str) -> Iterator[None]:
    """A block that imports a framework. Raises `NotInstalled` naming what to install if it is not there."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, NotInstalled):
            raise
        raise NotInstalled(
            f"quire.adapters needs {error.name or extra} here ({error}): pip install 'quire[{extra}]'.",
            name=error.name,
        ) from error
