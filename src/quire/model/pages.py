"""Values: pages, segments, their states, and page indices; and the JSON form of a page.

All of them are immutable and independent of storage.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Struct, StructMeta, field

from quire.errors import InvalidValue, check_names, short_repr
from quire.model.clock import to_datetime

PageIndex = str
"""`"<segment id>-<n>"`, such as `"usr-12"`; a segment's root is number 0. One spelling per page."""

SEGMENT_BITS = 10
NUMBER_BITS = 28
MAX_SEGMENTS = 1 << SEGMENT_BITS
MAX_NUMBER = (1 << NUMBER_BITS) - 1

_SEGMENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_EPOCH = to_datetime(0)
_CAMEL = re.compile("_([a-z])")
_SNAKE = re.compile("[A-Z]")


class Lifecycle(IntEnum):
    """The place of a page: in the view; in the tree but not in the view; or out of the tree, in the cold archive."""

    ACTIVE = 0
    HOT_ARCHIVED = 1
    COLD_ARCHIVED = 2


class Visibility(IntEnum):
    """The form in which an active page is shown: its children or detail, or its summary line only."""

    EXPANDED = 0
    HIDDEN = 1


class SegmentType(IntEnum):
    """The purpose of a segment. The first SYSTEM, USER and TOOL segments hold prompt, conversation and windows."""

    SYSTEM = 0
    USER = 1
    TOOL = 2
    CUSTOM = 3


class Permission(IntEnum):
    """The rights of an agent in a segment. A PRIVATE segment does not exist for the agent."""

    READ_ONLY = 0
    READ_WRITE = 1
    SYSTEM_MANAGED = 2
    PRIVATE = 3


class Form(IntEnum):
    """The content of a page: a text, a summary of compressed messages, or an exchange by the role of its first message.

    `TOOL` is a result without a known call; it was imported with a damaged history and is never shown. `CHAPTER` is a
    folder that folding created. `WINDOW` is a live window; its app provides the content.
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
    """The reason why messages left the conversation.

    A mark changes the conversation itself; hiding, folding and archiving change only what the view shows.

    `ENDED`: their batch was ended. `UNSHOWABLE`: they were imported with a damaged history and no provider takes them.
    `REMOVED`: their page was removed, or the operation that added them was undone.
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


READABLE = frozenset({Mark.NONE, Mark.COMPRESSED})
"""Marks of messages that an agent can find and read."""


class OptionsMeta(StructMeta):
    """Makes a struct raise `UnknownOption` for a keyword that is not one of its fields."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        check_names(options, self.__struct_fields__, self.__name__)
        return super().__call__(*args, **options)


class Segment(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """A part of a context with its own page tree, permission and share of the view."""

    id: str
    name: str = ""
    description: str = ""
    type: SegmentType = SegmentType.CUSTOM
    permission: Permission = Permission.READ_WRITE
    max_capacity: int = 0
    root_index: PageIndex = ""
    created_at: datetime = _EPOCH
    updated_at: datetime = _EPOCH

    def __repr__(self) -> str:
        return f"<Segment {self.id!r}: {short_repr(self.name)}, {self.type.name}, {self.permission.name}>"


class PageBase(Struct, frozen=True, kw_only=True):
    """The fields that all pages share.

    `lifecycle` is stored on the page; `effective` is derived from it and its ancestors when the page is read.
    `summary_tokens` counts the `description`, not the whole line of a folded page.
    A root and a cold page have no `parent`. The `home` of a cold page is the folder to which `recall` returns it.
    `created_seq` and `changed_seq` are the journal entries that created it and last changed it.
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

    def __repr__(self) -> str:
        words = [f"{type(self).__name__} {self.index}: {short_repr(self.name)}", f"{self.tokens:,} tokens"]
        words += [word for word in (state_word(self), "pinned" if self.pinned else "") if word]
        return f"<{', '.join(words)}>"

    def to_json(self) -> str:
        """Return the page as JSON with the keys of the JSON form. Its body and its children are not part of a page."""
        fields = msgspec.to_builtins(self)
        named = {_CAMEL.sub(lambda match: match.group(1).upper(), key): value for key, value in fields.items()}
        return msgspec.json.encode(named).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the page that `to_json` wrote. Raise `InvalidValue` if it is not a page of this class."""
        try:
            found = msgspec.json.decode(text)
            fields = {_SNAKE.sub(lambda match: "_" + match.group().lower(), key): found[key] for key in found}
            return msgspec.convert(fields, cls)
        except (msgspec.MsgspecError, TypeError, AttributeError) as error:
            raise InvalidValue(f"is no {cls.__name__} as JSON: {error}.", argument="text") from None


class DetailPage(PageBase, frozen=True, kw_only=True, tag="DetailPage"):
    """A leaf: one exchange, note or document. `ContextSystem.detail(index)` returns its body."""

    message_count: int = 0
    form: Form = Form.TEXT
    mark: Mark = Mark.NONE


class ContentsPage(PageBase, frozen=True, kw_only=True, tag="ContentsPage"):
    """A folder with ordered children. `ContextSystem.children(index)` returns them."""

    child_count: int = 0


Page = DetailPage | ContentsPage


class IndexParts(NamedTuple):
    """The parts of a canonical page index."""

    segment: str
    number: int


def parse_index(index: object) -> IndexParts | None:
    """Return the parts of an index with a canonical number, or None: `usr-01`, `usr-１` and paths are not indices.

    The segment is not checked. The id of a segment has no capitals and no look-alike letters, so `USR-1` names no page.
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
    """Return the canonical spelling of a page index."""
    return f"{segment}-{number}" if segment else str(number)


def check_segment_id(segment: object) -> str:
    """Return the id if it is legal, else raise `InvalidValue`. The id "" is legal for the only segment of a context."""
    if isinstance(segment, str) and (segment == "" or _SEGMENT_ID.fullmatch(segment)):
        return str.__str__(segment)
    raise InvalidValue(
        f"Segment id {short_repr(segment)} is not allowed; use 1 to 32 of a-z, 0-9, _ and -, first a letter or digit."
    )


State = Literal["active", "hot", "cold"]
STATES: dict[Lifecycle, State] = {
    Lifecycle.ACTIVE: "active",
    Lifecycle.HOT_ARCHIVED: "hot",
    Lifecycle.COLD_ARCHIVED: "cold",
}
"""The names of lifecycles in JSON."""


def state_word(page: PageBase) -> str:
    """Return "folded", "archived" or "cold-archived" for a page that is not shown in full; "" for an open page.

    A folded page is one line, or is in a folder that is folded or archived.
    """
    if page.effective is Lifecycle.COLD_ARCHIVED:
        return "cold-archived"
    if page.lifecycle is Lifecycle.HOT_ARCHIVED:
        return "archived"
    return "folded" if page.effective is Lifecycle.HOT_ARCHIVED or page.visibility is Visibility.HIDDEN else ""


def page_to_dict(page: Page) -> dict[str, Any]:
    """Return the fields of a page without its body."""
    folder = isinstance(page, ContentsPage)
    return {
        "index": page.index,
        "name": page.name,
        "description": page.description,
        "kind": "contents" if folder else "detail",
        "form": page.form.name.lower() if isinstance(page, DetailPage) else "folder",
        "mark": page.mark.name.lower() if isinstance(page, DetailPage) else "none",
        "lifecycle": STATES[page.lifecycle],
        "effective": STATES[page.effective],
        "visibility": page.visibility.name.lower(),
        "pinned": bool(page.pinned),
        "author": page.author,
        "tokens": page.tokens,
        "summary_tokens": page.summary_tokens,
        "folder": folder,
        "children": page.child_count if isinstance(page, ContentsPage) else 0,
        "message_count": page.message_count if isinstance(page, DetailPage) else 0,
        "parent": page.parent,
        "home": page.home,
        "created": page.created_at,
        "updated": page.updated_at,
        "created_seq": page.created_seq,
        "changed_seq": page.changed_seq,
    }
