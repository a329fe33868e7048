"""The contract over S3Storage on a real server; with --long also over objects in memory with tiny chunks."""

from pathlib import Path

import pytest

from quire import Storage
from quire.testing import StorageContract
from tests.servers.s3 import fresh_prefix, open_s3, server
from tests.storage.s3_engine import CountingObjects, open_engine, tiny

__all__ = ["tiny"]


class TestS3(StorageContract):
    def setup_method(self) -> None:
        server()
        super().setup_method()
        self._prefixes: dict[Path, str] = {}

    def open_storage(self, place: Path) -> Storage:
        return open_s3(self._prefixes.setdefault(place, fresh_prefix()))

    @pytest.mark.slow
    def test_whatever_is_done_to_a_family_of_forks_memory_agrees(self) -> None:
        """Sends thousands of requests. In short runs, test_s3_engine.py covers it."""
        super().test_whatever_is_done_to_a_family_of_forks_memory_agrees()

    @pytest.mark.slow
    def test_threads_with_a_handle_each_lose_nothing(self) -> None:
        """Sends thousands of requests. test_s3_race.py covers it with processes."""
        super().test_threads_with_a_handle_each_lose_nothing()


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
class TestS3Engine(StorageContract):
    def setup_method(self) -> None:
        super().setup_method()
        self._stores: dict[Path, CountingObjects] = {}

    def open_storage(self, place: Path) -> Storage:
        return open_engine(self._stores.setdefault(place, CountingObjects()).in_another_process(), cache_bytes=100_000)
