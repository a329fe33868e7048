"""Opening a storage by URL or path."""

import os
from pathlib import Path

from quire.errors import InvalidValue, StorageFailure, shown
from quire.storage.base import Storage
from quire.storage.file import FileStorage
from quire.storage.memory import MemoryStorage
from quire.storage.sqlite import Durability, SQLiteStorage

_OPENERS: dict[str, type[SQLiteStorage | FileStorage]] = {"sqlite": SQLiteStorage, "file": FileStorage}
_FORMS = "memory:, file:DIR, sqlite:FILE or a path"


def open_storage(where: str | os.PathLike[str], *, durability: Durability = "normal", create: bool = True) -> Storage:
    """The storage a URL or path names: `memory:`, `file:DIR`, `sqlite:FILE`, or a path for SQLite.

    With `create=False` one that is not there is `StorageFailure` instead of a new one.
    """
    opener, path = _parse(where)
    if opener is None:
        return MemoryStorage()
    if not create and not path.exists():
        raise StorageFailure(f"There is no store at {str(path)!r}.")
    return opener(path, durability=durability)


def _parse(where: str | os.PathLike[str]) -> tuple[type[SQLiteStorage | FileStorage] | None, Path]:
    if isinstance(where, os.PathLike):
        return SQLiteStorage, Path(where)
    if not isinstance(where, str) or not where.strip() or "\0" in where:
        raise InvalidValue(f"Cannot open {shown(where)}; give {_FORMS}.")
    scheme, colon, rest = where.partition(":")
    if not colon or len(scheme) == 1:  # no scheme, or a drive letter
        return SQLiteStorage, Path(where)
    if scheme == "memory" and not rest:
        return None, Path()
    if scheme in _OPENERS and _local(rest):
        return _OPENERS[scheme], Path(_local(rest))
    raise InvalidValue(f"Cannot open {shown(where)}; give {_FORMS}.")


def _local(rest: str) -> str:
    """The path of `scheme:path`, `scheme://path` and `scheme:///path`."""
    return rest.removeprefix("//")
