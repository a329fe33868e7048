"""The rights of an agent, written from what is promised of them (docs/agent.md), not from the code.

The matrix compares the agent and its tools with this. It knows the pages as the test created them.
"""

from dataclasses import dataclass
from typing import Literal

PermissionName = Literal["READ_ONLY", "READ_WRITE", "SYSTEM_MANAGED", "PRIVATE"]
State = Literal["expanded", "hidden", "hot", "below hidden", "cold", "below cold"]
PERMISSIONS: tuple[PermissionName, ...] = ("READ_ONLY", "READ_WRITE", "SYSTEM_MANAGED", "PRIVATE")

LOOKING = ("get_page", "children", "parent", "ancestors", "read_page")
OPENING = ("expand_details",)
HIDING = ("hide_details",)
WRITING = (
    "update_page",
    "set_detail",
    "move_page",
    "remove_page",
    "create_detail_page",
    "create_contents_page",
    "archive",
    "recall",
    "window",
)
MANAGING = ("remove_segment", "set_permission")
ASKED = ("get_segment", "list_segments", "find", "view", "budget", *LOOKING, *OPENING, *HIDING, *WRITING, *MANAGING)
"""The names of all operations with a permission."""


@dataclass(frozen=True)
class Place:
    """A segment as the test created it."""

    id: str
    type: Literal["SYSTEM", "USER", "TOOL", "CUSTOM"]
    permission: PermissionName
    conversation: bool = False
    holds_pins: bool = True

    @property
    def writable(self) -> bool:
        return self.permission in ("READ_WRITE", "SYSTEM_MANAGED")


@dataclass(frozen=True)
class Leaf:
    """A page of any kind as the test created it."""

    index: str
    kind: str
    place: Place
    parent: str | None
    folder: bool = False
    state: State = "expanded"
    pinned: bool = False
    above_pinned: bool = False
    messages: bool = False
    """Whether it has messages on it or below it."""
    users: bool = False
    """Whether a message of the user is on it, below it or behind it."""
    marked: bool = False
    compressed: bool = False
    """Whether it is behind a summary: it can be read and opened, and nothing else."""
    waiting: bool = False
    """Whether it is the exchange that waits for results, or is above it."""
    above: tuple[str, ...] = ()
    """The indices of the folders above it."""

    @property
    def cold(self) -> bool:
        return self.state in ("cold", "below cold")

    @property
    def root(self) -> bool:
        return self.parent is None

    @property
    def unseen(self) -> bool:
        return self.place.permission == "PRIVATE" or self.marked


def has_right(operation: str, page: Leaf, manage: bool) -> bool:
    """Return whether the table and the pins allow it, in any state of the page."""
    if page.unseen or operation not in ASKED:
        return False
    if operation in HIDING:
        always_shown = page.root and page.place.type == "SYSTEM"
        return not page.pinned and not page.above_pinned and not always_shown
    if operation in WRITING:
        takes_along = operation in ("move_page", "remove_page", "archive")
        allowed = page.place.writable and not page.pinned and not (takes_along and page.above_pinned)
        return allowed and not (operation == "remove_page" and page.users)
    if operation in MANAGING:
        return manage and page.place.permission == "SYSTEM_MANAGED" and page.place.type != "SYSTEM"
    return True


def may(operation: str, page: Leaf) -> bool:
    """Return whether an operation on one page is allowed."""
    if not has_right(operation, page, manage=False):
        return False
    if page.compressed and operation in ("recall", "expand_details"):
        return operation == "expand_details"
    if operation in ("get_page", "parent", "ancestors", "recall"):
        return True
    if operation in ("children", "read_page"):
        return page.folder is (operation == "children")
    return not page.cold and _in_the_tree(operation, page)  # on a cold page everything but recall is an error


def _in_the_tree(operation: str, page: Leaf) -> bool:
    if operation in ("expand_details", "update_page"):
        return True
    if operation == "hide_details":
        always_shown = page.root and (page.place.type == "SYSTEM" or page.place.conversation)
        return page.state in ("expanded", "hidden") and not always_shown and not page.waiting
    if operation == "set_detail":
        return not page.folder and not page.messages
    if operation == "create_detail_page":
        return page.folder
    return not page.root and not page.waiting  # archive, remove_page


def may_gather(page: Leaf, parent: Leaf) -> bool:
    """Return whether a page may be put alone into a new folder in its own parent."""
    rights = has_right("move_page", page, manage=False) and has_right("create_contents_page", parent, manage=False)
    return rights and not page.root and not page.cold and not page.waiting


def may_hold_a_new_folder(parent: Leaf) -> bool:
    """Return whether an empty folder may be created in it."""
    return has_right("create_contents_page", parent, manage=False) and parent.folder and not parent.cold


def may_move(source: Leaf, target: Leaf) -> bool:
    """Return whether a page may move into another."""
    rights = has_right("move_page", source, manage=False) and has_right("create_detail_page", target, manage=False)
    if not rights or source.root or source.cold or source.waiting or not target.folder or target.cold:
        return False
    if source.messages and (source.place.conversation or target.place.conversation):
        return False
    return source.index != target.index and source.index not in target.above


def may_remove_segment(place: Place, manage: bool) -> bool:
    """Return whether a whole segment may be removed."""
    allowed = manage and place.permission == "SYSTEM_MANAGED" and place.type != "SYSTEM"
    return allowed and not place.conversation and not place.holds_pins


def may_set_permission(place: Place, wanted: PermissionName, manage: bool) -> bool:
    """Return whether a segment's permission may be changed to another."""
    allowed = manage and place.permission == "SYSTEM_MANAGED" and place.type != "SYSTEM"
    return allowed and wanted != "PRIVATE"
