"""Tree: plan the creation, change, move and removal of pages, as `ContextSystem` documents.

The first functions convert stored records to the public values: pages, segments and texts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import Reader, slot_of
from quire.core.records import Header, PageRecord, page_key, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, InvalidValue, NoSuchSegment, short_repr
from quire.model.clock import to_datetime
from quire.model.messages import messages_to_text, quote_messages
from quire.model.pages import (
    ContentsPage,
    DetailPage,
    Form,
    Lifecycle,
    Page,
    PageIndex,
    Permission,
    Segment,
    Visibility,
    format_index,
    parse_index,
)
from quire.model.text import MAX_DESCRIPTION, MAX_NAME, check_one_line, check_text, decode_meta, encode_meta
from quire.system.lifecycle import open_chain, pin, unpin
from quire.system.rules import (
    check_choice,
    check_movable,
    check_whole_number,
    folder_index,
    require_attached,
    require_child,
    require_folder,
)
from quire.system.segments import add_segment

DOCUMENTS = Segment(
    id="docs", name="Documents", description="Documents to read, not to change", permission=Permission.READ_ONLY
)
"""The segment of documents. The first document creates it."""


def to_page(state: State, record: PageRecord, *, seqs: bool = True) -> Page:
    """Return the page as a value, with its effective lifecycle. `seqs=False` hides the seqs of its entries."""
    header = record.header
    common: dict[str, Any] = {
        "name": header.name,
        "index": state.index(record.key),
        "description": header.description,
        "parent": None if record.parent is None or record.is_cold else state.index(record.parent),
        "home": state.index(state.home_of(record)) if record.is_cold else None,
        "lifecycle": header.lifecycle,
        "effective": state.effective_lifecycle(record),
        "visibility": header.visibility,
        "pinned": header.pinned,
        "author": state.actor(header.author),
        "meta": decode_meta(header.meta),
        "summary_tokens": header.summary_tokens,
        "tokens": header.tokens,
        "created_at": to_datetime(header.created),
        "updated_at": to_datetime(header.created + header.age),
        "created_seq": header.born if seqs else 0,
        "changed_seq": header.seq if seqs else 0,
    }
    if header.folder:
        return ContentsPage(**common, child_count=state.child_count(record.key))
    return DetailPage(**common, message_count=header.messages, form=header.form, mark=header.mark)


def find_folder(state: State, index: PageIndex) -> PageRecord:
    """Return the record of a folder; the id of a segment is its root. Raises `InvalidOperation` for another page."""
    record = state.require_page(folder_index(state, index))
    if not record.header.folder:
        raise InvalidOperation(f"{index!r} is not a folder.", Hint("detail", index, purpose="to read it"))
    return record


def to_text(reader: Reader, header: Header, *, quoted: bool = False) -> str:
    """Return the text of a leaf, or its messages as text, with `quoted` as text for a model."""
    if not header.numbers:
        return reader.body(header.body)
    write = quote_messages if quoted else messages_to_text
    return write(reader.message(number).message for number in header.numbers)


def to_segment(reader: Reader, number: int) -> Segment:
    """Return the segment as a value."""
    record = reader.segment(number)
    if record is None:
        raise reader.damage_error(f"segment record {number} is missing.")
    segment_id = reader.counters[number].segment
    return Segment(
        id=segment_id,
        name=record.name,
        description=record.description,
        type=record.type,
        permission=record.permission,
        max_capacity=record.max_capacity,
        root_index=format_index(segment_id, 0),
        created_at=to_datetime(record.created),
        updated_at=to_datetime(record.updated),
    )


def create_detail_page(
    plan: Plan,
    name: str,
    description: str,
    detail: str,
    parent: PageIndex,
    *,
    pinned: bool | None = None,
    meta: Mapping[str, Any] | None = None,
) -> PageIndex:
    above = require_folder(plan, parent, "add a page to")
    header = new_header(plan, name, description, meta, check_text(plan.redact(detail)))
    return _add(plan, plan.next_key(segment_number(above.key)), above, header, pinned)


def write_page(
    plan: Plan, name: str, text: str, folder: PageIndex, description: str, *, pinned: bool | None = None
) -> PageIndex:
    """Give the first text page of this name in a folder another text, or add one. Return its index."""
    above = require_folder(plan, folder, "write a page to")
    label = check_one_line(plan.redact(name), "name", MAX_NAME, empty=False)
    pages = (page for page in plan.members(above.key) if page.header.name == label)
    known = next((page for page in pages if page.header.form is Form.TEXT and not page.header.folder), None)
    if known is None:
        return create_detail_page(plan, name, description, text, plan.index(above.key), pinned=pinned)
    index = plan.index(known.key)
    update_page(plan, index, description=description, detail=text)
    if pinned is not None:
        (pin if pinned else unpin)(plan, index)
    return index


def write_document(plan: Plan, name: str, text: str, description: str, *, pinned: bool) -> PageIndex:
    """Write a page of the segment `DOCUMENTS`. Raises `InvalidOperation` if an agent may change this segment."""
    number = plan.number_of(DOCUMENTS.id)
    segment = None if number is None else plan.segment(number)
    if segment is None or segment.gone:
        add_segment(plan, DOCUMENTS)
    elif segment.permission is not Permission.READ_ONLY:
        raise InvalidOperation(
            f"Segment {DOCUMENTS.id!r} is {segment.permission.name}, and documents are READ_ONLY.",
            Hint("pages.set_segment_permission", arguments=f"{DOCUMENTS.id!r}, Permission.READ_ONLY"),
        )
    return write_page(plan, name, text, DOCUMENTS.id, description, pinned=pinned)


def create_contents_page(
    plan: Plan,
    name: str,
    description: str,
    parent: PageIndex,
    children: Iterable[PageIndex] = (),
    *,
    pinned: bool | None = None,
    meta: Mapping[str, Any] | None = None,
) -> PageIndex:
    above = require_folder(plan, parent, "add a page to")
    header = new_header(plan, name, description, meta, None)
    gathered = _require_children(plan, above, children)
    key = plan.next_key(segment_number(above.key))
    rank = None
    if gathered and gathered[0].parent == above.key:
        rank = plan.rank_before(above.key, gathered[0].key)
    index = _add(plan, key, above, header, pinned, rank)
    for child in gathered:
        plan.place(child, key, plan.append_rank(key))
    return index


def add_page(plan: Plan, page: Page, detail: str | None = None) -> PageIndex:
    """Add a page with its own index, or with the next free one if that is empty."""
    if not isinstance(page, DetailPage | ContentsPage):
        raise InvalidValue(f"is {short_repr(page)}; a DetailPage or ContentsPage is needed.", argument="page")
    if page.parent is None:
        raise InvalidOperation(f"Page {short_repr(page.index)} has no parent; only the root of a segment has none.")
    above = require_folder(plan, page.parent, "add a page to")
    is_leaf = isinstance(page, DetailPage)
    if detail is not None and not is_leaf:
        raise InvalidValue("is given, but a folder has no text; give it to a page in the folder.", argument="detail")
    text = check_text(plan.redact("" if detail is None else detail)) if is_leaf else None
    count = check_whole_number(page.message_count, "message_count") if isinstance(page, DetailPage) else 0
    lifecycle = check_choice(Lifecycle, page.lifecycle, "lifecycle")
    if lifecycle is Lifecycle.COLD_ARCHIVED:
        raise InvalidOperation(
            "A page cannot be added to the cold archive directly; add it first.",
            Hint("archive", arguments="index, cold=True", purpose="then"),
        )
    visibility = check_choice(Visibility, page.visibility, "visibility")
    header = new_header(plan, page.name, page.description, page.meta, text)
    header = replace(header, messages=count, lifecycle=lifecycle, visibility=visibility)
    return _add(plan, _new_key(plan, page.index, above), above, header, page.pinned)


def update_page(
    plan: Plan,
    index: PageIndex,
    *,
    name: str | None = None,
    description: str | None = None,
    meta: Mapping[str, Any] | None = None,
    detail: str | None = None,
) -> None:
    """Change a page's name, description, meta or body. None means no change."""
    record = require_attached(plan, index, "update")
    fields: dict[str, Any] = {}
    if name is not None:
        fields["name"] = check_one_line(plan.redact(name), "name", MAX_NAME, empty=False)
    if description is not None:
        fields["description"] = check_one_line(plan.redact(description), "description", MAX_DESCRIPTION)
        fields["summary_tokens"] = plan.count(fields["description"])
    if meta is not None:
        _check_not_window(record, index, "change the meta of")
        fields["meta"] = encode_meta(plan.redact_value(dict(meta) if isinstance(meta, Mapping) else meta))
    plan.change(record, **fields)
    if detail is not None:
        set_detail(plan, index, detail)


def set_detail(plan: Plan, index: PageIndex, detail: str) -> None:
    record = require_attached(plan, index, "change the text of")
    if record.header.folder:
        raise InvalidOperation(f"Cannot change the text of {index!r}: it is a folder; give the text to a page in it.")
    if record.header.numbers:
        raise InvalidOperation(
            f"Cannot change the text of {index!r}: it holds messages.",
            Hint("conversation.replace", purpose="to replace messages"),
        )
    _check_not_window(record, index, "change the text of")
    text = check_text(plan.redact(detail))
    if text != plan.body(record.header.body):
        plan.change(record, body=plan.add_body(text), tokens=plan.count(text), clip=0)  # a new text has a new size


def move_page(
    plan: Plan, source: PageIndex, target: PageIndex, before: PageIndex | None = None
) -> dict[PageIndex, PageIndex]:
    record = require_attached(plan, source, "move")
    above = require_folder(plan, target, "move a page into")
    check_movable(plan, record, "move")
    if record.key == above.key or any(page.key == record.key for page in plan.ancestors(above)):
        raise InvalidOperation(f"Cannot move {source!r} into {target!r}: that is in its own subtree.")
    sibling = None if before is None else require_child(plan, above, before, "before")
    if _is_at(plan, record, above, sibling):
        return {}
    rank = plan.append_rank(above.key) if sibling is None else plan.rank_before(above.key, sibling.key)
    if segment_number(record.key) == segment_number(above.key):
        plan.place(record, above.key, rank)
        return {}
    return _move_to_segment(plan, record, above, rank)


def remove_page(plan: Plan, index: PageIndex) -> int:
    record = require_attached(plan, index, "remove")
    check_movable(plan, record, "remove")
    keys = [page.key for _, page in plan.subtree(record)]
    for key in keys:
        plan.remove(key)
    return len(keys)


def new_header(plan: Plan, name: object, description: object, meta: object, text: str | None) -> Header:
    """Return the header of a new leaf with this text, or of a new folder (None)."""
    summary = check_one_line(plan.redact(description), "description", MAX_DESCRIPTION)
    return Header(
        folder=text is None,
        name=check_one_line(plan.redact(name), "name", MAX_NAME, empty=False),
        description=summary,
        **plan.origin(),
        summary_tokens=plan.count(summary),
        tokens=plan.count(text or ""),
        body=plan.add_body(text or ""),
        meta=encode_meta(plan.redact_value(dict(meta) if isinstance(meta, Mapping) else meta)),
    )


def _add(plan: Plan, key: int, above: PageRecord, header: Header, pinned: object, rank: int | None = None) -> PageIndex:
    if pinned is None:
        pinned = plan.in_system(above)
    elif not isinstance(pinned, bool):
        raise InvalidValue(
            f"is {short_repr(pinned)}; True, False or None (pinned in SYSTEM segments) is needed.", argument="pinned"
        )
    if pinned:
        header = replace(header, pinned=True)
    record = plan.create(key, above.key, plan.append_rank(above.key) if rank is None else rank, header)
    if pinned:
        open_chain(plan, record)
    return plan.index(key)


def _new_key(plan: Plan, index: object, above: PageRecord) -> int:
    """Return the key for a new page with this index. It must be canonical, unused, and of its parent's segment."""
    if index == "":
        return plan.next_key(segment_number(above.key))
    parts = parse_index(index)
    if parts is None:
        example = plan.index(above.key + 1)
        raise InvalidValue(
            f"is {short_repr(index)}, which is not canonical; it looks like {example!r}.", argument="index"
        )
    number = plan.number_of(parts.segment)
    if number is None:
        raise NoSuchSegment(parts.segment, [plan.counters[n].segment for n, _ in plan.live_segments()])
    if number != segment_number(above.key):
        raise InvalidOperation(f"Page {index!r} cannot be in {plan.index(above.key)!r}: that is another segment.")
    key = page_key(number, parts.number)
    if plan.page(key) is not None:
        raise InvalidOperation(
            f"Page index {index!r} was used before.",
            Hint("generate_index", arguments="segment_id", purpose="for an unused one"),
        )
    plan.use_number(number, parts.number)
    return key


def _require_children(plan: Plan, above: PageRecord, children: Iterable[PageIndex]) -> list[PageRecord]:
    if isinstance(children, str) or not isinstance(children, Iterable):
        raise InvalidValue(f"is {short_repr(children)}; a list of page indices is needed.", argument="children")
    records = [require_attached(plan, child, "gather") for child in children]
    forbidden = {above.key, *(page.key for page in plan.ancestors(above))}
    counts = Counter(record.key for record in records)
    for record in records:
        index = plan.index(record.key)
        check_movable(plan, record, "gather")
        if segment_number(record.key) != segment_number(above.key):
            raise InvalidOperation(
                f"Cannot gather {index!r} in a folder of another segment.",
                Hint("move_page", index, arguments="target", purpose="first"),
            )
        if record.key in forbidden:
            raise InvalidOperation(f"Cannot gather {index!r}: the new folder would be in its own subtree.")
        if counts[record.key] > 1:
            raise InvalidValue(f"names {index!r} twice.", argument="children")
        if any(page.key in counts for page in plan.ancestors(record)):
            raise InvalidOperation(f"Cannot gather {index!r}: a page above it is gathered too.")
    return records


def _is_at(plan: Plan, record: PageRecord, above: PageRecord, sibling: PageRecord | None) -> bool:
    """Return True if the page is already at the requested place."""
    if record.parent != above.key:
        return False
    return sibling in (record, next(plan.members(above.key, after=slot_of(record)), None))


def _move_to_segment(plan: Plan, record: PageRecord, above: PageRecord, rank: int) -> dict[PageIndex, PageIndex]:
    """Give a subtree new keys in another segment; each old key refers to the new one."""
    moved = {page.key: page for _, page in plan.subtree(record)}
    for page in moved.values():
        _check_not_window(page, plan.index(page.key), "move to another segment")
    number = segment_number(above.key)
    keys = {key: plan.next_key(number) for key in moved}
    fields: dict[str, Any] = {"seq": plan.seq, "line_tokens": 0}  # the line contains the new index
    if plan.in_system(above):
        fields |= {"pinned": True, "lifecycle": Lifecycle.ACTIVE, "visibility": Visibility.EXPANDED}
    for old, page in moved.items():
        parent = above.key if old == record.key or page.parent is None else keys[page.parent]
        plan.create(
            keys[old],
            parent,
            rank if old == record.key else page.rank,
            replace(page.header, **fields, age=max(0, plan.now - page.header.created)),
        )
        plan.remove(old, moved_to=keys[old])
    if plan.in_system(above):
        open_chain(plan, above)
    return {plan.index(old): plan.index(new) for old, new in keys.items()}


def _check_not_window(record: PageRecord, index: object, doing: str) -> None:
    if record.header.form is Form.WINDOW:
        raise InvalidOperation(f"Cannot {doing} {index!r}: it is a window of an app. Act in the window instead.")
