"""Memory: the pages, texts and folders of a context that a state keeps in memory, the least recently used ones dropped.

Pinned pages stay. A folder with few children is kept whole, because a fold reads the same folders again and again.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from quire.core.reader import Slot, slot_of
from quire.core.records import Gone, PageRecord

K = TypeVar("K")
V = TypeVar("V")
LONGEST_ROW: Final = 256
"""The most children of a folder that is kept whole."""
_MOST_ROWS: Final = 64


class SizedCache(Generic[K, V]):
    """An LRU cache of values with a size. Their total size never exceeds `max_size`."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.size = 0
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def get(self, key: K) -> V | None:
        """Return the value and mark it as most recently used; None if it is missing."""
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Add a value, unless it is larger than the whole cache."""
        if key in self._items:
            self.drop(key)
        if size > self.max_size:
            return
        self._items[key] = (value, size)
        self.size += size
        while self.size > self.max_size:
            self.size -= self._items.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Remove a value if it is present."""
        found = self._items.pop(key, None)
        if found is not None:
            self.size -= found[1]


class Memory:
    """At most `max_pages` pages, and texts of at most `max_bytes`: bodies by key, messages by ~number."""

    def __init__(self, max_pages: int, max_bytes: int) -> None:
        self.texts: SizedCache[int, Any] = SizedCache(max_bytes)
        self._max_pages = max_pages
        self._pages: OrderedDict[int, PageRecord | Gone] = OrderedDict()
        self._pinned: dict[int, PageRecord] = {}
        self._rows: dict[int, list[PageRecord]] = {}

    def page(self, key: int) -> PageRecord | Gone | None:
        """Return a page that is kept, as the most recently used one."""
        found = self._pages.get(key)
        if found is None:
            return self._pinned.get(key)
        self._pages.move_to_end(key)
        return found

    def keep(self, key: int, page: PageRecord | Gone) -> None:
        """Keep a page as the most recently used one."""
        if isinstance(page, PageRecord) and page.header.pinned:
            self._pages.pop(key, None)
            self._pinned[key] = page
            return
        self._pinned.pop(key, None)
        self._pages[key] = page
        self._pages.move_to_end(key)
        if len(self._pages) > self._max_pages:
            self.trim(self._max_pages)

    def evict(self, key: int) -> None:
        """Drop one page with its texts, also a pinned one."""
        self._rows.clear()
        self._drop_texts(self._pages.pop(key, None) or self._pinned.pop(key, None))

    def trim(self, size: int) -> int:
        """Drop the least recently used pages with their texts until `size` are left. Return how many were dropped."""
        before = len(self._pages)
        while len(self._pages) > size:
            self._drop_texts(self._pages.popitem(last=False)[1])
        return before - len(self._pages)

    def clear_rows(self) -> None:
        """Drop what is known of folders."""
        self._rows.clear()

    def items(self) -> Sequence[tuple[int, PageRecord | Gone]]:
        """Return the pages, least recently used first."""
        return [*self._pinned.items(), *self._pages.items()]

    def row(self, folder: int, after: Slot | None, *, reverse: bool) -> Iterable[PageRecord] | None:
        """Return the children of a folder before or after a place, in this direction; None if they are not kept."""
        row = self._rows.get(folder)
        if row is None or after is None:
            return row if row is None or not reverse else reversed(row)
        if reverse:
            return reversed(row[: bisect_left(row, after, key=slot_of)])
        return row[bisect_right(row, after, key=slot_of) :]

    def keep_row(self, folder: int, row: list[PageRecord]) -> None:
        """Keep all children of a folder, unless they are many."""
        self._rows.pop(folder, None)
        if len(row) <= LONGEST_ROW:
            self._rows[folder] = row
            if len(self._rows) > _MOST_ROWS:
                del self._rows[next(iter(self._rows))]

    def follow(self, key: int, old: PageRecord | Gone | None, new: PageRecord | Gone) -> None:
        """Bring the rows up to date after a page changed. Rows are not changed in place: a reader may hold one."""
        if isinstance(old, PageRecord) and old.parent is not None and not old.is_cold:
            row = self._rows.get(old.parent)
            if row is not None:
                self._rows[old.parent] = [page for page in row if page.key != key]
        if isinstance(new, PageRecord) and new.parent is not None and not new.is_cold:
            row = self._rows.get(new.parent)
            if row is not None:
                at = bisect_left(row, slot_of(new), key=slot_of)
                self.keep_row(new.parent, [*row[:at], new, *row[at:]])

    def _drop_texts(self, page: PageRecord | Gone | None) -> None:
        if isinstance(page, PageRecord):
            self.texts.drop(page.header.body)
            for number in page.header.numbers:
                self.texts.drop(~number)
