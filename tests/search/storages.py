"""A storage of each kind, and a short way to search in it."""

from pathlib import Path
from typing import Any

from quire import ContextSystem, PostgresStorage, Storage
from tests.marks import long, servers
from tests.servers.postgres import postgres_url
from tests.stores import make

BACKENDS = ["memory", "sqlite", *long("file"), *servers("postgres")]


def storage_of(kind: str, folder: Path) -> Storage:
    """Return a new storage of a kind in a folder."""
    return PostgresStorage(postgres_url()) if kind == "postgres" else make(kind, folder / kind)


def found(book: ContextSystem, query: str, limit: int = 50, **filters: Any) -> list[str]:
    """Return the indices of the hits."""
    return [hit.index for hit in book.find(query, limit, **filters)]
