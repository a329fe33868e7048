"""Which page holds which item: known by heart, and kept up with what others write."""

from collections.abc import Iterable, Iterator

from quire.adapters.langgraph.matching import Namespace
from quire.context import Context
from quire.errors import NoSuchPage
from quire.model.pages import ContentsPage, Page, PageIndex

Place = tuple[Namespace, str]
"""Where an item is: its namespace and its key."""
PUT = "store_put"
"""The operation of every commit of a store."""


class Catalogue:
    """The items and folders of one segment by namespace and key, in the order they were made."""

    def __init__(self, ctx: Context, segment: str) -> None:
        self._ctx = ctx
        self._segment = segment
        self._seen = -1
        self.items: dict[Place, PageIndex] = {}
        self.folders: dict[Namespace, PageIndex] = {}
        self._places: dict[PageIndex, Place] = {}

    def catch_up(self) -> None:
        """Take over what was written since, here or elsewhere. Other edits than a store's are read anew."""
        pages = self._ctx.pages
        if self._seen == pages.seq:
            return
        after, self._seen = self._seen, pages.seq
        entries = [(entry.operation, self._mine(entry.pages)) for entry in pages.history(after)] if after >= 0 else []
        if after < 0 or any(mine and operation != PUT for operation, mine in entries):
            self._read_all()
            return
        for index in (index for _, mine in entries for index in mine):
            self._read(index)

    def place_of(self, index: PageIndex) -> Place | None:
        """The item that a page holds."""
        return self._places.get(index)

    def within(self, prefix: Namespace) -> Iterator[Place]:
        """The items in a namespace and below it."""
        return (place for place in self.items if place[0][: len(prefix)] == prefix)

    def _mine(self, pages: Iterable[PageIndex]) -> list[PageIndex]:
        return [page for page in pages if page.rpartition("-")[0] == self._segment]

    def _read_all(self) -> None:
        self.items, self.folders, self._places = {}, {(): f"{self._segment}-0"}, {}
        for page in self._ctx.pages.list_pages(self._segment):
            self._take(page)

    def _read(self, index: PageIndex) -> None:
        try:
            self._take(self._ctx.pages.get_page(index))
        except NoSuchPage:
            place = self._places.pop(index, None)
            if place is not None and self.items.get(place) == index:
                del self.items[place]

    def _take(self, page: Page) -> None:
        namespace = page.meta.get("namespace")
        if not isinstance(namespace, list):
            return
        if isinstance(page, ContentsPage):
            self.folders[tuple(namespace)] = page.index
        elif isinstance(key := page.meta.get("key"), str):
            place = (tuple(namespace), key)
            self.items[place] = page.index
            self._places[page.index] = place
