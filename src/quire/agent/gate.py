"""Permissions of agents: the table of operations, the pages an agent can see, and the gate that checks both.

Every operation of an agent passes the gate. A PRIVATE segment does not exist for an agent: an index in it names no
page, its id names no segment, and no error and no list reveals it.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from quire.core.reader import Reader
from quire.core.records import Gone, PageRecord, SegmentRecord, segment_number
from quire.errors import Hint, InvalidOperation, PermissionDenied, short_repr
from quire.model.pages import READABLE, Form, Permission, SegmentType
from quire.system.compressed_summaries import read_originals


class Right(Enum):
    """The kind of access that an operation needs: reading (or opening), hiding, writing, or managing segments."""

    READ = "read"
    HIDE = "hide"
    WRITE = "write"
    MANAGE = "manage"

    @property
    def needs(self) -> str:
        """The name of the lowest permission that allows it."""
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
"""Every operation of an agent. An operation that is not in this table is refused."""

_ALL = frozenset({Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED})

ALLOWED: Mapping[Right, frozenset[Permission]] = MappingProxyType(
    {
        Right.READ: _ALL,
        Right.HIDE: _ALL,
        Right.WRITE: frozenset({Permission.READ_WRITE, Permission.SYSTEM_MANAGED}),
        Right.MANAGE: frozenset({Permission.SYSTEM_MANAGED}),
    }
)
"""The permissions that allow each right. PRIVATE is in none of them."""

WHOLE_SUBTREE = frozenset({"hide_details", "move_page", "remove_page", "archive"})
"""Operations on everything below a page: a pinned page below refuses them, like a pin on the page itself."""


_PRIVATE = Permission.PRIVATE


class VisibleReader(Reader):
    """A reader of what an agent can see: no PRIVATE segments, and no messages that left the conversation.

    Compressed messages can be read: they are behind their summary.
    """

    removal_hints = ()

    def number_of(self, segment_id: str) -> int | None:
        number = self._reader.number_of(segment_id)
        return None if number is None or self._is_private(number) else number

    def segment(self, number: int) -> SegmentRecord | None:
        segment = self._reader.segment(number)
        return None if segment is None or segment.permission is _PRIVATE else segment

    def page(self, key: int) -> PageRecord | Gone | None:
        if self._is_private(segment_number(key)):
            return None
        page = self._reader.page(key)
        if isinstance(page, PageRecord):
            return page if page.header.mark in READABLE else Gone(page.header.seq)
        if page is not None and page.moved_to >= 0 and self._is_private(segment_number(page.moved_to)):
            return Gone(page.seq)
        return page

    def segment_record(self, number: int) -> SegmentRecord:
        """Return the segment of this number, which a visible page or id refers to."""
        segment = self.segment(number)
        if segment is None:
            raise self.damage_error(f"segment record {number} is missing.")
        return segment

    def _is_private(self, number: int) -> bool:
        segment = self._reader.segment(number)
        return segment is None or segment.permission is _PRIVATE


def current_turn_pages(reader: Reader) -> Iterator[int]:
    """Yield the keys of the user's last message and of the exchange that waits for results.

    A model has both in front of it and need not search for them. Once the user is answered, there are none.
    """
    newest = True
    for page in (page for page in reader.newest_leaves() if page.header.numbers):
        header = page.header
        if newest and header.form is Form.ASSISTANT and len(header.numbers) == 1 and not header.pending:
            return  # the user has been answered
        if header.pending:
            yield page.key
        if header.form is Form.USER:
            yield page.key
            return
        newest = False


class _Rule(NamedTuple):
    """A row of the permission table, computed once so that a check costs little."""

    right: Right
    allowed: tuple[Permission, ...]
    refuses_pinned: bool
    whole_subtree: bool
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
    """Decides what an agent may do.

    `manage` lets the agent add and remove segments and set permissions, and `remove_user_messages` remove messages of
    the user.
    """

    def __init__(self, manage: bool = False, *, remove_user_messages: bool = False) -> None:
        self.manage = manage
        self._removes_user_messages = remove_user_messages

    def page(
        self, reader: VisibleReader, operation: str, index: object, *, whole_subtree: bool | None = None
    ) -> PageRecord:
        """Return the page. Raise `NoSuchPage` or `PermissionDenied` unless the operation is allowed on it.

        Raise `InvalidOperation` for the root of a SYSTEM segment, which cannot be hidden. `whole_subtree` overrides
        whether the operation concerns everything below the page.
        """
        rule = _rule(operation)
        page = reader.require_page(index)
        number = segment_number(page.key)
        segment = reader.segment_record(number)
        if segment.permission not in rule.allowed:
            raise PermissionDenied(_needs(reader, rule, number, segment), operation=operation, page=str(index))
        if rule.refuses_pinned:
            if page.header.pinned or page.header.folder:  # most pages are leaves without a pin
                below = rule.whole_subtree if whole_subtree is None else whole_subtree
                self._check_pins(reader, operation, page, below)
            if rule.right is Right.HIDE and page.parent is None and segment.type is SegmentType.SYSTEM:
                raise InvalidOperation(f"Cannot hide {str(index)!r}: the root of a SYSTEM segment is always shown.")
            if operation == "remove_page" and not self._removes_user_messages:
                _check_no_user_message(reader, page)
        elif rule.manages:
            self._check_managed(operation, segment, page=str(index))
        return page

    def segment(self, reader: VisibleReader, operation: str, segment_id: object) -> int:
        """Return the number of a segment. Raise `NoSuchSegment` or `PermissionDenied`."""
        rule = _rule(operation)
        number = reader.require_segment(segment_id)
        segment = reader.segment_record(number)
        if rule.manages:
            self._check_managed(operation, segment, place=f"on segment {segment_id!r} ")
        if segment.permission not in rule.allowed:
            fact = _needs(reader, rule, number, segment)
            raise PermissionDenied(f"on segment {segment_id!r} {fact}", operation=operation)
        return number

    def check_manages(self, operation: str) -> None:
        """Raise `PermissionDenied` unless the agent may manage segments."""
        _rule(operation)
        if not self.manage:
            raise PermissionDenied("is for agents that may manage segments.", operation=operation)

    def _check_managed(
        self, operation: str, segment: SegmentRecord, *, page: str | None = None, place: str = ""
    ) -> None:
        self.check_manages(operation)
        if segment.type is SegmentType.SYSTEM:
            fact = f"{place}is refused: only the developer manages SYSTEM segments."
            raise PermissionDenied(fact, operation=operation, page=page)

    def _check_pins(self, reader: VisibleReader, operation: str, page: PageRecord, below: bool) -> None:
        if page.header.pinned or (below and page.header.folder and reader.pinned_below(page.key)):
            what = "is pinned" if page.header.pinned else "holds a pinned page"
            fact = f"is refused: the page {what}, and only the developer can unpin it."
            raise PermissionDenied(fact, operation=operation, page=reader.index(page.key))


def _check_no_user_message(reader: VisibleReader, page: PageRecord) -> None:
    """Raise `PermissionDenied` if a message of the user, or its summary, is on a page or below it."""
    for _, leaf in reader.subtree(page):
        pages = [leaf, *read_originals(reader, leaf)] if leaf.header.form is Form.SUMMARY else [leaf]
        if any(found.header.form is Form.USER for found in pages):
            below = "" if leaf.key == page.key else f" in {reader.index(leaf.key)}"
            fact = f"is refused: only the developer can let an agent remove messages of the user{below}."
            index = reader.index(page.key)
            hints = () if page.is_root else (Hint("hide_details", index, purpose="to show only its line"),)
            raise PermissionDenied(fact, *hints, operation="remove_page", page=index)


def _rule(operation: str) -> _Rule:
    rule = _RULES.get(operation) if isinstance(operation, str) else None
    if rule is None:
        raise PermissionDenied(f"operation {short_repr(operation)} is not one that an agent has.")
    return rule


def _needs(reader: VisibleReader, rule: _Rule, number: int, segment: SegmentRecord) -> str:
    name = reader.counters[number].segment
    return f"needs {rule.right.needs}, segment '{name}' is {segment.permission.name}"
