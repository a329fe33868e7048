"""Planning what an agent does otherwise than a developer: it takes no message away, and changes no order of them."""

from collections.abc import Sequence
from zlib import crc32

from quire.conversation.edits import delete
from quire.errors import InvalidOperation, PermissionDenied
from quire.pages import Form, PageIndex, Segment, SegmentType
from quire.plan import Plan
from quire.reader import Reader
from quire.records import KEY, PageRecord, segment_number
from quire.system import segments, tree
from quire.system.rules import attached, loose
from quire.windows.keeping import close_window


def remove_page(plan: Plan, page: PageRecord) -> int:
    """Remove a page with all below it; messages only get a delete mark, a window is closed. How many pages went."""
    index = plan.index(page.key)
    if page.header.form is Form.WINDOW:
        return int(close_window(plan, page.key, None))
    if segment_number(page.key) != plan.conversation():
        return tree.remove_page(plan, index)
    exchanges = [leaf for _, leaf in plan.subtree(page) if leaf.header.numbers]
    if not exchanges:
        return tree.remove_page(plan, index)
    loose(plan, attached(plan, index, "remove"), "remove")
    numbers = [number for leaf in exchanges for number in leaf.header.numbers]
    gone = len(delete(plan, [plan.message_index(number) for number in numbers]).pages)
    if page.header.folder:
        gone += tree.remove_page(plan, index)
    return gone


def move_page(plan: Plan, page: PageRecord, target: PageRecord, before: PageIndex | None) -> dict[PageIndex, PageIndex]:
    """Move a page; messages stay where they are, and none comes into the conversation by this way."""
    source = plan.index(page.key)
    ends = (segment_number(page.key), segment_number(target.key))
    if plan.conversation() in ends and _holds_messages(plan, page):
        raise PermissionDenied(
            f"operation 'move_page' on {source}: messages keep their order and their segment; gather neighbours under"
            " a new folder instead"
        )
    return tree.move_page(plan, source, plan.index(target.key), before)


def create_contents_page(
    plan: Plan, name: str, description: str, parent: PageRecord, children: Sequence[PageRecord]
) -> PageIndex:
    """Add a folder; messages are gathered only as neighbours in their order, so that no order changes."""
    if segment_number(parent.key) == plan.conversation() and any(_holds_messages(plan, page) for page in children):
        _neighbours(plan, parent, children)
    indices = [plan.index(page.key) for page in children]
    return tree.create_contents_page(plan, name, description, plan.index(parent.key), indices)


def add_segment(plan: Plan, name: str, description: str) -> str:
    """Add a segment under an id that tells nothing of what else there is; the id."""
    key, number = plan.note(KEY), 0
    seed = crc32((key.name if key else "").encode())
    while True:
        segment_id = f"a{crc32(b'%d' % number, seed):08x}"
        if plan.number_of(segment_id) is None:
            break
        number += 1
    segments.add_segment(plan, Segment(id=segment_id, name=name, description=description, type=SegmentType.CUSTOM))
    return segment_id


def _holds_messages(reader: Reader, page: PageRecord) -> bool:
    return any(leaf.header.numbers for _, leaf in reader.subtree(page))


def _neighbours(plan: Plan, parent: PageRecord, children: Sequence[PageRecord]) -> None:
    wanted = [page.key for page in children]
    row = [page.key for page in plan.members(parent.key)]
    start = row.index(wanted[0]) if wanted[0] in row else -1
    if start < 0 or row[start : start + len(wanted)] != wanted:
        listed = ", ".join(plan.index(key) for key in wanted)
        raise InvalidOperation(
            f"Cannot gather {listed}: messages keep their order. Name neighbours in {plan.index(parent.key)}, in order."
        )
