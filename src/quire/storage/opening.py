"""Opening a storage by URL or path."""

import os
from pathlib import Path

from quire.errors import InvalidValue, shown
from quire.storage.base import Storage
from quire.storage.file import FileStorage
from quire.storage.memory import MemoryStorage
from quire.storage.sqlite import Durability, SQLiteStorage

_FORMS = "memory:, file:DIR, sqlite:FILE or a path"


def open_storage(where: str | os.PathLike[str], *, durability: Durability = "normal") -> Storage:
    """The storage a URL or path names: `memory:`, `file:DIR`, `sqlite:FILE`, or a path for SQLite."""
    if isinstance(where, os.PathLike):
        return SQLiteStorage(Path(where), durability=durability)
    if not isinstance(where, str) or not where.strip() or "\0" in where:
        raise InvalidValue(f"Cannot open {shown(where)}; give {_FORMS}.")
    scheme, colon, rest = where.partition(":")
    if not colon or len(scheme) == 1:  # no scheme, or a drive letter
        return SQLiteStorage(where, durability=durability)
    if scheme == "memory" and not rest:
        return MemoryStorage()
    if scheme == "file" and _local(rest):
        return FileStorage(_local(rest), durability=durability)
    if scheme == "sqlite" and _local(rest):
        return SQLiteStorage(_local(rest), durability=durability)
    raise InvalidValue(f"Cannot open {shown(where)}; give {_FORMS}.")


def _local(rest: str) -> str:
    """The path of `scheme:path`, `scheme://path` and `scheme:///path`."""
    return rest.removeprefix("//")
