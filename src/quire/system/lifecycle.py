"""Lifecycle: plan to expand, hide, archive, restore, recall and pin pages, as `ContextSystem` documents."""

from quire.core.plan import Plan
from quire.core.records import PageRecord, segment_number
from quire.errors import Hint, InvalidOperation
from quire.model.pages import Form, Lifecycle, Mark, PageIndex, Visibility
from quire.system.rules import (
    check_bool,
    check_movable,
    check_not_waiting,
    check_root_can_hide,
    check_unpinned,
    marked_error,
    require_attached,
)
from quire.system.window_pages import touch_window


def expand(plan: Plan, index: PageIndex) -> None:
    record = require_attached(plan, index, "expand")
    touch_window(plan, open_chain(plan, record))
    layout = plan.state.layout(segment_number(record.key))
    is_window = record.header.form is Form.WINDOW  # the tail shows it
    is_line = layout is not None and not (is_window or record.is_root or layout.shows(record.key))
    if segment_number(record.key) == plan.conversation():
        is_line = bool(plan.pages)  # a folder above it was opened
    if is_line and record.key not in plan.pages:
        plan.restore(record)  # it is the newest page now, so the next layout or fold shows it


def hide(plan: Plan, index: PageIndex) -> None:
    record = require_attached(plan, index, "hide")
    if plan.effective_lifecycle(record) is not Lifecycle.ACTIVE:
        raise InvalidOperation(
            f"Cannot hide {index!r}: it is archived.", Hint("restore", index, purpose="to bring it back first")
        )
    check_root_can_hide(plan, record)
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
