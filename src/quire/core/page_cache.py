"""The pages of a context in memory. The least recently used ones are evicted; pinned pages stay."""

from collections import OrderedDict
from typing import Any

from quire.core.records import Gone, PageRecord
from quire.model.sized_cache import SizedCache


class PageCache:
    """At most `max_pages` pages by key, and all pinned pages that were read.

    The text and the messages of an evicted page are dropped from `bodies`, where texts have the key of the body and
    messages the key ~number.
    """

    def __init__(self, max_pages: int, bodies: SizedCache[int, Any]) -> None:
        self.recent: OrderedDict[int, PageRecord | Gone] = OrderedDict()
        self.pinned: dict[int, PageRecord] = {}
        self._max_pages = max_pages
        self._bodies = bodies

    def keep(self, key: int, page: PageRecord | Gone) -> None:
        """Keep a page as the most recently used one."""
        if isinstance(page, PageRecord) and page.header.pinned:
            self.recent.pop(key, None)
            self.pinned[key] = page
            return
        self.pinned.pop(key, None)
        self.recent[key] = page
        self.recent.move_to_end(key)
        if len(self.recent) > self._max_pages:
            self.trim(self._max_pages)

    def evict(self, key: int) -> None:
        """Evict one page, also a pinned one."""
        self.drop_body(self.recent.pop(key, None) or self.pinned.pop(key, None))

    def trim(self, size: int) -> int:
        """Evict the least recently used pages until `size` are left. Return how many were evicted."""
        before = len(self.recent)
        while len(self.recent) > size:
            self.drop_body(self.recent.popitem(last=False)[1])
        return before - len(self.recent)

    def drop_body(self, page: PageRecord | Gone | None) -> None:
        """Drop the text and the messages of a page."""
        if isinstance(page, PageRecord):
            self._bodies.drop(page.header.body)
            for number in page.header.numbers:
                self._bodies.drop(~number)
