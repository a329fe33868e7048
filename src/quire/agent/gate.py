"""The one gate that every operation of an agent goes through."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from quire.agent.rights import ALLOWED, OPERATIONS, WHOLE_SUBTREE, Right
from quire.agent.sight import Sight
from quire.errors import PermissionDenied, shown
from quire.pages import Permission, SegmentType
from quire.records import PageRecord, SegmentRecord, segment_number


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
        page = sight.live(index)
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
        number = sight.live_segment(segment_id)
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
        raise PermissionDenied(f"operation {shown(operation)} is not one that an agent has")
    return rule


def _refusal(
    sight: Sight, operation: str, rule: _Rule, number: int, segment: SegmentRecord, where: str
) -> PermissionDenied:
    return PermissionDenied(
        f"operation '{operation}' on {where} needs {rule.right.needs}, segment"
        f" '{sight.counters[number].segment}' is {segment.permission.name}"
    )
