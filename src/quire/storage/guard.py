"""The lock of an SQLite storage, and its errors in our words."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType

import apsw

from quire.errors import Busy, Corrupt, QuireError, StorageClosed, StorageFailure, shown


class Guard:
    """Holds the storage's lock for a block and turns SQLite's errors into ours."""

    def __init__(self, path: Path) -> None:
        self._lock = RLock()
        self._path = str(path)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if isinstance(error, apsw.Error | UnicodeDecodeError):
            raise self._ours(error) from error

    @contextmanager
    def errors(self) -> Iterator[None]:
        """A block whose errors of SQLite's become ours, without the lock."""
        try:
            yield
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._ours(error) from error

    def _ours(self, error: apsw.Error | UnicodeDecodeError) -> QuireError:
        match error:
            case UnicodeDecodeError():
                return Corrupt(f"{self._path!r} is damaged: a text in it cannot be read ({shown(error.object)}).")
            case apsw.BusyError() | apsw.LockedError():
                return Busy(f"{self._path!r} is locked by another writer: retry.")
            case apsw.CorruptError() | apsw.NotADBError():
                return Corrupt(f"{self._path!r} is damaged or no SQLite file: {error}.")
            case apsw.SQLError() if "no such table" in str(error):
                return Corrupt(f"{self._path!r} is damaged: {error}.")
            case apsw.ConnectionClosedError() | apsw.CursorClosedError():
                return StorageClosed(f"The storage {self._path!r} is closed: open it again.")
            case _:
                return StorageFailure(f"{self._path!r}: {error}.")
