"""Window pages: a window is stored as a leaf of the first TOOL segment, with its data in `meta`."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from quire.core.plan import Plan
from quire.core.records import WINDOW_LINES, PageRecord
from quire.core.state import State
from quire.model.pages import Form, SegmentType
from quire.model.text import decode_meta


class WindowMeta(Struct, frozen=True, kw_only=True):
    """The data of a window in the `meta` of its page. `at` is the entry of its place, `acts` counts its actions.

    `identity` is equal for windows of an app that must not be open at the same time.
    """

    window: str
    app: str
    at: int
    important: bool = False
    append: bool = False
    acts: int = 0
    identity: str = ""


class StoredWindow(Struct, frozen=True):
    """A stored window: its page and its data."""

    page: PageRecord
    meta: WindowMeta

    @property
    def key(self) -> int:
        return self.page.key

    @property
    def id(self) -> str:
        return self.meta.window

    @property
    def used(self) -> int:
        """The journal entry that last opened, used, refreshed or changed it."""
        return self.page.header.seq

    @property
    def obsolete(self) -> bool:
        """True after it was closed."""
        return self.page.header.closed


def stored_window(page: object) -> StoredWindow | None:
    """Return the window of a page, or None."""
    if not isinstance(page, PageRecord) or page.header.form is not Form.WINDOW:
        return None
    try:
        meta = msgspec.convert(decode_meta(page.header.meta), WindowMeta)
    except msgspec.ValidationError:
        return None
    return StoredWindow(page, meta)


def window_pages(state: State) -> Iterator[StoredWindow]:
    """Yield every window of the context, closed ones too."""
    number = state.first_segment(SegmentType.TOOL)
    for page in () if number is None else state.segment_pages(number):
        window = stored_window(page)
        if window is not None:
            yield window


def touch_window(plan: Plan, page: PageRecord) -> PageRecord:
    """Plan that an open window was used now, unless it is the one used last and no fold shrank it since."""
    window = stored_window(page)
    if window is None or window.obsolete or window.used == plan.seq:
        return page
    lines = plan.note(WINDOW_LINES)
    newest = max(one.used for one in window_pages(plan.state) if not one.obsolete)
    if window.used == newest and (lines is None or window.used > max(lines.used)):
        return page
    return plan.restore(page)
