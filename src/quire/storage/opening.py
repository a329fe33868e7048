"""Opening a storage by URL or path."""

import os
import re
from pathlib import Path

from quire.errors import InvalidValue, StorageFailure, shown
from quire.storage.base import Durability, Storage, check_durability, check_path, check_storage
from quire.storage.file import FileStorage
from quire.storage.memory import MemoryStorage
from quire.storage.sqlite import SQLiteStorage

_OPENERS: dict[str, type[SQLiteStorage | FileStorage]] = {"sqlite": SQLiteStorage, "file": FileStorage}
_FORMS = "memory:, file:DIR, sqlite:FILE, postgresql://USER@HOST/DATABASE, s3://bucket/prefix or a path"


def open_storage(where: str | os.PathLike[str], *, durability: Durability = "normal", create: bool = True) -> Storage:
    """The storage a URL or path names.

    `memory:`, `file:DIR`, `sqlite:FILE` or a path for SQLite, `postgresql://…`, `s3://bucket/prefix`.

    With `create=False` one that is not there is `StorageFailure` instead of a new one.
    """
    check_durability(durability)
    if isinstance(where, str) and where.startswith("s3:"):
        from quire.storage.s3 import S3Storage

        return S3Storage.from_url(where, durability=durability, create=create)
    if isinstance(where, str) and where.startswith(("postgresql:", "postgres:")):
        from quire.storage.postgres import PostgresStorage

        return PostgresStorage(where, durability=durability, create=create)
    opener, path = _parse(where)
    if opener is None:
        return MemoryStorage()
    if not create and not path.exists():
        raise StorageFailure(f"There is no store at {str(path)!r}.")
    return opener(path, durability=durability)


def storage_at(
    where: str | os.PathLike[str] | Storage, *, durability: Durability = "normal", create: bool = True
) -> tuple[Storage, bool]:
    """The storage a URL or path names, opened, or the storage given; and whether it was opened here."""
    if isinstance(where, str | os.PathLike):
        return open_storage(where, durability=durability, create=create), True
    return check_storage(where), False


def _parse(where: object) -> tuple[type[SQLiteStorage | FileStorage] | None, Path]:
    try:
        return _parse_forms(where)
    except InvalidValue:
        raise InvalidValue(f"Cannot open {shown(_without_password(where))}; give {_FORMS}.") from None


def _without_password(where: object) -> object:
    """What may be quoted of a URL that is not understood."""
    return re.sub(r"(://[^/@:]*):.*@", r"\1@", where) if isinstance(where, str) else where


def _parse_forms(where: object) -> tuple[type[SQLiteStorage | FileStorage] | None, Path]:
    if isinstance(where, os.PathLike):
        return SQLiteStorage, check_path(where)
    scheme, colon, rest = where.partition(":") if isinstance(where, str) else ("", "", "")
    if not colon or (len(scheme) == 1 and os.name == "nt"):  # no scheme, or a drive letter
        return SQLiteStorage, check_path(where)
    if scheme == "memory" and not rest:
        return None, Path()
    if scheme in _OPENERS:  # scheme:path, scheme://path and scheme:///path
        return _OPENERS[scheme], check_path(rest.removeprefix("//"))
    raise InvalidValue(f"Unknown scheme {scheme!r}.")
