"""The backends that need no server, by name."""

from pathlib import Path

from quire import FileStorage, MemoryStorage, SQLiteStorage, Storage
from quire.core.records import Gone, decode_page, encode_page
from quire.storage.base import PAGE, Put, Record

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


def moved(record: Record, group: int | None, order: bytes) -> Put:
    """Return the write that puts a page record into another place, with a checksum that fits."""
    page = decode_page(record)
    value = encode_page(record.key, page if isinstance(page, Gone) else page.header, group, order)
    return Put(PAGE, record.key, value, group, order)
