"""The one table of routes: from it come the dispatcher, the checks of every request, and the OpenAPI description."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.server.handlers import contexts, history, messages, pages, search, views, windows

Handler = Callable[[Desk, Asked], Any]
Method = Literal["GET", "POST", "PATCH", "DELETE"]


class Route(NamedTuple):
    """A route: where it is, what it takes, what does it, and what it answers with.

    `retried`: a change that met another writer is made once more. `public`: no token is needed.
    """

    method: Method
    path: str
    handler: Handler | str
    answer: Any
    query: Any = asked.Nothing
    body: Any = None
    status: HTTPStatus = HTTPStatus.OK
    retried: bool = True
    public: bool = False
    media: str = "application/json"
    summary: str = ""

    @property
    def about(self) -> str:
        """What it does, in a sentence: that of its handler, unless it has its own."""
        doc = "" if isinstance(self.handler, str) else self.handler.__doc__ or ""
        return self.summary or doc.partition("\n")[0]

    @property
    def name(self) -> str:
        """A name that no other route has."""
        words = [part.strip("{}") for part in self.path.split("/") if part and part != "api"]
        return "_".join([self.method.lower(), *words]).replace(".", "_")


CONTEXT = "/api/contexts/{c}"
PAGE = f"{CONTEXT}/pages/{{p}}"
_CREATED = HTTPStatus.CREATED


def _operation(name: str, summary: str) -> Route:
    handler = pages.operating(name)
    return Route("POST", f"{PAGE}/{name}", handler, told.Changed, body=asked.Nothing, summary=summary)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", "health", told.Health, public=True, summary="Whether the server is there."),
    Route("GET", "/metrics", "figures", str, media="text/plain", summary="Figures for Prometheus."),
    Route("GET", "/openapi.json", "describe", dict[str, Any], summary="This description."),
    # Contexts
    Route("GET", "/api/contexts", contexts.list_contexts, told.Contexts, asked.ContextsQuery),
    Route("POST", "/api/contexts", contexts.create, told.OneContext, body=asked.NewContext, status=_CREATED),
    Route("GET", CONTEXT, contexts.show, told.OneContext),
    Route("DELETE", CONTEXT, contexts.delete, told.Done),
    Route("POST", f"{CONTEXT}/fork", contexts.fork, told.OneContext, body=asked.NewFork, status=_CREATED),
    Route("GET", f"{CONTEXT}/stats", contexts.stats, told.Counted),
    # Pages
    Route("GET", f"{CONTEXT}/pages", pages.list_pages, told.Pages, asked.PagesQuery),
    Route("POST", f"{CONTEXT}/pages", pages.create, told.Changed, body=asked.NewPage, status=_CREATED),
    Route("GET", PAGE, pages.show, told.WholePage, asked.PageQuery),
    Route("PATCH", PAGE, pages.change, told.Changed, body=asked.PageChange),
    Route("DELETE", PAGE, pages.remove, told.Removed),
    _operation("expand", "Open a page and the whole chain above it."),
    _operation("hide", "Show only the page's summary line."),
    _operation("pin", "Show a page whole, always."),
    _operation("unpin", "Lift a pin."),
    _operation("restore", "Bring a hot page back into the window."),
    _operation("recall", "Bring a page back from the cold archive."),
    Route("POST", f"{PAGE}/archive", pages.archive, told.Changed, body=asked.Archiving),
    Route("POST", f"{PAGE}/move", pages.move, told.Changed, body=asked.Moving),
    # Messages
    Route("GET", f"{CONTEXT}/messages", messages.list_messages, told.Messages, asked.MessagesQuery),
    Route("POST", f"{CONTEXT}/messages", messages.add, told.Added, body=asked.OneOrMore, status=_CREATED),
    Route("POST", f"{CONTEXT}/import", messages.take_in, told.Imported, body=asked.SomeHistory, retried=False),
    # Views
    Route("GET", f"{CONTEXT}/view", views.view, told.ViewOf, asked.ViewQuery),
    Route("POST", f"{CONTEXT}/render", views.render, told.ViewOf, body=asked.Rendering),
    Route("GET", f"{CONTEXT}/diff", views.diff, told.Diff, asked.DiffQuery),
    Route("GET", f"{CONTEXT}/why/{{p}}", views.why, told.Reason, asked.WhyQuery),
    # History
    Route("GET", f"{CONTEXT}/history", history.list_entries, told.Entries, asked.HistoryQuery),
    Route("POST", f"{CONTEXT}/undo", history.undo, told.Done, body=asked.Undoing),
    Route("GET", f"{CONTEXT}/rollback", history.preview, told.Preview, asked.RollbackQuery),
    Route("POST", f"{CONTEXT}/rollback", history.rollback, told.Done, body=asked.RollingBack),
    Route("POST", f"{CONTEXT}/checkpoint", history.checkpoint, told.Done, body=asked.Checkpoint),
    # Search, windows, tools
    Route("GET", f"{CONTEXT}/search", search.find, told.Hits, asked.SearchQuery),
    Route("GET", f"{CONTEXT}/windows", windows.list_windows, told.Windows, asked.WindowsQuery),
    Route(
        "POST",
        f"{CONTEXT}/windows/{{w}}/{{action}}",
        windows.act,
        told.Acted,
        body=asked.Arguments,
        retried=False,  # what an app did may be done in the world
    ),
    Route("GET", f"{CONTEXT}/tools", windows.list_tools, told.ToolList, asked.ToolsQuery),
    Route("POST", f"{CONTEXT}/tools/call", windows.call_tool, told.Called, body=asked.ToolCalling, retried=False),
    # Live changes
    Route(
        "GET",
        f"{CONTEXT}/events",
        "follow",
        str,
        asked.EventsQuery,
        media="text/event-stream",
        summary="Changes of one context as they happen, as server-sent events.",
    ),
    Route(
        "GET",
        "/api/events",
        "follow",
        str,
        media="text/event-stream",
        summary="Changes of all contexts as they happen, as server-sent events.",
    ),
)
"""Every route, once. A handler given as a name is a method of the service: it answers by itself."""
