"""The contract of storages on PostgreSQL: by URL, by a connection of the caller, and by a pool."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from quire.next.storage.contract import Storage
from quire.next.storage.postgres import PostgresStorage
from quire.next.testing import StorageContract
from tests.servers.postgres import new_schema, postgres_url, server_url


@pytest.mark.servers
class TestPostgres(StorageContract):
    def setup_method(self) -> None:
        super().setup_method()
        self._schemas: dict[Path, str] = {}

    def url(self, place: Path) -> str:
        return postgres_url(schema=self._schemas.setdefault(place, new_schema()))

    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(self.url(place))


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
    """A pool of the caller."""

    def setup_method(self) -> None:
        super().setup_method()
        self._pool = pytest.importorskip("psycopg_pool").ConnectionPool(server_url(), min_size=1, max_size=8, open=True)

    def teardown_method(self) -> None:
        super().teardown_method()
        self._pool.close()

    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(self._pool, schema=self._schemas.setdefault(place, new_schema()))
