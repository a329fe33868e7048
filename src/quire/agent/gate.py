"""What an agent may do, as data: one table of operations, and the permissions that allow each kind of them.

What an agent can see: everything but PRIVATE segments and messages that are out of the conversation.

It does not see that there is something it cannot see: an index of a PRIVATE page is no page, its segment's id no
segment, and no error or list tells.

How much an agent may add. Nothing is ever lost here, so what it added counts for good, removed or not.

The one gate that every operation of an agent goes through.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from quire.core.plan import Plan
from quire.core.reader import Reader, ReaderProxy
from quire.core.records import AGENTS, Gone, PageRecord, SegmentRecord, page_key, segment_number
from quire.errors import InvalidValue, PermissionDenied, QuotaExceeded, short_repr
from quire.model.pages import Form, Mark, PageIndex, Permission, SegmentType


class Right(Enum):
    """What an operation needs: to read (or open), to hide, to write, or to manage segments."""

    READ = "read"
    HIDE = "hide"
    WRITE = "write"
    MANAGE = "manage"

    @property
    def needs(self) -> str:
        """The least permission that allows it."""
        return min(ALLOWED[self]).name


OPERATIONS: Mapping[str, Right] = MappingProxyType(
    {
        "get_segment": Right.READ,
        "list_segments": Right.READ,
        "get_page": Right.READ,
        "children": Right.READ,
        "parent": Right.READ,
        "ancestors": Right.READ,
        "find": Right.READ,
        "read_page": Right.READ,
        "view": Right.READ,
        "budget": Right.READ,
        "expand_details": Right.READ,
        "hide_details": Right.HIDE,
        "update_page": Right.WRITE,
        "set_detail": Right.WRITE,
        "move_page": Right.WRITE,
        "remove_page": Right.WRITE,
        "create_detail_page": Right.WRITE,
        "create_contents_page": Right.WRITE,
        "archive": Right.WRITE,
        "recall": Right.WRITE,
        "window": Right.WRITE,
        "remove_segment": Right.MANAGE,
        "set_permission": Right.MANAGE,
        "add_segment": Right.MANAGE,
    }
)
"""Every operation an agent has. What is not here is refused."""

_ALL = frozenset({Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED})

ALLOWED: Mapping[Right, frozenset[Permission]] = MappingProxyType(
    {
        Right.READ: _ALL,
        Right.HIDE: _ALL,
        Right.WRITE: frozenset({Permission.READ_WRITE, Permission.SYSTEM_MANAGED}),
        Right.MANAGE: frozenset({Permission.SYSTEM_MANAGED}),
    }
)
"""The permissions under which each kind of operation is allowed. PRIVATE is in none: such a segment is not there."""

WHOLE_SUBTREE = frozenset({"hide_details", "move_page", "remove_page", "archive"})
"""Operations that take everything below a page along: a pin below refuses them as a pin on the page does."""


_PRIVATE = Permission.PRIVATE
_UNMARKED = Mark.NONE


class Sight(ReaderProxy):
    """A reader with an agent's eyes."""

    removal_hints = ()

    def number_of(self, segment_id: str) -> int | None:
        number = self._reader.number_of(segment_id)
        return None if number is None or self._is_private(number) else number

    def segment(self, number: int) -> SegmentRecord | None:
        found = self._reader.segment(number)
        return None if found is None or found.permission is _PRIVATE else found

    def seen(self, number: int) -> SegmentRecord:
        """The segment of a page that was seen."""
        found = self.segment(number)
        if found is None:
            raise self.damage_error(f"segment record {number} is missing.")
        return found

    def page(self, key: int) -> PageRecord | Gone | None:
        if self._is_private(segment_number(key)):
            return None
        found = self._reader.page(key)
        if isinstance(found, PageRecord):
            return found if found.header.mark is _UNMARKED else Gone(found.header.seq)
        if found is not None and found.moved_to >= 0 and self._is_private(segment_number(found.moved_to)):
            return Gone(found.seq)
        return found

    def _is_private(self, number: int) -> bool:
        segment = self._reader.segment(number)
        return segment is None or segment.permission is _PRIVATE


def at_hand(reader: Reader) -> Iterator[int]:
    """The user's last message and the exchange that waits for results, while a turn is going on."""
    newest = True
    for page in _newest_first(reader):
        header = page.header
        if newest and header.form is Form.ASSISTANT and len(header.numbers) == 1 and not header.pending:
            return  # the user has been answered
        if header.pending:
            yield page.key
        if header.form is Form.USER:
            yield page.key
            return
        newest = False


def _newest_first(reader: Reader) -> Iterator[PageRecord]:
    conversation = reader.conversation()
    rows = [] if conversation is None else [reader.members(page_key(conversation, 0), reverse=True)]
    while rows:
        page = next(rows[-1], None)
        if page is None:
            rows.pop()
        elif page.header.folder:
            rows.append(reader.members(page.key, reverse=True))
        elif page.header.numbers:
            yield page


class Quota(Struct, frozen=True, kw_only=True):
    """What an agent may add in all (pages, bytes of text), how deep it may nest, and its tool calls in one turn.

    Bytes are those of bodies, names and summaries that it writes, again and again if it writes them again.
    """

    pages: int = 10_000
    bytes: int = 16_000_000
    depth: int = 16
    calls: int = 100


def check_quota(quota: Quota) -> Quota:
    """The quota if all of it makes sense. Raises `InvalidValue`."""
    if not isinstance(quota, Quota):
        raise InvalidValue(f"quota is {short_repr(quota)}; a quire.Quota is needed.")
    for field in quota.__struct_fields__:
        value = getattr(quota, field)
        if type(value) is not int or value < 0:
            raise InvalidValue(f"quota.{field} is {short_repr(value)}; a whole number from 0 is needed.")
    return quota


def charge(plan: Plan, quota: Quota) -> None:
    """Count what a plan adds for its actor, and refuse what is too much. Raises `QuotaExceeded`."""
    written = [page for page in plan.pages.values() if isinstance(page, PageRecord)]
    pages = sum(page.header.born == plan.seq for page in written)
    size = sum(map(_size, plan.bodies.values())) + sum(_words(plan, page) for page in written)
    if pages or size:
        key = AGENTS + plan.author()
        note = plan.note(key)
        before = note.used if note else (0, 0)
        used = (before[0] + pages, before[1] + size)
        for has, most, what in zip(used, (quota.pages, quota.bytes), ("pages", "bytes"), strict=True):
            if has > most:
                raise QuotaExceeded(f"this would be {has:,} {what} added in all, the limit is {most:,}")
        plan.put_note(key, used=used)
    for page in written:
        _shallow(plan, page, quota.depth)


def _words(plan: Plan, page: PageRecord) -> int:
    """The bytes of a name and a summary, as far as they are new."""
    header, old = page.header, plan.stored_page(page.key)
    if not isinstance(old, PageRecord):
        return _size(header.name) + _size(header.description) if header.born == plan.seq else 0
    words = ((old.header.name, header.name), (old.header.description, header.description))
    return sum(_size(now) for was, now in words if now != was)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _shallow(plan: Plan, page: PageRecord, most: int) -> None:
    if page.parent is None or page.is_cold:
        return
    old = plan.stored_page(page.key)
    if isinstance(old, PageRecord) and old.parent == page.parent:
        return
    height = max((depth for depth, _ in plan.subtree(page)), default=0)
    depth = sum(1 for _ in plan.ancestors(page)) + height
    if depth > most:
        index: PageIndex = plan.index(page.key)
        raise QuotaExceeded(f"{index} would stand {depth} levels deep, the limit is {most}")


class _Rule(NamedTuple):
    """A row of the table, made ready: asking must cost next to nothing."""

    right: Right
    allowed: tuple[Permission, ...]
    touches: bool
    """Whether a pin refuses it."""
    takes_along: bool
    manages: bool


_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        operation: _Rule(
            right,
            tuple(ALLOWED[right]),
            right in (Right.HIDE, Right.WRITE),
            operation in WHOLE_SUBTREE,
            right is Right.MANAGE,
        )
        for operation, right in OPERATIONS.items()
    }
)


class Gate:
    """Decides whether an agent may do something. `manage` lets it add, remove and open or close whole segments."""

    def __init__(self, manage: bool = False) -> None:
        self.manage = manage

    def page(self, sight: Sight, operation: str, index: object, *, takes_along: bool | None = None) -> PageRecord:
        """The page, if the operation is allowed on it. Raises `NoSuchPage` or `PermissionDenied`.

        `takes_along` says whether everything below it is concerned; by default as the operation has it.
        """
        rule = _rule(operation)
        page = sight.require_page(index)
        number = segment_number(page.key)
        segment = sight.seen(number)
        if segment.permission not in rule.allowed:
            raise _refusal(sight, operation, rule, number, segment, str(index))
        if rule.touches:
            self._unpinned(sight, operation, page, rule.takes_along if takes_along is None else takes_along)
        elif rule.manages:
            self._managed(operation, segment, str(index))
        return page

    def segment(self, sight: Sight, operation: str, segment_id: object) -> int:
        """The segment's number, if the operation is allowed on it. Raises `NoSuchSegment` or `PermissionDenied`."""
        rule = _rule(operation)
        number = sight.require_segment(segment_id)
        where, segment = f"segment {segment_id!r}", sight.seen(number)
        if rule.manages:
            self._managed(operation, segment, where)
        if segment.permission not in rule.allowed:
            raise _refusal(sight, operation, rule, number, segment, where)
        return number

    def managing(self, operation: str) -> None:
        """Refuse what only an agent that manages segments may do."""
        _rule(operation)
        if not self.manage:
            raise PermissionDenied(f"operation '{operation}' is for agents that the developer lets manage segments")

    def _managed(self, operation: str, segment: SegmentRecord, where: str) -> None:
        self.managing(operation)
        if segment.type is SegmentType.SYSTEM:
            raise PermissionDenied(f"operation '{operation}' on {where}: SYSTEM segments are the developer's")

    def _unpinned(self, sight: Sight, operation: str, page: PageRecord, takes_along: bool) -> None:
        below = takes_along and page.header.folder and sight.pinned_below(page.key)
        if page.header.pinned or below:
            what = "is pinned" if page.header.pinned else "holds a pinned page"
            where = sight.index(page.key)
            raise PermissionDenied(f"operation '{operation}' on {where}: it {what} and stays as the developer left it")


def _rule(operation: str) -> _Rule:
    rule = _RULES.get(operation) if isinstance(operation, str) else None
    if rule is None:
        raise PermissionDenied(f"operation {short_repr(operation)} is not one that an agent has")
    return rule


def _refusal(
    sight: Sight, operation: str, rule: _Rule, number: int, segment: SegmentRecord, where: str
) -> PermissionDenied:
    return PermissionDenied(
        f"operation '{operation}' on {where} needs {rule.right.needs}, segment"
        f" '{sight.counters[number].segment}' is {segment.permission.name}"
    )
