"""S3Storage over obstore's store in memory: it counts requests, and chunks can be tiny."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from obstore.store import MemoryStore

from quire import S3Storage
from quire.storage.s3 import chunks, commit
from quire.storage.s3.client import Objects


class CountingObjects(Objects):
    """Objects in memory that count the requests and the bytes that were read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), "store", "memory")
        self.read = 0

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        self.read += stop - start
        return super().get_range(key, start, stop)

    @property
    def total(self) -> int:
        """The number of requests."""
        return sum(self.requests.values())

    @contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        """Count the requests of a block by kind, with `total` and `read` (bytes)."""
        before, read = self.requests.copy(), self.read
        sent: dict[str, int] = {}
        yield sent
        sent |= {kind: count - before[kind] for kind, count in self.requests.items() if count > before[kind]}
        sent["total"], sent["read"] = sum(sent.values()), self.read - read

    def in_another_process(self) -> "CountingObjects":
        """The same objects with counts of their own."""
        other = CountingObjects()
        other._store = self._store
        return other

    def keys(self, prefix: str = "data") -> list[str]:
        """The keys below a prefix."""
        return [listed.key for listed in self.list(prefix)]


@pytest.fixture
def objects() -> CountingObjects:
    return CountingObjects()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sizes so small that a few commits produce many runs, chunks and blocks."""
    monkeypatch.setattr(commit, "LOG_BYTES", 600)
    monkeypatch.setattr(commit, "MERGE_BYTES", 4_000)
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 300)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2_000)
    monkeypatch.setattr(chunks, "_WHOLE_BYTES", 500)
    monkeypatch.setattr(chunks, "_TAIL_BYTES", 200)
    monkeypatch.setattr(chunks, "_AHEAD_BYTES", 1_000)


def open_engine(objects: CountingObjects, **options: object) -> S3Storage:
    """Return a storage that compacts inline, so that every run of a test does the same."""
    return S3Storage.over(objects, **{"upkeep": "inline", **options})  # type: ignore[arg-type]
