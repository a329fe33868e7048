"""The same pages on every backend, and helpers that search them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire import ContextSystem, FileStorage, MemoryStorage, PostgresStorage, SQLiteStorage, Storage
from tests.books import new_book
from tests.marks import broad
from tests.servers.postgres import postgres_url

BACKENDS = ("memory", "file", "sqlite", "postgres")
BRIEF = ["memory", "sqlite", *broad("file", "postgres")]
"""The backends for tests with very many queries. PostgreSQL is slow there: each query is a round trip."""


def storage_of(kind: str, folder: Path) -> Storage:
    """Return a new storage of a kind in a folder."""
    if kind == "memory":
        return MemoryStorage()
    if kind == "postgres":
        return PostgresStorage(postgres_url())
    return FileStorage(folder / "files") if kind == "file" else SQLiteStorage(folder / "book.db")


@contextmanager
def shelves(folder: Path, **options: Any) -> Iterator[list[ContextSystem]]:
    """Return a new context on each backend."""
    books = []
    for kind in BACKENDS:
        (folder / kind).mkdir(parents=True)
        books.append(new_book(storage=storage_of(kind, folder / kind), **options))
    try:
        yield books
    finally:
        for book in books:
            book.storage.close()


def found(book: ContextSystem, query: str, limit: int = 50, **filters: Any) -> list[str]:
    """Return the indices of the hits."""
    return [hit.index for hit in book.find(query, limit, **filters)]
