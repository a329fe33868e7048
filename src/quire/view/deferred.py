"""Reading pages as the view still shows them: the changes of an agent take effect at the next fold.

So an agent that hides, writes or moves pages does not invalidate the prefix that its provider has cached.
"""

from collections.abc import Iterator, Mapping
from heapq import merge

from quire.core.codec import decode_page
from quire.core.reader import Reader, Slot, slot_of
from quire.core.records import PAGE_CODE, DeferredChange, Gone, PageRecord, Touched, segment_number
from quire.core.state import State
from quire.model.pages import Lifecycle, Visibility
from quire.storage.contract import Record
from quire.system.journal import page_before


class DeferredReader(Reader):
    """A reader that returns each changed page in its state before the agent's first change.

    `anchors` are the deferred changes, by the key of the page.
    """

    def __init__(self, reader: Reader, anchors: Mapping[int, DeferredChange]) -> None:
        super().__init__(reader)
        self._before = {
            key: page_before(Touched(PAGE_CODE, key, anchor.before, anchor.parent, anchor.rank))
            for key, anchor in anchors.items()
        }
        self._groups: dict[tuple[int, bool], list[PageRecord]] = {}
        for page in self._before.values():
            if isinstance(page, PageRecord) and page.parent is not None:
                self._groups.setdefault((page.parent, page.is_cold), []).append(page)

    def page(self, key: int) -> PageRecord | Gone | None:
        return self._before[key] if key in self._before else self._reader.page(key)

    def current_page(self, key: int) -> PageRecord | Gone | None:
        return self._reader.page(key)

    def members(
        self, folder: int, *, after: Slot | None = None, reverse: bool = False, cold: bool = False
    ) -> Iterator[PageRecord]:
        current = self._reader.members(folder, after=after, reverse=reverse, cold=cold)
        unchanged = (page for page in current if page.key not in self._before)
        anchored = self._groups.get((folder, cold), [])
        if after is not None:
            place = after
            anchored = [page for page in anchored if (slot_of(page) < place if reverse else slot_of(page) > place)]
        return merge(sorted(anchored, key=slot_of, reverse=reverse), unchanged, key=slot_of, reverse=reverse)


def is_shown_whole(state: State, key: int) -> bool:
    """Return whether the view shows a page open, in its place or as a quotation after an agent opened it."""
    anchors = state.deferred_changes()
    if key in anchors and anchors[key].opened:
        return True
    reader = DeferredReader(state, anchors)
    page = reader.page(key)
    if not isinstance(page, PageRecord) or page.header.visibility is Visibility.HIDDEN:
        return False
    layout = None if segment_number(key) == state.conversation() else state.layout(segment_number(key))
    if layout is not None and not layout.shows(key):
        return False
    return reader.effective_lifecycle(page) is Lifecycle.ACTIVE


def opened_pages(anchors: Mapping[int, DeferredChange]) -> list[tuple[DeferredChange, PageRecord]]:
    """Return the pages that an agent opened, in their state of that time, in the order of opening."""
    pages = ((anchor, decode_page(Record(key, anchor.opened))) for key, anchor in anchors.items() if anchor.opened)
    opened = [(anchor, page) for anchor, page in pages if isinstance(page, PageRecord)]
    return sorted(opened, key=lambda item: item[0].seq)
