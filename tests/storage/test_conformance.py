"""Every backend passes the contract that ships with the package."""

import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import apsw
import psycopg
import pytest

from quire import FileStorage, MemoryStorage, PostgresStorage, SQLiteStorage, Storage
from quire.storage.sqlite.connection import SQLiteConnectionStorage
from quire.testing import StorageContract
from tests.servers.postgres import postgres_url, server_url
from tests.servers.s3 import fresh_prefix, open_s3, server

Contract = TypeVar("Contract", bound=type[StorageContract])
FAMILIES = "test_whatever_is_done_to_a_family_of_forks_memory_agrees"
DROPS = "test_forks_of_forks_can_be_dropped_in_any_order"
KEYS = "test_a_fork_takes_only_the_keys_below"


def slowly(*names: str) -> Callable[[Contract], Contract]:
    """Leave these tests of a class, which read everything many times, to a run with `--long`."""

    def change(case: Contract) -> Contract:
        for name in names:
            inherited = getattr(case, name)

            def run(self: Any, inherited: Any = inherited) -> None:
                inherited(self)

            setattr(case, name, pytest.mark.slow(run))
        return case

    return change


@slowly(FAMILIES)
class TestMemory(StorageContract):
    persistent = False
    closes = False

    def setup_method(self) -> None:
        super().setup_method()
        self._stores: dict[Path, MemoryStorage] = {}

    def open_storage(self, place: Path) -> Storage:
        return self._stores.setdefault(place, MemoryStorage())


@slowly(FAMILIES, DROPS, KEYS)
class TestFile(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return FileStorage(place)


@pytest.mark.slow
class TestFileWithFullDurability(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return FileStorage(place, durability="full")


@slowly(FAMILIES, DROPS, KEYS)
class TestSQLite(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return SQLiteStorage(place)


@pytest.mark.slow
class TestSQLiteWithFullDurability(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return SQLiteStorage(place, durability="full")


class Connected(StorageContract):
    """The contract over a connection of the caller, which the test closes."""

    def setup_method(self) -> None:
        super().setup_method()
        self.opened: list[Any] = []

    def teardown_method(self) -> None:
        super().teardown_method()
        for connection in self.opened:
            connection.close()

    def keep(self, connection: Any) -> Any:
        self.opened.append(connection)
        return connection


@pytest.mark.slow
class TestStandardLibraryConnection(Connected):
    def open_storage(self, place: Path) -> Storage:
        connection = self.keep(sqlite3.connect(place, check_same_thread=False))
        connection.execute("CREATE TABLE IF NOT EXISTS message (text)")
        return SQLiteConnectionStorage(connection)


@pytest.mark.slow
class TestApswConnection(Connected):
    def open_storage(self, place: Path) -> Storage:
        connection = self.keep(apsw.Connection(str(place)))
        connection.set_busy_timeout(5_000)
        return SQLiteConnectionStorage(connection)


def tenant_of(place: Path) -> str:
    return sha256(str(place).encode()).hexdigest()


@pytest.mark.servers
@slowly(
    FAMILIES,
    DROPS,
    KEYS,
    "test_a_fork_holds_everything_but_the_journal",
    "test_what_either_deletes_the_other_keeps",
)
class TestPostgres(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(postgres_url(tenant=tenant_of(place)))


@pytest.mark.servers
@pytest.mark.slow
class TestPostgresConnection(Connected):
    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(self.keep(psycopg.connect(server_url())), tenant=tenant_of(place))


@pytest.mark.servers
@slowly(FAMILIES, DROPS, "test_threads_with_a_handle_each_lose_nothing", "test_threads_on_one_context_lose_nothing")
class TestS3(StorageContract):
    def setup_method(self) -> None:
        server()
        super().setup_method()
        self._prefixes: dict[Path, str] = {}

    def open_storage(self, place: Path) -> Storage:
        return open_s3(self._prefixes.setdefault(place, fresh_prefix()))


def test_a_contract_without_a_backend_says_what_to_override() -> None:
    with pytest.raises(NotImplementedError):
        StorageContract().open_storage(Path("anywhere"))
