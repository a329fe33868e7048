"""Open a storage by its URL, its path or an open database connection, and close it.

Whoever opened a storage calls `release` instead of closing it. A worker that stores a result later calls `hold` and
then `release`. The last one closes the storage.
"""

import os
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import apsw

from quire.errors import Hint, InvalidValue, StorageFailure, names_options, short_repr
from quire.storage.address import display_bucket, parse
from quire.storage.base import Durability, check_durability, check_storage
from quire.storage.contract import Storage
from quire.storage.memory import MemoryStorage
from quire.storage.paths import check_path, mask_secrets
from quire.storage.sqlite import SQLiteStorage

if TYPE_CHECKING:
    import sqlite3

    import psycopg

    from quire.storage.pg_connections import ConnectionPool

    DatabaseConnection = sqlite3.Connection | apsw.Connection | psycopg.Connection[Any] | ConnectionPool

StoreLocation: TypeAlias = Union[str, os.PathLike[str], Storage, "DatabaseConnection"]
"""A store as `quire.open` takes it: a URL, a path, a storage object, or a connection to a database."""

_WITH_PATH = ("sqlite", "file")
_POSTGRES = ("postgresql", "postgres")
_POSTGRES_DRIVERS = ("psycopg", "psycopg_pool", "psycopg2", "asyncpg")
_FORMS = "memory:, file:DIR, sqlite:FILE, postgresql://USER@HOST/DATABASE, s3://bucket/prefix or a path"


@names_options
def open_storage(where: str | os.PathLike[str], *, durability: Durability = "normal", create: bool = True) -> Storage:
    """Open the storage that a URL or path names.

    `memory:`, `file:DIR`, `sqlite:FILE` or a path for SQLite, `postgresql://…`, `s3://bucket/prefix`.

    With `create=False`, raise `StorageFailure` if the store does not exist.
    """
    check_durability(durability)
    where = _plain_text(where)
    scheme = _scheme(where)
    if scheme == "s3":
        from quire.storage.s3 import S3Storage

        return S3Storage.from_url(str(where), durability=durability, create=create)
    if scheme in _POSTGRES:
        from quire.storage.postgres import PostgresStorage

        return PostgresStorage(str(where), durability=durability, create=create)
    kind, path = _parse(where)
    if kind == "memory":
        return MemoryStorage()
    if not create and not path.exists():
        hint = Hint("Library", arguments="create=True", purpose="to create it")
        raise StorageFailure(f"There is no store at {str(path)!r}.", hint)
    if kind == "file":
        from quire.storage.file import FileStorage

        return FileStorage(path, durability=durability)
    return SQLiteStorage(path, durability=durability)


def storage_at(where: StoreLocation, *, durability: Durability = "normal", create: bool = True) -> tuple[Storage, bool]:
    """Return the storage at a URL or path, in a database, or the given storage, and whether it was opened here."""
    if isinstance(where, str | os.PathLike):
        return open_storage(where, durability=durability, create=create), True
    storage = _use_connection(where, durability, create)
    return (check_storage(where), False) if storage is None else (storage, True)


def existing_storage(where: StoreLocation) -> tuple[Storage, bool]:
    """Do the same as `storage_at` for a store that is only read: an error does not suggest to create it."""
    try:
        return storage_at(where, create=False)
    except StorageFailure as error:
        raise type(error)(error.fact, *(hint for hint in error.hints if hint.call != "Library")) from error


def is_new_path(where: object) -> bool:
    """Return whether a store at this path or URL would be a new file or folder."""
    if not isinstance(where, str | os.PathLike):
        return False
    where = _plain_text(where)
    return _scheme(where) in ("", *_WITH_PATH) and not _parse(where)[1].exists()


def is_memory(where: object) -> bool:
    """Return whether a URL names a store in memory."""
    return _scheme(where) == "memory"


def _use_connection(where: Any, durability: Durability, create: bool) -> Storage | None:
    """Return a storage in the database of an open connection; None if the value is no connection of a known driver."""
    stdlib = sys.modules.get("sqlite3")  # no connection of a driver exists before the driver is imported
    if isinstance(where, apsw.Connection) or (stdlib is not None and isinstance(where, stdlib.Connection)):
        from quire.storage.sqlite import SQLiteConnectionStorage

        return SQLiteConnectionStorage(where, durability=durability, create=create)
    if any(base.__module__.partition(".")[0] in _POSTGRES_DRIVERS for base in type(where).__mro__):
        from quire.storage.postgres import PostgresStorage

        return PostgresStorage(where, durability=durability, create=create)
    return None


def mask_address(where: object) -> str:
    """Return an address without its password. An address that cannot be parsed is cut."""
    text = where if isinstance(where, str) else str(where)
    try:
        if _scheme(where) == "s3":
            return display_bucket(text)
        if _scheme(where) in _POSTGRES:
            return parse(text).name
    except InvalidValue:
        pass
    return mask_secrets(text)


def _plain_text(where: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return an object of a subclass of `str` as plain text."""
    return str.__str__(where) if isinstance(where, str) else where


def _scheme(where: object) -> str:
    """Return the scheme of a URL in lower case; empty for a path."""
    scheme, colon, _ = where.partition(":") if isinstance(where, str) else ("", "", "")
    return "" if not colon or (len(scheme) == 1 and os.name == "nt") else scheme.lower()  # a drive letter


def _parse(where: object) -> tuple[str, Path]:
    """Return the kind of a store without a server, and its path."""
    scheme = _scheme(where)
    rest = str(where)[len(scheme) + 1 :] if scheme else ""
    with suppress(InvalidValue):
        if not scheme:
            return "sqlite", check_path(where)
        if scheme == "memory" and not rest:
            return "memory", Path()
        if scheme in _WITH_PATH:  # scheme:path, scheme://path and scheme:///path
            return scheme, check_path(rest.removeprefix("//"))
    quoted = mask_address(where) if isinstance(where, str | os.PathLike) else where
    raise InvalidValue(f"Cannot open {short_repr(quoted)}; give {_FORMS}.")


_holds: Counter[int] = Counter()
_lock = threading.Lock()


def hold(storage: Storage) -> None:
    """Keep a storage open until `release` is called. Holds are counted."""
    with _lock:
        _holds[id(storage)] += 1


def release(storage: Storage) -> None:
    """End one `hold`, or the use of a storage by its opener: whoever is last closes it."""
    with _lock:
        held = _holds.pop(id(storage), 0)
        if held > 1:
            _holds[id(storage)] = held - 1
    if not held:
        storage.close()
