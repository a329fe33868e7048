"""The contract of storages on each of them."""

import sqlite3
from pathlib import Path

import apsw

from quire.next.storage.contract import Storage
from quire.next.storage.memory import MemoryStorage
from quire.next.storage.sqlite import SQLiteConnectionStorage, SQLiteStorage
from quire.next.testing import StorageContract


class TestMemory(StorageContract):
    persistent = False
    closes = False

    def setup_method(self) -> None:
        super().setup_method()
        self._stores: dict[Path, Storage] = {}

    def open_storage(self, place: Path) -> Storage:
        return self._stores.setdefault(place, MemoryStorage())


class TestSQLite(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return SQLiteStorage(place)


class TestConnection(StorageContract):
    """A connection of `sqlite3` of the caller, for each handle."""

    def open_storage(self, place: Path) -> Storage:
        connection = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        return SQLiteConnectionStorage(connection)


class TestSharedConnection(StorageContract):
    """One connection of `apsw` for all handles, to a database in memory."""

    persistent = False

    def setup_method(self) -> None:
        super().setup_method()
        self._connections: dict[Path, apsw.Connection] = {}

    def open_storage(self, place: Path) -> Storage:
        return SQLiteConnectionStorage(self._connections.setdefault(place, apsw.Connection(":memory:")))
