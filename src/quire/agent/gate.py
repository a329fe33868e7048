"""The one gate that every operation of an agent goes through."""

from quire.agent.rights import ALLOWED, OPERATIONS, WHOLE_SUBTREE, Right
from quire.agent.sight import Sight
from quire.errors import PermissionDenied, shown
from quire.pages import SegmentType
from quire.records import PageRecord, SegmentRecord, segment_number


class Gate:
    """Decides whether an agent may do something. `manage` lets it add, remove and open or close whole segments."""

    def __init__(self, manage: bool = False) -> None:
        self.manage = manage

    def page(self, sight: Sight, operation: str, index: object, *, takes_along: bool | None = None) -> PageRecord:
        """The page, if the operation is allowed on it. Raises `NoSuchPage` or `PermissionDenied`.

        `takes_along` says whether everything below it is concerned; by default as the operation has it.
        """
        right = _right(operation)
        page = sight.live(index)
        number = segment_number(page.key)
        self._segment(sight, operation, right, number, str(index))
        if right in (Right.HIDE, Right.WRITE):
            self._unpinned(sight, operation, page, operation in WHOLE_SUBTREE if takes_along is None else takes_along)
        return page

    def segment(self, sight: Sight, operation: str, segment_id: object) -> int:
        """The segment's number, if the operation is allowed on it. Raises `NoSuchSegment` or `PermissionDenied`."""
        right = _right(operation)
        number = sight.live_segment(segment_id)
        if right is Right.MANAGE:
            self.managing(operation)
        segment = self._segment(sight, operation, right, number, f"segment {segment_id!r}")
        if right is Right.MANAGE and segment.type is SegmentType.SYSTEM:
            raise PermissionDenied(
                f"operation '{operation}' on segment {segment_id!r}: SYSTEM segments are the developer's"
            )
        return number

    def managing(self, operation: str) -> None:
        """Refuse what only an agent that manages segments may do."""
        _right(operation)
        if not self.manage:
            raise PermissionDenied(f"operation '{operation}' is for agents that the developer lets manage segments")

    def _segment(self, sight: Sight, operation: str, right: Right, number: int, where: str) -> SegmentRecord:
        segment = sight.segment(number)
        if segment is None:
            raise sight.broken(f"segment record {number} is missing.")
        if segment.permission not in ALLOWED[right]:
            raise PermissionDenied(
                f"operation '{operation}' on {where} needs {right.needs}, segment"
                f" '{sight.counters[number].segment}' is {segment.permission.name}"
            )
        return segment

    def _unpinned(self, sight: Sight, operation: str, page: PageRecord, takes_along: bool) -> None:
        below = takes_along and page.header.folder and sight.pinned_below(page.key)
        if page.header.pinned or below:
            what = "is pinned" if page.header.pinned else "holds a pinned page"
            where = sight.index(page.key)
            raise PermissionDenied(f"operation '{operation}' on {where}: it {what} and stays as the developer left it")


def _right(operation: str) -> Right:
    right = OPERATIONS.get(operation)
    if right is None:
        raise PermissionDenied(f"operation {shown(operation)} is not one that an agent has")
    return right
