"""The contract of storages on each of them. Those with a server are given by URL, by connection and by pool."""

import sqlite3
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from quire import MemoryStorage, PostgresStorage, SQLiteStorage
from quire.storage.contract import Storage
from quire.storage.sqlite import SQLiteConnectionStorage
from quire.testing import StorageContract
from tests.servers.postgres import new_schema, postgres_url, server_url


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


@pytest.mark.servers
class TestPostgres(StorageContract):
    def setup_method(self) -> None:
        super().setup_method()
        self._schemas: dict[Path, str] = {}

    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(postgres_url(schema=self._schemas.setdefault(place, new_schema())))


@pytest.mark.servers
class TestPostgresConnection(TestPostgres):
    """A connection of the caller for each handle, with settings that quire must not depend on."""

    def setup_method(self) -> None:
        super().setup_method()
        self._connections: list[psycopg.Connection[Any]] = []

    def teardown_method(self) -> None:
        super().teardown_method()
        for connection in self._connections:
            connection.close()

    def open_storage(self, place: Path) -> Storage:
        schema = self._schemas.setdefault(place, new_schema())
        self._connections.append(psycopg.connect(server_url(), row_factory=psycopg.rows.dict_row))
        return PostgresStorage(self._connections[-1], schema=schema)


@pytest.mark.servers
class TestPostgresPool(TestPostgres):
    def setup_method(self) -> None:
        super().setup_method()
        self._pool = pytest.importorskip("psycopg_pool").ConnectionPool(server_url(), min_size=1, max_size=8, open=True)

    def teardown_method(self) -> None:
        super().teardown_method()
        self._pool.close()

    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(self._pool, schema=self._schemas.setdefault(place, new_schema()))
