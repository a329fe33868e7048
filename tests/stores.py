"""The backends that need no server, by name."""

from pathlib import Path

from quire import FileStorage, MemoryStorage, SQLiteStorage, Storage

BACKENDS = ["memory", "file", "sqlite"]


def make(backend: str, place: Path) -> Storage:
    """Return a storage of a kind at a place; the same place is the same store, except for memory."""
    match backend:
        case "file":
            return FileStorage(place)
        case "sqlite":
            return SQLiteStorage(place)
        case _:
            return MemoryStorage()
