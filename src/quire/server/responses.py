"""Response types: the JSON body of every answer. They are filled from the library's values and document the API."""

from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.responses import Response

from quire.errors import (
    Busy,
    Conflict,
    Hint,
    InvalidOperation,
    InvalidValue,
    IrreducibleFloor,
    PermissionDenied,
    QuireError,
    StorageFailure,
    Wording,
)
from quire.model.pages import PageIndex, State
from quire.server.gateway_ledger import GatewaySession

JSON = "application/json"
T = TypeVar("T", bound=Struct)


def fill(kind: type[T], source: object, **fields: Any) -> T:
    """Return a response of type `kind`: `fields`, and all other fields from the attributes of `source`."""
    names = kind.__struct_fields__
    return kind(*[fields[name] if name in fields else getattr(source, name) for name in names])


# Errors


class ErrorDetail(Struct, frozen=True):
    """An error: a stable code, and a message with the next step."""

    code: str
    message: str


class ErrorBody(Struct, frozen=True):
    """The body of every error response."""

    error: ErrorDetail


class HttpError(Exception):
    """An error response: a status, a stable code and a message."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self) -> Response:
        """Return the response with the JSON body."""
        headers = {}
        if self.status is HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        if self.code in ("too_slow", "too_large", "ambiguous_length"):
            headers["connection"] = "close"  # the rest of the body is not read
        body = msgspec.json.encode(ErrorBody(ErrorDetail(self.code, str(self))))
        return Response(body, self.status, headers, JSON)


_STATUSES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (LookupError, HTTPStatus.NOT_FOUND),  # every NoSuch… error
    (InvalidValue, HTTPStatus.BAD_REQUEST),
    (InvalidOperation, HTTPStatus.UNPROCESSABLE_ENTITY),
    (IrreducibleFloor, HTTPStatus.UNPROCESSABLE_ENTITY),
    (PermissionDenied, HTTPStatus.FORBIDDEN),
    (Conflict, HTTPStatus.CONFLICT),
    (Busy, HTTPStatus.SERVICE_UNAVAILABLE),
    (StorageFailure, HTTPStatus.SERVICE_UNAVAILABLE),
)

_HINT_ROUTES = {
    "children": "GET …/pages?parent={page}",
    "detail": "GET …/pages/{page}",
    "find": "GET …/search",
    "history": "GET …/history",
    "messages": "GET …/messages",
    "move_page": "POST …/pages/{page}/move",
    "read_page": "GET …/pages/{page}",
    "render": "POST …/render",
    "undo": "POST …/undo",
    **{name: f"POST …/pages/{{page}}/{name}" for name in ("archive", "expand", "hide", "recall", "restore", "unpin")},
}
"""The routes of the calls in hints."""


class _HttpWording(Wording):
    """Words hints as routes. A hint without a route is omitted."""

    def hint(self, hint: Hint) -> str:
        if hint.call == "refresh":
            return "Retry the request."
        route = _HINT_ROUTES.get(hint.call)
        return hint.sentence(route.format(page=hint.page or "{p}")) if route else ""


_WORDING = _HttpWording()


def to_http_error(error: Exception) -> HttpError:
    """Return the response for an error. The text of an unexpected error is not revealed."""
    if isinstance(error, HttpError):
        return error
    if not isinstance(error, QuireError):
        return HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "Internal error; the server's log has details.")
    statuses = (status for kind, status in _STATUSES if isinstance(error, kind))
    return HttpError(next(statuses, HTTPStatus.INTERNAL_SERVER_ERROR), error.code, error.describe(_WORDING))


# Contexts


class Health(Struct, frozen=True):
    """The state of the server."""

    status: str
    version: str


class ContextLine(Struct, frozen=True):
    """A context in a list. `pages` and `messages` count all that were ever added; `tokens` is null if not counted."""

    name: str
    seq: int
    pages: int
    messages: int
    tokens: int | None
    created: datetime | None
    updated: datetime | None


class Contexts(Struct, frozen=True):
    """Contexts by name."""

    contexts: list[ContextLine]
    next: str | None


class SegmentLine(Struct, frozen=True):
    """A segment. `pages` counts all pages it ever had; `tokens` is null if not counted."""

    id: str
    name: str
    description: str
    type: str
    permission: str
    max_capacity: int
    root: PageIndex
    pages: int
    tokens: int | None


class ContextStats(Struct, frozen=True):
    """The size of a context; see `Context.stats`."""

    total_items: int
    active_items: int
    obsolete_items: int
    window_items: int
    estimated_tokens: int
    segments: dict[str, int]
    usage: dict[str, Any]


class OneContext(Struct, frozen=True):
    """A context. `stats` is null if not counted: GET …/stats counts."""

    name: str
    seq: int
    budget: int
    created: datetime | None
    updated: datetime | None
    segments: list[SegmentLine]
    stats: ContextStats | None


# Pages and messages


class PageLine(Struct, frozen=True):
    """A page. `lifecycle` is stored on the page, `effective` also considers the folders above it."""

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


class Pages(Struct, frozen=True):
    """Pages in order. `next` is null only at the end: a filtered part may be short or empty."""

    pages: list[PageLine]
    next: PageIndex | None
    seq: int


class CallLine(Struct, frozen=True):
    """A tool call."""

    id: str
    name: str
    arguments: str


class MessageLine(Struct, frozen=True):
    """A message in quire's provider-neutral form."""

    index: int
    role: str
    content: Any
    tool_calls: list[CallLine]
    tool_call_id: str | None
    name: str | None


class Messages(Struct, frozen=True):
    """Messages in order."""

    messages: list[MessageLine]
    next: int | None
    seq: int


class WholePage(PageLine, frozen=True):
    """A page with the requested part of its text, and the folders above it, the root first.

    `messages` is empty if `detail` is not the whole text.
    """

    detail: str
    detail_chars: int
    path: list[PageIndex]
    messages: list[MessageLine]
    seq: int


class PageResult(Struct, frozen=True):
    """The page after a change. `moved` maps old indices to new ones, if any changed."""

    seq: int
    page: PageLine
    moved: dict[PageIndex, PageIndex] | UnsetType = UNSET


class RemoveResult(Struct, frozen=True):
    """The number of removed pages."""

    seq: int
    removed: int


class CommitResult(Struct, frozen=True):
    """The journal entry of the change."""

    seq: int


class AddResult(Struct, frozen=True):
    """The index of the last added message."""

    index: int
    seq: int


class ImportResult(Struct, frozen=True):
    """The imported messages, and what was wrong with them."""

    seq: int
    messages: int
    pages: int
    first: int | None
    last: int | None
    marked: tuple[int, ...]
    findings: list[dict[str, Any]]


# Views


class Break(Struct, frozen=True):
    """The message at which a view differs from the one before, and the reason."""

    at: int
    why: str


class Prefix(Struct, frozen=True):
    """The common beginning of a view and the one before it, in messages of its format and in tokens."""

    messages: int
    tokens: int
    broke: Break | None


class ViewItem(Struct, frozen=True, omit_defaults=True):
    """An item of a view: a page, or a part that is not a page.

    `kind` is the purpose of the part. `how` is the granularity of a page (whole, clipped, line; window, recalled), or
    the kind again; `frame` is the text around pages. `message` is the number of the message that the item begins in,
    or -1. A recalled page also has the folders above it, its score (1 is the best) and the reason for it.
    """

    page: PageIndex | None
    name: str
    segment: str | None
    kind: str
    how: str
    tokens: int
    message: int
    path: tuple[PageIndex, ...] = ()
    score: float | None = None
    reason: str = ""


class ViewBody(Struct, frozen=True):
    """The view of a model."""

    seq: int
    tokens: int
    budget: int
    format: str
    messages: list[Any] | Raw
    system: Any
    prefix: Prefix
    items: list[ViewItem] | Raw
    folded: dict[str, int] | None


class SentBody(Struct, frozen=True):
    """The last view that a model answered; see `Context.last_sent`. All is null if there is none.

    `exact` is false if `view`, drawn again, has another size than the view that was sent (`tokens`).
    """

    seq: int
    entry: int | None = None
    reply: int | None = None
    tokens: int | None = None
    budget: int | None = None
    reserved: int | None = None
    tools: dict[str, int] = {}
    exact: bool = False
    view: ViewBody | None = None


class Side(Struct, frozen=True):
    """One of two compared views."""

    seq: int
    budget: int
    tokens: int
    messages: int


class Difference(Struct, frozen=True):
    """One message in two views."""

    op: Literal["same", "added", "removed", "changed"]
    left: Any
    right: Any


class PageDifference(Struct, frozen=True):
    """One page that two views show differently, with its tokens in each."""

    page: PageIndex
    change: str
    left: int
    right: int


class Diff(Struct, frozen=True):
    """A comparison of two views. The first `shared` messages are equal."""

    left: Side
    right: Side
    format: str
    shared: int
    changes: list[Difference]
    pages: list[PageDifference]


class Reason(Struct, frozen=True):
    """The reason why a page is shown the way it is, and the call that changes that."""

    index: PageIndex
    shown: str
    reason: str
    tokens: int
    call: str


# History


class EntryLine(Struct, frozen=True):
    """A journal entry. `text` says what happened. `undoes` is the entry that an undo reverted."""

    seq: int
    time: datetime
    actor: str
    operation: str
    text: str
    pages: tuple[PageIndex, ...]
    segments: tuple[str, ...]
    undone: bool
    undoes: int | None
    checkpoint: str | None


class Entries(Struct, frozen=True):
    """Journal entries. `next` is null only at the end: a filtered part may be short or empty."""

    entries: list[EntryLine]
    next: int | None
    seq: int


class Brief(Struct, frozen=True):
    """The properties of a page that a rollback may change."""

    name: str
    parent: PageIndex | None
    lifecycle: State
    visibility: Literal["expanded", "hidden"]
    tokens: int


class PageRollback(Struct, frozen=True):
    """A page before and after the rollback; null if the page does not exist."""

    index: PageIndex
    now: Brief | None
    then: Brief | None


class Preview(Struct, frozen=True):
    """The effect of a rollback. `more` is the number of changed pages beyond the listed ones."""

    seq: int
    entries: int
    pages: list[PageRollback]
    more: int
    messages_before: int
    messages_after: int


# Search, windows, tools


class Piece(Struct, frozen=True):
    """A piece of text; `hit` marks a match."""

    text: str
    hit: bool


class HitLine(Struct, frozen=True):
    """A page that matches a search. A page with the lifecycle hot is `folded` if it was not archived itself."""

    index: PageIndex
    name: str
    description: str
    score: float
    snippet: list[Piece]
    path: tuple[PageIndex, ...]
    lifecycle: State
    segment: str
    complete: bool
    folded: bool


class Hits(Struct, frozen=True):
    """Search results, best first."""

    hits: list[HitLine]
    seq: int


class ActionLine(Struct, frozen=True):
    """An action of a window."""

    name: str
    description: str
    params: str
    parameters: dict[str, Any]


class WindowItem(Struct, frozen=True):
    """One item of a window."""

    id: str
    text: str


class WindowLine(Struct, frozen=True):
    """A window: `content` is its text; `items` is filled if it shows a list."""

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


class Windows(Struct, frozen=True):
    """Windows in order."""

    windows: list[WindowLine]
    apps: list[str]
    seq: int


class ActionResult(Struct, frozen=True):
    """The app's answer to an action."""

    seq: int
    result: str


class ToolList(Struct, frozen=True):
    """Tools in a provider's format."""

    format: str
    tools: list[Any]


class ToolResult(Struct, frozen=True):
    """The answer of a tool. An error is also a text for the model."""

    result: str
    seq: int


# Sessions of the gateway


class GatewaySessions(Struct, frozen=True):
    """The sessions of the gateway, the newest first."""

    sessions: list[GatewaySession]
