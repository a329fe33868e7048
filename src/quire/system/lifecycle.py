"""Lifecycle: plan to expand, hide, archive, restore, recall and pin pages, as `ContextSystem` documents.

A window is stored as a leaf of the first TOOL segment, with its data in `meta`.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from quire.core.plan import Plan
from quire.core.records import WINDOW_LINES, PageRecord, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation
from quire.model.pages import Form, Lifecycle, Mark, PageIndex, SegmentType, Visibility
from quire.model.text import decode_meta
from quire.system.rules import (
    check_bool,
    check_movable,
    check_not_waiting,
    check_unpinned,
    marked_error,
    require_attached,
    why_shown,
)


class WindowMeta(Struct, frozen=True, kw_only=True):
    """The data of a window in the `meta` of its page. `acts` counts its actions.

    `at` is the entry that opened or last placed the window. Windows are shown in the order of `at`.
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
    """Plan that an open window was used now. Do nothing if it is the last used one and no fold shrank it since."""
    window = stored_window(page)
    if window is None or window.obsolete or window.used == plan.seq:
        return page
    lines = plan.note(WINDOW_LINES)
    newest = max(one.used for one in window_pages(plan.state) if not one.obsolete)
    if window.used == newest and (lines is None or window.used > max(lines.used)):
        return page
    return plan.restore(page)


def expand(plan: Plan, index: PageIndex) -> None:
    record = require_attached(plan, index, "expand")
    touch_window(plan, open_chain(plan, record))
    layout = plan.state.layout(segment_number(record.key))
    is_window = record.header.form is Form.WINDOW  # the tail shows it
    is_line = layout is not None and not (is_window or record.is_root or layout.shows(record.key))
    if segment_number(record.key) == plan.conversation():
        is_line = bool(plan.pages)  # a folder above it was opened
    if is_line and record.key not in plan.pages:
        plan.restore(record)  # this makes it the newest page, so the next layout or fold shows it


def hide(plan: Plan, index: PageIndex) -> None:
    record = require_attached(plan, index, "hide")
    if plan.effective_lifecycle(record) is not Lifecycle.ACTIVE:
        raise InvalidOperation(
            f"Cannot hide {index!r}: it is archived.", Hint("restore", index, purpose="to bring it back first")
        )
    if reason := why_shown(plan, record):
        raise InvalidOperation(f"Cannot hide {index!r}: {reason}.")
    check_unpinned(plan, record, "hide")
    check_not_waiting(plan, record, "hide")
    plan.change(record, visibility=Visibility.HIDDEN)


def archive(plan: Plan, index: PageIndex, *, cold: bool = False) -> None:
    check_bool(cold, "cold")
    record = require_attached(plan, index, "archive")
    check_movable(plan, record, "archive")
    plan.change(record, lifecycle=Lifecycle.COLD_ARCHIVED if cold else Lifecycle.HOT_ARCHIVED)


def restore(plan: Plan, index: PageIndex) -> None:
    record = require_attached(plan, index, "restore")
    plan.change(record, lifecycle=Lifecycle.ACTIVE)
    _open_above(plan, record)


def recall(plan: Plan, index: PageIndex) -> PageIndex:
    record = plan.require_page(index)
    if record.header.mark is not Mark.NONE:
        raise marked_error(plan, record, "recall")
    top = plan.cold_top(record)
    if top is not None:
        plan.place_home(top, lifecycle=Lifecycle.ACTIVE)
    return index


def pin(plan: Plan, index: PageIndex) -> None:
    record = require_attached(plan, index, "pin")
    open_chain(plan, plan.change(record, pinned=True))


def unpin(plan: Plan, index: PageIndex) -> None:
    plan.change(require_attached(plan, index, "unpin"), pinned=False)


def open_chain(plan: Plan, record: PageRecord) -> PageRecord:
    """Make a page and all folders above it active and expanded; return the page."""
    opened = plan.change(record, lifecycle=Lifecycle.ACTIVE, visibility=Visibility.EXPANDED)
    _open_above(plan, record)
    return opened


def _open_above(plan: Plan, record: PageRecord) -> None:
    for above in list(plan.ancestors(record)):
        plan.change(above, lifecycle=Lifecycle.ACTIVE, visibility=Visibility.EXPANDED)
