"""Reading pages as the view goes on showing them: what an agent changed takes its place at the next fold.

So an agent that hides, writes or moves pages does not break the prefix that its provider has cached.
"""

from collections.abc import Iterator, Mapping
from heapq import merge

from quire.core.reader import Reader, ReaderProxy, Slot, slot_of
from quire.core.records import DeferredChange, Gone, PageRecord, decode_page
from quire.core.state import State
from quire.model.pages import Lifecycle, Visibility
from quire.storage.base import Record


class Steady(ReaderProxy):
    """A reader in which every anchored page is what it was before the agent's first change of it."""

    def __init__(self, reader: Reader, anchors: Mapping[int, DeferredChange]) -> None:
        super().__init__(reader)
        self._before = {key: _before(key, anchor) for key, anchor in anchors.items()}
        self._groups: dict[tuple[int, bool], list[PageRecord]] = {}
        for page in self._before.values():
            if isinstance(page, PageRecord) and page.parent is not None:
                self._groups.setdefault((page.parent, page.is_cold), []).append(page)

    def page(self, key: int) -> PageRecord | Gone | None:
        return self._before[key] if key in self._before else self._reader.page(key)

    def members(
        self, folder: int, *, after: Slot | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        theirs = self._reader.members(folder, after=after, reverse=reverse, cold=cold)
        others = (page for page in theirs if page.key not in self._before)
        mine = self._groups.get((folder, cold), [])
        if after is not None:
            place = after
            mine = [page for page in mine if (slot_of(page) < place if reverse else slot_of(page) > place)]
        return merge(sorted(mine, key=slot_of, reverse=reverse), others, key=slot_of, reverse=reverse)


def is_shown_whole(state: State, key: int) -> bool:
    """Whether the view shows a page open, in its place or where an agent opened it."""
    anchors = state.deferred_changes()
    if key in anchors and anchors[key].opened:
        return True
    steady = Steady(state, anchors)
    page = steady.page(key)
    if not isinstance(page, PageRecord) or page.header.visibility is Visibility.HIDDEN:
        return False
    return steady.effective_lifecycle(page) is Lifecycle.ACTIVE


def opened_pages(anchors: Mapping[int, DeferredChange]) -> list[tuple[DeferredChange, PageRecord]]:
    """The pages that an agent opened, as they were then, in the order of opening."""
    found = ((anchor, decode_page(Record(key, anchor.opened))) for key, anchor in anchors.items() if anchor.opened)
    opened = [(anchor, page) for anchor, page in found if isinstance(page, PageRecord)]
    return sorted(opened, key=lambda item: item[0].seq)


def _before(key: int, anchor: DeferredChange) -> PageRecord | Gone | None:
    if anchor.before is None:
        return None
    return decode_page(Record(key, anchor.before, anchor.group, anchor.order))
