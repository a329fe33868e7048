"""What a request may ask: the parameters and bodies of every route, as types that are checked and documented alike."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Limit = Annotated[int, Meta(ge=1, le=1_000, description="How many to give at most.")]
Seq = Annotated[int, Meta(ge=0, le=2**53)]
Budget = Annotated[int, Meta(ge=0, le=10_000_000, description="Tokens; the server's own budget if not given.")]
Share = Annotated[float, Meta(ge=0, le=1, description="Bring back what matters, in at most this share of the budget.")]
Format = Literal["openai", "anthropic", "responses"]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Index = Annotated[str, Meta(min_length=1, max_length=64, description="A page index, such as usr-7.")]
States = Literal["active", "hot", "cold"]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters, or an empty object."""


class ContextsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which contexts."""

    after: str = ""
    limit: Limit = 100
    prefix: str = ""


class NewContext(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A context to make."""

    name: Name


class NewFork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A context to make of another, as it is or as it was at an entry or a checkpoint."""

    name: Name
    at: Seq | str | None = None


class PagesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which children of a folder; without a parent the roots of all segments."""

    parent: Index | None = None
    after: Index | None = None
    limit: Limit = 100
    lifecycle: States | None = None


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a page's text, and from which character on."""

    max_chars: Annotated[int, Meta(ge=0, le=10_000_000)] = 20_000
    offset: Annotated[int, Meta(ge=0, le=2**40)] = 0


class NewPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page to make at the end of a folder."""

    name: str
    parent: Index
    kind: Literal["detail", "contents"] = "detail"
    description: str = ""
    detail: str = ""


class PageChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a page is to be like; what is not given stays."""

    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class Archiving(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the page leaves the tree."""

    cold: bool = False


class Moving(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The folder a page goes to: at its end, or before one of its children."""

    target: Index
    before: Index | None = None


class MessagesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages, after the one with this index; with `all` every one by index, marked ones too."""

    after: Seq | None = None
    limit: Limit = 100
    all: bool = False


class History(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A history to take in."""

    messages: list[Any]


class ViewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a view is to be drawn, and what its prefix is told against.

    That is the view of the same budget that was `given` before it, or the one that the last `call` of the model was
    made with.
    """

    budget: Budget | None = None
    format: Format = "openai"
    recall: Share | None = None
    against: Literal["given", "call"] = "given"


class Rendering(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a view is to be drawn that is really sent: it may fold."""

    budget: Budget | None = None
    format: Format = "openai"
    recall: Share | bool | None = None
    reserve: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    budget_line: bool = False
    include_obsolete: bool = False
    windows: Literal["tail", "inline"] = "tail"


class DiffQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two views: each at an entry (the newest if not given) and a budget."""

    left_seq: Seq | None = None
    left_budget: Budget | None = None
    right_seq: Seq | None = None
    right_budget: Budget | None = None
    format: Format = "openai"


class WhyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In the view of which budget."""

    budget: Budget | None = None


class HistoryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which journal entries: above `after`, below `before`, and passing every filter."""

    after: Seq = 0
    before: Seq | None = None
    limit: Limit = 100
    order: Literal["asc", "desc"] = "asc"
    actor: str | None = None
    operation: str | None = None
    page: Index | None = None


class Undoing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry to undo."""

    seq: Seq


class RollbackQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rollback would go: a seq, or the name of a checkpoint."""

    to: str


class RollingBack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go back to: a seq, or the name of a checkpoint."""

    to: Seq | str


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a checkpoint."""

    name: Name


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for, and where."""

    q: Annotated[str, Meta(max_length=10_000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    segment: str | None = None
    lifecycle: States | None = None
    role: Literal["user", "assistant", "system", "tool"] | None = None
    kind: Literal["folder", "leaf", "exchange", "chapter", "summary", "text"] | None = None


class WindowsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether closed windows are given too."""

    obsolete: bool = False


class ToolsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In whose form."""

    format: Literal["openai", "anthropic", "responses", "mcp"] = "openai"


class ToolCalling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool and what it is called with: an object, or JSON text as a model wrote it."""

    name: str
    arguments: dict[str, Any] | str | None = None


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After which entry; from now on if not given, or beyond the last one. The header Last-Event-ID says it too."""

    after: Seq | None = None


Arguments = dict[str, Any]
"""The arguments of an action, by name."""
OneOrMore = dict[str, Any] | list[Any]
"""A message in any provider's shape, or several."""
SomeHistory = History | list[Any]
