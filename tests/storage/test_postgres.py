"""PostgreSQL passes the contract, and keeps what is its own: addresses, tenants, roles, schemas, errors."""

from hashlib import sha256
from pathlib import Path

import pytest

from quire import Storage
from quire.storage.postgres import PostgresStorage
from quire.testing import StorageContract
from tests.servers.postgres import postgres_url

NEVER_QUICK = ()


class TestPostgres(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(postgres_url(tenant=sha256(str(place).encode()).hexdigest()))

    @pytest.mark.slow
    def test_whatever_is_done_to_a_family_of_forks_memory_agrees(self) -> None:
        super().test_whatever_is_done_to_a_family_of_forks_memory_agrees()

    @pytest.mark.slow
    def test_forks_of_forks_can_be_dropped_in_any_order(self) -> None:
        super().test_forks_of_forks_can_be_dropped_in_any_order()
