"""Convert stored records to the public values: pages, segments and texts."""

from itertools import islice
from typing import Any

from quire.core.reader import Reader, slot_of
from quire.core.records import Header, PageRecord, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation
from quire.model.clock import to_datetime
from quire.model.messages import messages_to_text, quote_messages
from quire.model.pages import ContentsPage, DetailPage, Page, PageIndex, Segment, format_index
from quire.model.text import decode_meta
from quire.system.rules import check_whole_number, require_child


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
    """Return the record of a folder. Raises `InvalidOperation` for another page."""
    record = state.require_page(index)
    if not record.header.folder:
        raise InvalidOperation(f"{index!r} is not a folder.", Hint("detail", index, purpose="to read it"))
    return record


def list_children(
    state: State, index: PageIndex, after: PageIndex | None, limit: int | None, *, cold: bool
) -> list[Page]:
    """Return a folder's children after one of them, at most `limit`; with `cold` the cold pages that were in it."""
    record = find_folder(state, index)
    start = None if after is None else slot_of(require_child(state, record, after, "after", cold=cold))
    most = None if limit is None else check_whole_number(limit, "limit")
    if cold and most is None:  # the check reads the whole segment, so a part of the list is read without it
        state.check_segment(segment_number(record.key))
    elif not cold and (after is not None or most is not None):
        state.check_folder(record.key)
    return [to_page(state, page) for page in islice(state.members(record.key, after=start, cold=cold), most)]


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
