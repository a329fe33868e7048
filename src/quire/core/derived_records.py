"""Derived records: layouts, sheets and vectors. They are made from the pages, and made again if they are lost."""

from enum import IntEnum
from typing import Final

from msgspec import Struct

from quire.core.records import NO_MARK, ContextMark, decoder_of, page_number
from quire.storage.base import MAX_KEY


class ItemForm(IntEnum):
    """How an item of a layout is shown: a page in full or as its line, an open folder, or several pages in one line."""

    WHOLE = 0
    LINE = 1
    FOLDER = 2
    RUN = 3


class LayoutItem(Struct, frozen=True, array_like=True, gc=False):
    """One item of a segment in the view. A run has the keys of its first and last page, and its line as `text`.

    `clip` is the number of characters of a line that is too long; `pages` is the number of pages in a folder or run.
    """

    form: ItemForm
    key: int
    last: int = 0
    pages: int = 0
    text: str = ""
    clip: int = 0


class LayoutRecord(Struct, frozen=True, array_like=True, gc=False):
    """How a segment outside the conversation is shown until the next fold; its key is the segment's number.

    It is derived from the pages: entry `seq` made it, undo never restores it, and a missing one is made again. Pages
    with a number from `next` on are newer than the layout. `pages` and `archived` count the pages of the segment. A
    `gathered` segment is shown in one line together with other segments. `tokens` is the size of the segment in the
    view at entry `seq`, and `room` is its budget there.
    """

    seq: int
    next: int
    pages: int = 0
    archived: int = 0
    gathered: bool = False
    items: tuple[LayoutItem, ...] = ()
    tokens: int = 0
    room: int = 0

    def shows(self, key: int) -> bool:
        """Return whether a page is shown in full (a folder: with its pages) or is newer than the layout."""
        if page_number(key) >= self.next:
            return True
        return any(item.key == key and item.form in (ItemForm.WHOLE, ItemForm.FOLDER) for item in self.items)


class SheetChunk(Struct, frozen=True, array_like=True, gc=False):
    """Some neighbouring children of a folder, from the place (`rank`, `key`) to that of the next chunk.

    `pages` counts the pages below them that are not archived, without folders, and `archived` the archived children.
    `own` is the newest entry that changed an open page of an agent among them; `given` is the same for pages of a
    developer.
    """

    rank: bytes
    key: int
    children: int
    pages: int
    archived: int
    own: int
    given: int


class SheetRecord(Struct, frozen=True, array_like=True, gc=False):
    """The children of a folder outside the conversation, in chunks. Its key is the folder's. It holds no text."""

    chunks: tuple[SheetChunk, ...]


class SheetState(Struct, frozen=True, array_like=True, gc=False):
    """The version and identity of the context that the sheets reflect."""

    version: int
    identity: bytes


SHEET_STATE: Final = MAX_KEY
"""The key of the `SheetState` among the sheets."""


class VectorRecord(Struct, frozen=True, array_like=True, gc=False):
    """The vector of a page: numbers of one byte each."""

    vector: bytes


class VectorState(Struct, frozen=True, array_like=True, gc=False):
    """The version and identity of the context that the vectors reflect, and the embedder that made them.

    `count` is the number of vectors.
    """

    version: int
    identity: bytes
    model: int
    count: int = 0


VECTOR_STATE: Final = MAX_KEY
"""The key of the `VectorState` among the vectors."""


decode_layout = decoder_of(LayoutRecord, "layout")
_decode_sheet = decoder_of(SheetRecord, "sheet")
_decode_sheet_state = decoder_of(SheetState, "sheet")
_decode_vector = decoder_of(VectorRecord, "vector")
_decode_vector_state = decoder_of(VectorState, "vector")


def decode_vector(key: int, value: bytes, mark: ContextMark = NO_MARK) -> VectorRecord | VectorState:
    """Decode a page's vector or the `VectorState`. Raises `Corrupt`."""
    return _decode_vector_state(key, value, mark) if key == VECTOR_STATE else _decode_vector(key, value, mark)


def decode_sheet(key: int, value: bytes, mark: ContextMark = NO_MARK) -> SheetRecord | SheetState:
    """Decode a folder's sheet or the `SheetState`. Raises `Corrupt`."""
    return _decode_sheet_state(key, value, mark) if key == SHEET_STATE else _decode_sheet(key, value, mark)
