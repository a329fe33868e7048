"""The same pages on every backend, and how they are searched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire import ContextSystem, FileStorage, MemoryStorage, SQLiteStorage, Storage
from tests.books import new_book

BACKENDS = ("memory", "file", "sqlite")


def storage_of(kind: str, folder: Path) -> Storage:
    """A new storage of a kind in a folder."""
    if kind == "memory":
        return MemoryStorage()
    return FileStorage(folder / "files") if kind == "file" else SQLiteStorage(folder / "book.db")


@contextmanager
def shelves(folder: Path, **options: Any) -> Iterator[list[ContextSystem]]:
    """One new book on each backend."""
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
    """The indices of the hits."""
    return [hit.index for hit in book.find(query, limit, **filters)]
