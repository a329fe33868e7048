"""What an agent may do, as data: one table of operations, and the permissions that allow each kind of them."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from quire.pages import Permission


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
