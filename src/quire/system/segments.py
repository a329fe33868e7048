"""Segments: plan to add, remove and change segments, as `ContextSystem` documents."""

from typing import Any

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.records import Header, PageRecord, SegmentRecord, page_key, segment_number
from quire.errors import Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.pages import Form, Permission, Segment, SegmentType, Visibility, check_segment_id, format_index
from quire.model.text import MAX_DESCRIPTION, MAX_NAME, check_one_line
from quire.system.rules import check_choice, check_segments, check_unpinned, check_whole_number


def add_segment(plan: Plan, segment: Segment) -> None:
    """Add a segment and its root page. An id that was used before continues with its old counter."""
    if not isinstance(segment, Segment):
        raise InvalidValue(f"is {short_repr(segment)}; a Segment is needed.", argument="segment")
    segment_id = check_segment_id(segment.id)
    known = plan.number_of(segment_id)
    present = None if known is None else plan.segment(known)
    if present is not None and not present.gone:
        raise InvalidOperation(f"Segment {segment_id!r} exists already; choose another id.")
    name = check_one_line(plan.redact(segment.name or segment_id or "Pages"), "name", MAX_NAME, empty=False)
    description = check_one_line(plan.redact(segment.description), "description", MAX_DESCRIPTION)
    record = SegmentRecord(
        name=name,
        description=description,
        type=check_choice(SegmentType, segment.type, "type"),
        permission=check_choice(Permission, segment.permission, "permission"),
        max_capacity=check_whole_number(segment.max_capacity, "max_capacity"),
        position=plan.next_position(),
        created=plan.now,
        updated=plan.now,
        seq=plan.seq,
    )
    root = format_index(segment_id, 0)
    if segment.root_index not in ("", root):
        raise InvalidValue(
            f"is {short_repr(segment.root_index)}; the root of {segment_id!r} is {root!r}.", argument="root_index"
        )
    number = plan.add_counter(segment_id) if known is None else known
    plan.put_segment(number, record)
    check_segments(plan)
    header = Header(folder=True, name=name, description="", **plan.origin())
    plan.create(page_key(number, 0), None, 0, header)


def remove_segment(plan: Plan, segment_id: str) -> int:
    number = plan.require_segment(segment_id)
    if number == plan.conversation():
        raise InvalidOperation(f"Cannot remove segment {segment_id!r}: it holds the conversation.")
    check_unpinned(plan, plan.require_referenced(page_key(number, 0), page_key(number, 0)), "remove the segment of")
    pages = list(plan.segment_pages(number))
    for page in pages:
        plan.remove(page.key)
    segment = plan.segment(number)
    if segment is not None:
        plan.put_segment(number, replace(segment, gone=True, updated=plan.now))
    return len(pages)


def update_segment(
    plan: Plan,
    segment_id: str,
    *,
    name: str | None = None,
    description: str | None = None,
    max_capacity: int | None = None,
    type: SegmentType | None = None,
) -> None:
    fields: dict[str, Any] = {}
    if type is not None:
        fields["type"] = check_choice(SegmentType, type, "type")
    if name is not None:
        fields["name"] = check_one_line(plan.redact(name), "name", MAX_NAME, empty=False)
    if description is not None:
        fields["description"] = check_one_line(plan.redact(description), "description", MAX_DESCRIPTION)
    if max_capacity is not None:
        fields["max_capacity"] = check_whole_number(max_capacity, "max_capacity")
    number = plan.require_segment(segment_id)
    before = {kind: plan.first_segment(kind) for kind in _UNIQUE}
    _change(plan, segment_id, fields)
    if "type" in fields and number in plan.segments:
        _check_type_change(plan, number, before)


_UNIQUE = (SegmentType.SYSTEM, SegmentType.USER, SegmentType.TOOL)
"""The types of which the first segment has the prompt, the conversation or the windows."""


def _check_type_change(plan: Plan, number: int, before: dict[SegmentType, int | None]) -> None:
    """Raise `InvalidOperation` if messages, prompts or windows would be in a segment of the wrong type."""
    for kind, first in before.items():
        affected = {number, first} if plan.first_segment(kind) != first else set()
        for other in affected - {None}:
            page = next((page for page in plan.segment_pages(other) if page.header.form is not Form.TEXT), None)
            if page is not None:
                name = plan.counters[segment_number(page.key)].segment
                raise InvalidOperation(
                    f"The type of the segment cannot change: {plan.index(page.key)!r} in segment {name!r} has messages"
                    " or a window. Only a segment with texts gets another type."
                )
    if before[SegmentType.USER] is not None and plan.first_segment(SegmentType.USER) is None:
        raise InvalidOperation("The type of the segment cannot change: the context needs a USER segment.")
    root = plan.page(page_key(number, 0))
    if isinstance(root, PageRecord) and root.header.visibility is Visibility.HIDDEN:
        raise InvalidOperation(
            f"The root {plan.index(root.key)!r} is hidden.", Hint("expand", plan.index(root.key), purpose="first")
        )
    check_segments(plan)


def set_segment_permission(plan: Plan, segment_id: str, permission: Permission) -> None:
    _change(plan, segment_id, {"permission": check_choice(Permission, permission, "permission")})
    check_segments(plan)


def _change(plan: Plan, segment_id: str, fields: dict[str, Any]) -> None:
    number = plan.require_segment(segment_id)
    segment = plan.segment(number)
    if segment is not None and any(getattr(segment, field) != value for field, value in fields.items()):
        plan.put_segment(number, replace(segment, **fields, updated=plan.now))
