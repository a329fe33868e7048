"""Every backend passes the contract that ships with the package."""

from pathlib import Path

import pytest

from quire import FileStorage, MemoryStorage, SQLiteStorage, Storage
from quire.testing import StorageContract


class TestMemory(StorageContract):
    persistent = False
    closes = False

    def setup_method(self) -> None:
        super().setup_method()
        self._stores: dict[Path, MemoryStorage] = {}

    def open_storage(self, place: Path) -> Storage:
        return self._stores.setdefault(place, MemoryStorage())


class TestFile(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return FileStorage(place)


@pytest.mark.slow
class TestFileWithFullDurability(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return FileStorage(place, durability="full")


class TestSQLite(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return SQLiteStorage(place)


@pytest.mark.slow
class TestSQLiteWithFullDurability(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return SQLiteStorage(place, durability="full")


def test_a_contract_without_a_backend_says_what_to_override() -> None:
    case = StorageContract()
    with pytest.raises(NotImplementedError, match="open_storage"):
        case.open_storage(Path("anywhere"))
