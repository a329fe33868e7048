"""S3Storage over a real server: the contract."""

from pathlib import Path

from quire import Storage
from quire.testing import StorageContract
from tests.servers.s3 import fresh_prefix, open_s3


class TestS3(StorageContract):
    def setup_method(self) -> None:
        super().setup_method()
        self._prefixes: dict[Path, str] = {}

    def open_storage(self, place: Path) -> Storage:
        return open_s3(self._prefixes.setdefault(place, fresh_prefix()))
