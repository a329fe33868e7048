"""The rules every operation shares: what may be touched, and what must hold after a plan."""

from enum import IntEnum
from typing import TypeVar

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import Gone, PageRecord, page_number, segment_number
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.pages import Lifecycle, Mark, SegmentType, Visibility

Choice = TypeVar("Choice", bound=IntEnum)


def require_attached(reader: Reader, index: object, doing: str) -> PageRecord:
    """The page, if it is in the tree. Raises `NoSuchPage`, or `InvalidOperation` for a cold page."""
    record = reader.require_page(index)
    if record.header.mark is not Mark.NONE:
        raise marked_error(reader, record, doing)
    if reader.cold_top(record) is not None:
        raise InvalidOperation(
            f"Cannot {doing} {index!r}: it is in the cold archive. recall({index!r}) brings it back."
        )
    return record


def marked_error(reader: Reader, record: PageRecord, doing: str) -> InvalidOperation:
    """The error for a page whose messages an edit took out of the conversation."""
    said = record.header.mark.name.lower()
    return InvalidOperation(
        f"Cannot {doing} {reader.index(record.key)!r}: its messages are out of the conversation ({said} by entry"
        f" {record.header.seq}). undo({record.header.seq}) brings them back."
    )


def require_folder(reader: Reader, index: object, doing: str) -> PageRecord:
    """The page, if it is an attached folder."""
    record = require_attached(reader, index, doing)
    if not record.header.folder:
        raise InvalidOperation(f"Cannot {doing} {index!r}: it is a DetailPage; a ContentsPage is needed.")
    return record


def check_movable(reader: Reader, record: PageRecord, doing: str) -> None:
    """Refuse a root, a pinned page and a page above a pinned one."""
    if record.is_root:
        raise InvalidOperation(f"Cannot {doing} {reader.index(record.key)!r}: it is the root of its segment.")
    check_unpinned(reader, record, doing)
    check_not_waiting(reader, record, doing)


def check_unpinned(reader: Reader, record: PageRecord, doing: str) -> None:
    """Refuse a pinned page and a page above a pinned one."""
    if record.header.pinned:
        index = reader.index(record.key)
        raise InvalidOperation(f"Cannot {doing} {index!r}: it is pinned. unpin({index!r}) first.")
    if record.header.folder and reader.pinned_below(record.key):
        index = reader.index(record.key)
        pinned = next((page.key for _, page in reader.subtree(record) if page.header.pinned), None)
        if pinned is None:
            raise reader.damage_error(f"A page below {index!r} is listed as pinned and is not there.")
        below = reader.index(pinned)
        raise InvalidOperation(f"Cannot {doing} {index!r}: {below!r} below it is pinned. unpin({below!r}) first.")


def check_not_waiting(reader: Reader, record: PageRecord, doing: str) -> None:
    """Refuse the exchange that waits for results, and a folder above it."""
    if not record.header.pending and not record.header.folder:
        return
    waiting = reader.open_exchange() if segment_number(record.key) == reader.conversation() else None
    if waiting is not None and record.key in (waiting.key, *(above.key for above in reader.ancestors(waiting))):
        calls = ", ".join(map(repr, waiting.header.pending))
        who = "it" if waiting.key == record.key else f"{reader.index(waiting.key)!r} below it"
        raise InvalidOperation(
            f"Cannot {doing} {reader.index(record.key)!r}: {who} waits for the results of {calls}."
            " Give them with tool_result(), or give them up with close_calls()."
        )


def require_child(reader: Reader, folder: PageRecord, index: object, field: str, *, cold: bool = False) -> PageRecord:
    """The page, if it is a child of the folder, or was before it went cold. Raises `InvalidValue`."""
    record = reader.require_page(index)
    if record.parent != folder.key or record.is_cold is not cold:
        above = reader.index(folder.key)
        raise InvalidValue(f"{field}={short_repr(index)} is not a child of {above!r}; name one of its children.")
    return record


def check_root_can_hide(reader: Reader, record: PageRecord) -> None:
    """Refuse to hide the root of a SYSTEM segment or of the conversation."""
    if not record.is_root:
        return
    number = segment_number(record.key)
    segment = reader.segment(number)
    if segment is not None and segment.type is SegmentType.SYSTEM:
        raise InvalidOperation(
            f"Cannot hide {reader.index(record.key)!r}: the root of a SYSTEM segment is always shown."
        )
    if number == reader.conversation():
        raise InvalidOperation(f"Cannot hide {reader.index(record.key)!r}: the conversation's root is always shown.")


def check_whole_number(value: object, field: str) -> int:
    """The value if it is a whole number from 0. Raises `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise InvalidValue(f"{field} is {short_repr(value)}; a whole number from 0 is needed.")
    return value


def check_bool(value: object, field: str) -> bool:
    """The value if it is True or False. Raises `InvalidValue`."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{field} is {short_repr(value)}; True or False is needed.")
    return value


def check_choice(kind: type[Choice], value: object, field: str) -> Choice:
    """The value as a member of the enum, given as one or by its number. Raises `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in list(kind):
        accepted = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise InvalidValue(f"{field} is {short_repr(value)}; use {accepted}.")
    return kind(value)


def check_plan(plan: Plan) -> None:
    """Refuse a plan that would break an invariant; for plans made of earlier states rather than by the operations."""
    standing = {page.parent: page for page in plan.pages.values() if isinstance(page, PageRecord) and not page.is_cold}
    sound: set[int] = set()
    for key, page in plan.pages.items():
        if isinstance(page, Gone):
            _verify_gone(plan, key, standing.get(key))
        else:
            _verify_place(plan, page)
            _verify_no_cycle(plan, page, sound)
            _verify_shown(plan, page)


def check_segments(plan: Plan) -> None:
    """Refuse a plan that would leave a page without its segment, or a second segment beside the one with no id."""
    for number, segment in plan.segments.items():
        left = (page for page in plan.state.segment_pages(number) if page.key not in plan.pages)
        page = next(left, None) if segment.gone else None
        if page is not None:
            raise InvalidOperation(
                f"Segment {plan.counters[number].segment!r} cannot go: {plan.index(page.key)!r} came later"
                f" (entry {page.header.born})."
            )
    live = [plan.counters[number].segment for number, _ in plan.live_segments()]
    if "" in live and len(live) > 1:
        raise InvalidOperation("The segment with the empty id is a context's only one; others were added later.")


def check_conversation_kept(plan: Plan) -> None:
    """Refuse a plan that would take the conversation away."""
    conversation = plan.state.conversation()
    if conversation is not None and plan.conversation() != conversation:
        raise InvalidOperation(f"Segment {plan.counters[conversation].segment!r} holds the conversation and stays.")


def check_pins(plan: Plan) -> None:
    """Refuse a plan that would remove or move a pinned page; pins are the developer's to lift."""
    for key, page in plan.pages.items():
        old = plan.state.page(key)
        if isinstance(old, PageRecord) and (isinstance(page, Gone) or page.parent != old.parent):
            check_unpinned(plan.state, old, "change the place of")


def _verify_gone(plan: Plan, key: int, child: PageRecord | None) -> None:
    child = child or next((page for page in plan.state.members(key) if page.key not in plan.pages), None)
    if child is not None:
        raise InvalidOperation(
            f"{plan.index(key)!r} cannot go: {plan.index(child.key)!r} below it came later (entry {child.header.born})."
        )
    segment = plan.segment(segment_number(key))
    if page_number(key) == 0 and segment is not None and not segment.gone:
        raise InvalidOperation(f"{plan.index(key)!r} cannot go: it is the root of its segment.")


def _verify_place(plan: Plan, page: PageRecord) -> None:
    index = plan.index(page.key)
    segment = plan.segment(segment_number(page.key))
    if segment is None or segment.gone:
        raise InvalidOperation(f"{index!r} has no segment to stand in: it was removed later.")
    if page.is_root is not (page.parent is None):
        raise InvalidOperation(f"{index!r} must have a parent unless it is a root.")
    if page.parent is None or page.is_cold:
        return
    parent = plan.page(page.parent)
    if not isinstance(parent, PageRecord):
        raise InvalidOperation(f"{index!r} cannot stand below {plan.index(page.parent)!r}, which was removed later.")
    if not parent.header.folder or segment_number(parent.key) != segment_number(page.key):
        raise InvalidOperation(f"{index!r} cannot stand below {plan.index(page.parent)!r}: no folder of its segment.")


def _verify_no_cycle(plan: Plan, page: PageRecord, sound: set[int]) -> None:
    """Refuse a page below itself; `sound` collects pages known to reach the top, so that each is walked once."""
    seen: set[int] = set()
    above: PageRecord | Gone | None = page
    while isinstance(above, PageRecord) and above.key not in sound:
        if above.key in seen:
            raise InvalidOperation(f"{plan.index(page.key)!r} would lie in its own subtree.")
        seen.add(above.key)
        above = None if above.parent is None or above.is_cold else plan.page(above.parent)
    sound |= seen


def _verify_shown(plan: Plan, page: PageRecord) -> None:
    shown_now = page.header.lifecycle is Lifecycle.ACTIVE and page.header.visibility is Visibility.EXPANDED
    if page.is_root and page.header.lifecycle is not Lifecycle.ACTIVE:
        raise InvalidOperation(f"{plan.index(page.key)!r} is a root and cannot be archived.")
    if not shown_now:
        check_root_can_hide(plan, page)
        check_unpinned(plan, page, "hide")
    elif page.header.pinned and plan.effective_lifecycle(page) is not Lifecycle.ACTIVE:
        raise InvalidOperation(f"{plan.index(page.key)!r} is pinned and must be shown, but a page above it is not.")
