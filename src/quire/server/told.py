"""What is answered: the values of every route, as types that are written and documented alike."""

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from quire.model.page_json import State
from quire.model.pages import PageIndex


class Failure(Struct, frozen=True, kw_only=True):
    """What went wrong: a stable code, and a text that says what to do next."""

    code: str
    message: str


class Failed(Struct, frozen=True, kw_only=True):
    """An error."""

    error: Failure


class Health(Struct, frozen=True, kw_only=True):
    """That the server is there."""

    status: str
    version: str


class ContextLine(Struct, frozen=True, kw_only=True):
    """A context in a list. `pages` and `messages` are all that ever came in; `tokens` is null if nobody counted."""

    name: str
    seq: int
    pages: int
    messages: int
    tokens: int | None
    created: datetime | None
    updated: datetime | None


class Contexts(Struct, frozen=True, kw_only=True):
    """Contexts by name."""

    contexts: list[ContextLine]
    next: str | None


class SegmentLine(Struct, frozen=True, kw_only=True):
    """A segment. `pages` are all that it ever had; `tokens` is null if nobody counted."""

    id: str
    name: str
    description: str
    type: str
    permission: str
    max_capacity: int
    root: PageIndex
    pages: int
    tokens: int | None


class Counted(Struct, frozen=True, kw_only=True):
    """How much there is: see `Context.stats`."""

    total_items: int
    active_items: int
    obsolete_items: int
    window_items: int
    estimated_tokens: int
    segments: dict[str, int]
    usage: dict[str, Any]


class OneContext(Struct, frozen=True, kw_only=True):
    """A context. `stats` is null while nobody counted: GET …/stats does."""

    name: str
    seq: int
    budget: int
    created: datetime | None
    updated: datetime | None
    segments: list[SegmentLine]
    stats: Counted | None


class PageLine(Struct, frozen=True, kw_only=True):
    """A page. `lifecycle` is what is stored on it, `effective` what the folders above make of that."""

    index: PageIndex
    name: str
    description: str
    kind: Literal["detail", "contents"]
    form: str
    mark: str
    segment: str
    permission: str
    lifecycle: State
    effective: State
    visibility: Literal["expanded", "hidden"]
    pinned: bool
    author: str
    tokens: int
    summary_tokens: int
    folder: bool
    children: int
    message_count: int
    parent: PageIndex | None
    home: PageIndex | None
    created: datetime
    updated: datetime
    created_seq: int
    changed_seq: int


class Pages(Struct, frozen=True, kw_only=True):
    """Pages in their order. `next` is null at the end only: a filtered part may be short, even empty."""

    pages: list[PageLine]
    next: PageIndex | None
    seq: int


class CallLine(Struct, frozen=True, kw_only=True):
    """A tool call."""

    id: str
    name: str
    arguments: str


class MessageLine(Struct, frozen=True, kw_only=True):
    """A message as it is kept, provider-neutral."""

    index: int
    role: str
    content: Any
    tool_calls: list[CallLine]
    tool_call_id: str | None
    name: str | None


class Messages(Struct, frozen=True, kw_only=True):
    """Messages in their order."""

    messages: list[MessageLine]
    next: int | None
    seq: int


class WholePage(PageLine, frozen=True, kw_only=True):
    """A page with its text, or as much of it as was asked for, and what stands above it, the root first."""

    detail: str
    detail_chars: int
    path: list[PageIndex]
    messages: list[MessageLine]
    seq: int


class Changed(Struct, frozen=True, kw_only=True):
    """A change to a page that was made. `moved` gives new indices by old ones, if there are any."""

    seq: int
    page: PageLine
    moved: dict[PageIndex, PageIndex] | UnsetType = UNSET


class Removed(Struct, frozen=True, kw_only=True):
    """How many pages went."""

    seq: int
    removed: int


class Done(Struct, frozen=True, kw_only=True):
    """The entry that holds what was done."""

    seq: int


class Added(Struct, frozen=True, kw_only=True):
    """The index of the last message that was added."""

    index: int
    seq: int


class Imported(Struct, frozen=True, kw_only=True):
    """What an import took in."""

    seq: int
    messages: int
    pages: int
    first: int | None
    last: int | None
    marked: list[int]
    findings: list[dict[str, Any]]


class Break(Struct, frozen=True, kw_only=True):
    """Where a view stops being as the one before, and why."""

    at: int
    why: str


class Prefix(Struct, frozen=True, kw_only=True):
    """What a view begins with that the one before began with too, in messages of its form and in tokens."""

    messages: int
    tokens: int
    broke: Break | None


class Shown(Struct, frozen=True, kw_only=True):
    """A piece of a view: a page and how much of it, or what stands there without being a page.

    `kind` is what the piece is for, `how` how much of a page it shows (whole, clipped, line; window, recalled) or again
    what it is for; a frame is what stands around pages. `message` is the number of the message it begins in, or -1.
    """

    page: PageIndex | None
    name: str
    segment: str | None
    kind: str
    how: str
    tokens: int
    message: int


class ViewOf(Struct, frozen=True, kw_only=True):
    """What a model sees."""

    seq: int
    tokens: int
    budget: int
    format: str
    messages: list[Any] | Raw
    system: Any
    prefix: Prefix
    items: list[Shown] | Raw
    folded: dict[str, int] | None


class Side(Struct, frozen=True, kw_only=True):
    """One of two views."""

    seq: int
    budget: int
    tokens: int
    messages: int


class Difference(Struct, frozen=True, kw_only=True):
    """One message in two views."""

    op: Literal["same", "added", "removed", "changed"]
    left: Any
    right: Any


class PageDifference(Struct, frozen=True, kw_only=True):
    """One page that two views show differently, and the tokens it takes in each."""

    page: PageIndex
    change: str
    left: int
    right: int


class Diff(Struct, frozen=True, kw_only=True):
    """Two views side by side: `shared` messages at their beginning are the same."""

    left: Side
    right: Side
    format: str
    shared: int
    changes: list[Difference]
    pages: list[PageDifference]


class Reason(Struct, frozen=True, kw_only=True):
    """Why a page is shown as it is, and the call that changes that."""

    index: PageIndex
    shown: str
    reason: str
    tokens: int
    call: str


class EntryLine(Struct, frozen=True, kw_only=True):
    """A journal entry. `undoes` is the entry that an undo undid."""

    seq: int
    time: datetime
    actor: str
    operation: str
    pages: list[PageIndex]
    segments: list[str]
    undone: bool
    undoes: int | None
    checkpoint: str | None


class Entries(Struct, frozen=True, kw_only=True):
    """Journal entries. `next` is null at the end only: a filtered part may be short, even empty."""

    entries: list[EntryLine]
    next: int | None
    seq: int


class Brief(Struct, frozen=True, kw_only=True):
    """A page as far as a rollback may change it."""

    name: str
    parent: PageIndex | None
    lifecycle: State
    visibility: Literal["expanded", "hidden"]
    tokens: int


class Turned(Struct, frozen=True, kw_only=True):
    """A page now and as it would be; null where there is none."""

    index: PageIndex
    now: Brief | None
    then: Brief | None


class Preview(Struct, frozen=True, kw_only=True):
    """What a rollback would do. `more` pages beyond those listed would change too."""

    seq: int
    entries: int
    pages: list[Turned]
    more: int
    messages_before: int
    messages_after: int


class Piece(Struct, frozen=True, kw_only=True):
    """A stretch of text, and whether it is what was looked for."""

    text: str
    hit: bool


class HitLine(Struct, frozen=True, kw_only=True):
    """A page that was found."""

    index: PageIndex
    name: str
    description: str
    score: float
    snippet: list[Piece]
    path: list[PageIndex]
    lifecycle: State
    segment: str
    complete: bool


class Hits(Struct, frozen=True, kw_only=True):
    """What was found, best first."""

    hits: list[HitLine]
    seq: int


class ActionLine(Struct, frozen=True, kw_only=True):
    """What can be done in a window."""

    name: str
    description: str
    params: str
    parameters: dict[str, Any]


class WindowItem(Struct, frozen=True, kw_only=True):
    """One item of a window."""

    id: str
    text: str


class WindowLine(Struct, frozen=True, kw_only=True):
    """A window as it is now: `content` is a text, `items` are given if it shows a list."""

    id: str
    app: str
    title: str
    page: PageIndex
    content: str
    items: list[WindowItem]
    error: str
    summary: str
    tokens: int
    pinned: bool
    important: bool
    obsolete: bool
    actions: list[ActionLine]


class Windows(Struct, frozen=True, kw_only=True):
    """Windows in their places."""

    windows: list[WindowLine]
    apps: list[str]
    seq: int


class Acted(Struct, frozen=True, kw_only=True):
    """What an app said to an action."""

    seq: int
    result: str


class ToolList(Struct, frozen=True, kw_only=True):
    """Tools in a provider's form."""

    format: str
    tools: list[Any]


class Called(Struct, frozen=True, kw_only=True):
    """What a tool answered; an error is a text for the model, too."""

    result: str
    seq: int
