"""The file backend, and the registration of the function that decodes its records for the readable files.

The log of a context is bytes. The readable files need decoded records, but this package cannot decode them. So
`quire.core` registers a describer when it is imported. A process without a describer does not write the readable files;
the next process with one writes them.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from quire.storage.base import Family, Record

Lookup = Callable[[Family, int], Record | None]
"""Returns a record of the context, or None."""


class PageFile(Struct, frozen=True):
    """The readable form of one page: the JSON of its header (None if it was removed), and its text."""

    segment: str
    index: str
    header: dict[str, Any] | None
    text: Callable[[], str]
    """Reads and decodes the text; called only if `header["body"]` changed."""


class Description(Protocol):
    """Decodes the records of one context at one head."""

    def segments(self) -> list[dict[str, Any]]:
        """Return the JSON of all segments, in order. Raises `Corrupt`."""

    def page(self, key: int) -> PageFile:
        """Return the readable form of a page. Raises `Corrupt`."""


Describer = Callable[[bytes, Lookup], Description]
"""Makes a description from the head of a context and a function that returns its records. Raises `Corrupt`."""

_describer: Describer | None = None


def register_describer(describer: Describer) -> None:
    """Use this describer for the readable files of all file storages in the process."""
    global _describer
    _describer = describer


def current_describer() -> Describer | None:
    """Return the registered describer, if there is one."""
    return _describer
