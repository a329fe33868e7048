"""Derived records: how the view shows the segments outside the conversation. Folds make them from the pages."""

from enum import IntEnum

from msgspec import Struct

from quire.core.records import page_number


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
