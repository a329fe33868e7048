"""A page record in another place, for tests that damage stores."""

from quire.core.records import Gone, decode_page, encode_page
from quire.storage.base import PAGE, Put, Record


def moved(record: Record, group: int | None, order: bytes) -> Put:
    """Return the write that puts a page record into another place, with a checksum that fits."""
    page = decode_page(record)
    value = encode_page(record.key, page if isinstance(page, Gone) else page.header, group, order)
    return Put(PAGE, record.key, value, group, order)
