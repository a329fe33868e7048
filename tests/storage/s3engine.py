"""The engine of S3Storage without a server: obstore's store in memory, watched, and chunks that are tiny."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from obstore.store import MemoryStore

from quire.storage.s3 import S3Storage, chunks
from quire.storage.s3 import chunks as runs
from quire.storage.s3 import flush as sealing
from quire.storage.s3.client import Objects


class Watched(Objects):
    """Objects in memory that say how many bytes were read, and in how many requests."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), "store", "memory")
        self.read = 0

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        self.read += stop - start
        return super().get_range(key, start, stop)

    @property
    def total(self) -> int:
        """How many requests were sent."""
        return sum(self.requests.values())

    @contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        """What a block sends, by kind; `total` and `read` too."""
        before, read = self.requests.copy(), self.read
        sent: dict[str, int] = {}
        yield sent
        sent |= {kind: count - before[kind] for kind, count in self.requests.items() if count > before[kind]}
        sent["total"], sent["read"] = sum(sent.values()), self.read - read

    def beside(self) -> "Watched":
        """The same objects as another process has them: with counts of its own."""
        other = Watched()
        other._store = self._store
        return other

    def keys(self, prefix: str = "data") -> list[str]:
        """The keys below a prefix."""
        return [listed.key for listed in self.list(prefix)]


@pytest.fixture
def objects() -> Watched:
    return Watched()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a few commits make runs, chunks and blocks in number."""
    monkeypatch.setattr(sealing, "LOG_BYTES", 600)
    monkeypatch.setattr(sealing, "MERGE_BYTES", 4_000)
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 300)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2_000)
    monkeypatch.setattr(runs, "_WHOLE", 500)
    monkeypatch.setattr(runs, "_TAIL", 200)
    monkeypatch.setattr(runs, "_AHEAD", 1_000)


def opened(objects: Watched, **options: object) -> S3Storage:
    """A handle that does its upkeep in the commits, so that what happens is the same every time."""
    return S3Storage.over(objects, **{"upkeep": "inline", **options})  # type: ignore[arg-type]
