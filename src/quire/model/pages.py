"""The values a user holds: pages, segments, their states, and page indices.

All are frozen and know nothing of storage; changing one changes nothing but the copy in hand.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from quire.errors import InvalidValue, short_repr
from quire.model.clock import to_datetime

PageIndex = str
"""`"<segment id>-<n>"`, such as `"usr-12"`; a segment's root is number 0. One spelling per page."""

SEGMENT_BITS = 10
NUMBER_BITS = 28
MAX_SEGMENTS = 1 << SEGMENT_BITS
MAX_NUMBER = (1 << NUMBER_BITS) - 1

_SEGMENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_EPOCH = to_datetime(0)


class Lifecycle(IntEnum):
    """Where a page is: in the window, beside it, or in the archive."""

    ACTIVE = 0
    HOT_ARCHIVED = 1
    COLD_ARCHIVED = 2


class Visibility(IntEnum):
    """How much of an active page is shown: children or detail, or the summary line only."""

    EXPANDED = 0
    HIDDEN = 1


class SegmentType(IntEnum):
    """What a segment is for. The first SYSTEM, USER and TOOL segments hold prompt, conversation and windows."""

    SYSTEM = 0
    USER = 1
    TOOL = 2
    CUSTOM = 3


class Permission(IntEnum):
    """What the agent may do in a segment. PRIVATE: it cannot see that the segment exists."""

    READ_ONLY = 0
    READ_WRITE = 1
    SYSTEM_MANAGED = 2
    PRIVATE = 3


class Form(IntEnum):
    """What a page holds: a text, a summary of compressed messages, or an exchange, by who opens it.

    `TOOL` is a result whose call is not known; it came with a broken history and is never shown. `CHAPTER` is a folder
    that folding made. `WINDOW` is a live window: its app knows what it shows.
    """

    TEXT = 0
    SUMMARY = 1
    USER = 2
    ASSISTANT = 3
    SYSTEM = 4
    TOOL = 5
    CHAPTER = 6
    WINDOW = 7


class Mark(IntEnum):
    """Why messages are out of the conversation: an edit of the record, unlike hiding, folding and archiving.

    `ENDED`: their batch was ended. `UNSHOWABLE`: they came in with a broken history and no model could be shown them.
    `REMOVED`: their page was removed, or the operation that brought them was undone.
    """

    NONE = 0
    DELETED = 1
    REPLACED = 2
    COMPRESSED = 3
    ENDED = 4
    UNSHOWABLE = 5
    REMOVED = 6

    def __str__(self) -> str:
        return self.name


class Segment(Struct, frozen=True, kw_only=True):
    """A part of the book with its own tree, permission and share of the view."""

    id: str
    name: str = ""
    description: str = ""
    type: SegmentType = SegmentType.CUSTOM
    permission: Permission = Permission.READ_WRITE
    max_capacity: int = 0
    root_index: PageIndex = ""
    created_at: datetime = _EPOCH
    updated_at: datetime = _EPOCH


class PageBase(Struct, frozen=True, kw_only=True):
    """What all pages share.

    `lifecycle` is what is stored on the page; `effective` is derived with its ancestors when the page was handed out.
    A root and a cold page have no `parent`; a cold page's `home` is the folder that `recall` would bring it back to.
    `created_seq` and `changed_seq` are the journal entries that made it and that changed it last.
    """

    name: str
    index: PageIndex = ""
    description: str = ""
    parent: PageIndex | None = None
    home: PageIndex | None = None
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    effective: Lifecycle = Lifecycle.ACTIVE
    visibility: Visibility = Visibility.EXPANDED
    pinned: bool | None = None
    author: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    summary_tokens: int = 0
    tokens: int = 0
    created_at: datetime = _EPOCH
    updated_at: datetime = _EPOCH
    created_seq: int = 0
    changed_seq: int = 0


class DetailPage(PageBase, frozen=True, kw_only=True, tag="DetailPage"):
    """A leaf: one exchange, note or document. Its body is read with `ContextSystem.detail(index)`."""

    message_count: int = 0
    form: Form = Form.TEXT
    mark: Mark = Mark.NONE


class ContentsPage(PageBase, frozen=True, kw_only=True, tag="ContentsPage"):
    """A folder with ordered children, read with `ContextSystem.children(index)`."""

    child_count: int = 0


Page = DetailPage | ContentsPage


class IndexParts(NamedTuple):
    """A canonical page index, taken apart."""

    segment: str
    number: int


def parse_index(index: object) -> IndexParts | None:
    """The parts of an index whose number is canonical, or None: `usr-01`, `usr-１` and paths are no index.

    Whether the segment exists is for the reader to say; no segment is called `USR` or has a look-alike in its id.
    """
    if not isinstance(index, str):
        return None
    segment, dash, digits = index.rpartition("-")
    if not digits.isdigit() or not digits.isascii() or len(digits) > 9 or (digits[0] == "0" and digits != "0"):
        return None
    number = int(digits)
    if number > MAX_NUMBER or (dash and not segment):
        return None
    return IndexParts(segment, number)


def format_index(segment: str, number: int) -> PageIndex:
    """The one spelling of a page index."""
    return f"{segment}-{number}" if segment else str(number)


def check_segment_id(segment: object) -> str:
    """The id if it is a legal one. Raises `InvalidValue`. The empty id is legal for a context's only segment."""
    if isinstance(segment, str) and (segment == "" or _SEGMENT_ID.fullmatch(segment)):
        return segment
    raise InvalidValue(
        f"Segment id {short_repr(segment)} is not allowed; use 1 to 32 of a-z, 0-9, _ and -, a letter or digit first."
    )
