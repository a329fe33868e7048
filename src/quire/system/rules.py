"""Rules that all operations share: checks of arguments, of the pages that may be changed, and of finished plans.

A `Quota` limits what one actor may add. Nothing is ever lost in a context, so everything that an actor added counts for
good, even after it was removed.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import TypeVar

from msgspec import Struct

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import AGENTS, Gone, PageRecord, page_number, segment_number
from quire.errors import Hint, InvalidOperation, InvalidValue, QuotaExceeded, short_repr
from quire.model.pages import Lifecycle, Mark, OptionsMeta, Permission, Visibility, format_index

Choice = TypeVar("Choice", bound=IntEnum)


def require_attached(reader: Reader, index: object, doing: str) -> PageRecord:
    """Return the page if it is in the tree. Raises `NoSuchPage`, or `InvalidOperation` for a cold page."""
    record = reader.require_page(index)
    if record.header.mark is not Mark.NONE:
        raise marked_error(reader, record, doing)
    if reader.cold_top(record) is not None:
        raise InvalidOperation(
            f"Cannot {doing} {index!r}: it is in the cold archive.",
            Hint("recall", str(index), purpose="to bring it back"),
        )
    return record


def marked_error(reader: Reader, record: PageRecord, doing: str) -> InvalidOperation:
    """Return the error for a page whose messages an edit took out of the conversation."""
    mark, seq = record.header.mark.name.lower(), record.header.seq
    return InvalidOperation(
        f"Cannot {doing} {reader.index(record.key)!r}: its messages are not in the conversation ({mark}, entry {seq}).",
        Hint("undo", arguments=str(seq), purpose="to bring them back"),
    )


def folder_index(reader: Reader, index: object) -> object:
    """Return the index of a segment's root for the id of the segment, and any other value as it is."""
    if not isinstance(index, str) or not index or reader.key_of(index) is not None:
        return index
    number = reader.number_of(index)
    segment = None if number is None else reader.segment(number)
    return index if segment is None or segment.gone else format_index(index, 0)


def require_folder(reader: Reader, index: object, doing: str) -> PageRecord:
    """Return the page if it is a folder in the tree. The id of a segment is its root."""
    record = require_attached(reader, folder_index(reader, index), doing)
    if not record.header.folder:
        raise InvalidOperation(f"Cannot {doing} {index!r}: it is not a folder.")
    return record


def check_movable(reader: Reader, record: PageRecord, doing: str) -> None:
    """Raise `InvalidOperation` for a root, a pinned page, a page above a pinned one, and an open exchange."""
    if record.is_root:
        index = reader.index(record.key)
        raise InvalidOperation(f"Cannot {doing} {index!r}: it is the root of its segment; give pages below it.")
    check_unpinned(reader, record, doing)
    check_not_waiting(reader, record, doing)


def check_unpinned(reader: Reader, record: PageRecord, doing: str) -> None:
    """Raise `InvalidOperation` for a pinned page and a page above a pinned one."""
    pinned = record if record.header.pinned else None
    if record.header.folder and reader.pinned_below(record.key):
        pinned = pinned or next(page for _, page in reader.subtree(record) if page.header.pinned)
    if pinned is not None:
        which = "it" if pinned is record else f"{reader.index(pinned.key)!r} below it"
        raise InvalidOperation(
            f"Cannot {doing} {reader.index(record.key)!r}: {which} is pinned.",
            Hint("unpin", reader.index(pinned.key), purpose="first"),
        )


def check_not_waiting(reader: Reader, record: PageRecord, doing: str) -> None:
    """Raise `InvalidOperation` for the exchange that waits for results, and for a folder above it."""
    waiting = reader.open_exchange() if segment_number(record.key) == reader.conversation() else None
    if waiting is not None and record.key in (waiting.key, *(above.key for above in reader.ancestors(waiting))):
        calls = ", ".join(map(repr, waiting.header.pending))
        who = "it" if waiting.key == record.key else f"{reader.index(waiting.key)!r} below it"
        raise InvalidOperation(
            f"Cannot {doing} {reader.index(record.key)!r}: {who} waits for the results of {calls}.",
            Hint("tool_result", arguments="call_id, content", purpose="to give one"),
            Hint("close_calls", purpose="to stop waiting"),
        )


def require_child(reader: Reader, folder: PageRecord, index: object, field: str, *, cold: bool = False) -> PageRecord:
    """Return the page if it is a child of the folder, or with `cold` was one before. Raises `InvalidValue`."""
    record = reader.require_page(index)
    if record.parent != folder.key or record.is_cold is not cold:
        above = reader.index(folder.key)
        raise InvalidValue(f"is {short_repr(index)}, which is not a child of {above!r}.", argument=field)
    return record


def why_shown(reader: Reader, record: PageRecord) -> str:
    """Return why a page can never be hidden; empty if it can be."""
    if record.is_root and reader.in_system(record):
        return "the root of a SYSTEM segment is always shown"
    is_conversation = record.is_root and segment_number(record.key) == reader.conversation()
    return "the conversation's root is always shown" if is_conversation else ""


def check_whole_number(value: object, field: str) -> int:
    """Return the value if it is a whole number from 0. Raises `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise InvalidValue(f"is {short_repr(value)}; a whole number from 0 is needed.", argument=field)
    return value


def check_bool(value: object, field: str) -> bool:
    """Return the value if it is True or False. Raises `InvalidValue`."""
    if not isinstance(value, bool):
        raise InvalidValue(f"is {short_repr(value)}; True or False is needed.", argument=field)
    return value


def check_choice(kind: type[Choice], value: object, field: str) -> Choice:
    """Return the value as a member of the enum, given as a member or its number. Raises `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in list(kind):
        accepted = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise InvalidValue(f"is {short_repr(value)}; use {accepted}.", argument=field)
    return kind(value)


def check_plan(plan: Plan) -> None:
    """Raise `InvalidOperation` if a plan made from earlier states (not by an operation) would break an invariant."""
    sound: set[int] = set()
    for key, page in plan.pages.items():
        if isinstance(page, Gone):
            _check_removal(plan, key)
            continue
        for _, text in broken_rules(plan, page, sound):
            raise InvalidOperation(f"{plan.index(key)!r} would break a rule: {text}.")
        if page.header.lifecycle is not Lifecycle.ACTIVE or page.header.visibility is Visibility.HIDDEN:
            check_unpinned(plan, page, "hide")
    check_segments(plan)


def check_segments(plan: Plan) -> None:
    """Raise `InvalidOperation` if a page would lose its segment, for the empty id, and for a PRIVATE conversation."""
    for number, segment in plan.segments.items():
        page = next(plan.segment_pages(number), None) if segment.gone else None
        if page is not None:
            raise InvalidOperation(
                f"Segment {plan.counters[number].segment!r} cannot be removed: {plan.index(page.key)!r} was added later"
                f" (entry {page.header.born})."
            )
    live = {plan.counters[number].segment: segment for number, segment in plan.live_segments()}
    if "" in live and len(live) > 1:
        raise InvalidOperation("A segment with the empty id must be the only one; give every segment an id.")
    conversation = plan.conversation()
    name = None if conversation is None else plan.counters[conversation].segment
    if name is not None and live[name].permission is Permission.PRIVATE:
        raise InvalidOperation(f"Segment {name!r} holds the conversation and cannot be PRIVATE.")


def check_conversation_kept(plan: Plan) -> None:
    """Raise `InvalidOperation` if a plan would remove the conversation."""
    conversation = plan.state.conversation()
    if conversation is not None and plan.conversation() != conversation:
        raise InvalidOperation(
            f"Segment {plan.counters[conversation].segment!r} holds the conversation and cannot be removed."
        )


def _check_removal(plan: Plan, key: int) -> None:
    child = next(plan.members(key), None)
    if child is not None:
        raise InvalidOperation(
            f"{plan.index(key)!r} cannot be removed: {plan.index(child.key)!r} below it was added later"
            f" (entry {child.header.born})."
        )
    segment = plan.segment(segment_number(key))
    if page_number(key) == 0 and segment is not None and not segment.gone:
        raise InvalidOperation(f"{plan.index(key)!r} cannot be removed: it is the root of its segment.")


def broken_rules(reader: Reader, page: PageRecord, sound: set[int]) -> Iterator[tuple[int, str]]:
    """Yield the invariants that a page breaks: their numbers (see `Problem`), and what is wrong.

    `sound` collects the pages from which the way up ends at a root or at the top of a cold subtree.
    """
    header, segment = page.header, reader.segment(segment_number(page.key))
    if segment is None or segment.gone:
        yield 5, "its segment was removed"
    if page.is_root is not (page.parent is None):
        yield 2, "only a root has no parent"
    if page.is_root and header.lifecycle is not Lifecycle.ACTIVE:
        yield 3, "a root is never archived"
    if page.parent is not None and not page.is_cold:
        parent, index = reader.page(page.parent), reader.index(page.parent)
        if not isinstance(parent, PageRecord) or not parent.header.folder:
            yield 2, f"its parent {index!r} does not exist or is not a folder"
        elif segment_number(parent.key) != segment_number(page.key):
            yield 5, f"its parent {index!r} is in another segment"
    if not _reaches_top(reader, page, sound):
        yield 4, "it is in its own subtree, or a folder above it does not exist"
    elif header.pinned and not _is_shown_whole(reader, page):
        yield 6, "it is pinned and not shown in full"
    if header.visibility is Visibility.HIDDEN and (reason := why_shown(reader, page)):
        yield 3, reason


def _is_shown_whole(reader: Reader, page: PageRecord) -> bool:
    is_open = page.header.visibility is Visibility.EXPANDED
    return is_open and reader.effective_lifecycle(page) is Lifecycle.ACTIVE


def _reaches_top(reader: Reader, page: PageRecord, sound: set[int]) -> bool:
    seen: set[int] = set()
    above: PageRecord | Gone | None = page
    while isinstance(above, PageRecord) and above.key not in seen:
        seen.add(above.key)
        if above.key in sound or above.parent is None or above.is_cold:
            sound |= seen
            return True
        above = reader.page(above.parent)
    return False


class Quota(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """Limits for one agent: pages and bytes of text in total, nesting depth, and tool calls in one turn.

    Bytes are counted for every text, name and summary that the agent writes, each time it writes them.
    """

    pages: int = 10_000
    bytes: int = 16_000_000
    depth: int = 16
    calls: int = 100


def check_quota(quota: Quota) -> Quota:
    """Return the quota. Raise `InvalidValue` if one of its fields is not a whole number from 0."""
    if not isinstance(quota, Quota):
        raise InvalidValue(f"is {short_repr(quota)}; a quire.Quota is needed.", argument="quota")
    for field in quota.__struct_fields__:
        value = getattr(quota, field)
        if type(value) is not int or value < 0:  # no upper limit: sys.maxsize is a usual way to say "unlimited"
            raise InvalidValue(f"is {short_repr(value)}; a whole number from 0 is needed.", argument=f"quota.{field}")
    return quota


def charge(plan: Plan, quota: Quota) -> None:
    """Add what a plan writes to the totals of its actor. Raise `QuotaExceeded` if that is too much."""
    written = [page for page in plan.pages.values() if isinstance(page, PageRecord)]
    pages = sum(page.header.born == plan.seq for page in written)
    size = sum(map(_byte_count, plan.bodies.values())) + sum(_new_title_bytes(plan, page) for page in written)
    if pages or size:
        key = AGENTS + plan.author()
        note = plan.note(key)
        before = note.used if note else (0, 0)
        used = (before[0] + pages, before[1] + size)
        for total, limit, unit in zip(used, (quota.pages, quota.bytes), ("pages", "bytes"), strict=True):
            if total > limit:
                raise QuotaExceeded(f"You would have added {total:,} {unit} in total; the limit is {limit:,}.")
        plan.put_note(key, used=used)
    for page in written:
        _check_depth(plan, page, quota.depth)


def _new_title_bytes(plan: Plan, page: PageRecord) -> int:
    """Return the bytes of the page's name and summary that this plan changes."""
    header, old = page.header, plan.stored_page(page.key)
    if not isinstance(old, PageRecord):
        return _byte_count(header.name) + _byte_count(header.description) if header.born == plan.seq else 0
    texts = ((old.header.name, header.name), (old.header.description, header.description))
    return sum(_byte_count(now) for before, now in texts if now != before)


def _byte_count(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _check_depth(plan: Plan, page: PageRecord, limit: int) -> None:
    if page.parent is None or page.is_cold:
        return
    old = plan.stored_page(page.key)
    if isinstance(old, PageRecord) and old.parent == page.parent:
        return
    height = max((depth for depth, _ in plan.subtree(page)), default=0)
    depth = sum(1 for _ in plan.ancestors(page)) + height
    if depth > limit:
        raise QuotaExceeded(f"{plan.index(page.key)} would be {depth} levels deep; the limit is {limit}.")
