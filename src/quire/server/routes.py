"""The table of routes. The dispatcher, the validation of requests and the OpenAPI document are derived from it.

A handler is a plain function. Its first argument is the open context that the path names, or the pool of contexts if
the path names none; the other parameters of the path follow. Its keyword-only arguments are the query of a GET or
DELETE request and the JSON body of a POST or PATCH request; an argument `body` is the whole body. Its return type is
the type of the answer, and the first line of its docstring is the summary.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from inspect import Parameter, signature
from typing import Any, Literal, NamedTuple

from msgspec import Struct, defstruct

from quire.server.context_pool import ContextPool
from quire.server.handlers import contexts, history, pages, views
from quire.server.requests import EventsQuery
from quire.server.responses import Health

Method = Literal["GET", "POST", "PATCH", "DELETE"]


def _struct(name: str, about: str, fields: Sequence[Any] = ()) -> type[Struct]:
    namespace = {"__doc__": about}
    return defstruct(name, fields, namespace=namespace, frozen=True, kw_only=True, forbid_unknown_fields=True)


Empty = _struct("Empty", "No parameters, or an empty object.")


class Route(NamedTuple):
    """A route. `query` and `body` are types. A handler given as a name is a method of the service.

    `retries`: after a `Conflict` with another writer the handler runs once more. `public`: no token is needed.
    """

    method: Method
    path: str
    handler: Callable[..., Any] | str
    answer: Any
    about: str
    query: Any = Empty
    body: Any = None
    status: HTTPStatus = HTTPStatus.OK
    retries: bool = True
    public: bool = False
    media: str = "application/json"

    @property
    def name(self) -> str:
        """The unique name of the route."""
        words = [part.strip("{}") for part in self.path.split("/") if part and part != "api"]
        return "_".join([self.method.lower(), *words]).replace(".", "_")

    def call(self, pool: ContextPool, path: dict[str, str], given: Any) -> Any:
        """Run the handler with the parameters of the path and the query or body of a request."""
        handler: Any = self.handler
        if type(given) in (self.query, self.body):
            arguments = {name: getattr(given, name) for name in given.__struct_fields__}
        else:
            arguments = {"body": given}
        if "c" not in path:
            return handler(pool, *path.values(), **arguments)
        with pool.use(path["c"]) as opened:
            return handler(opened, *(value for name, value in path.items() if name != "c"), **arguments)


def _route(method: Method, path: str, handler: Callable[..., Any], schema: str = "", **options: Any) -> Route:
    """Return a route with the types of the handler's signature. `schema` is the name of the type of its body."""
    found = signature(handler)
    about = options.pop("about", None) or (handler.__doc__ or "").partition("\n")[0]
    given = [one for one in found.parameters.values() if one.kind is Parameter.KEYWORD_ONLY]
    if given and given[0].name == "body":
        kind = given[0].annotation
    else:
        fields = [
            (one.name, one.annotation) if one.default is Parameter.empty else (one.name, one.annotation, one.default)
            for one in given
        ]
        kind = _struct(schema or f"{handler.__name__}_query", about, fields) if fields else Empty
    options["body" if method in ("POST", "PATCH") else "query"] = kind
    return Route(method, path, handler, found.return_annotation, about, **options)


def _operation(name: str, about: str) -> Route:
    return _route("POST", f"{PAGE}/{name}", pages.page_operation(name), about=about)


CONTEXT = "/api/contexts/{c}"
PAGE = f"{CONTEXT}/pages/{{p}}"
_CREATED = HTTPStatus.CREATED
_EVENTS = "text/event-stream"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", "health", Health, "Report that the server runs.", public=True),
    Route("GET", "/metrics", "metrics", str, "Return metrics in Prometheus format.", media="text/plain"),
    Route("GET", "/openapi.json", "openapi", dict[str, Any], "Return this document."),
    # Contexts
    _route("GET", "/api/contexts", contexts.list_contexts),
    _route("POST", "/api/contexts", contexts.create_context, "NewContext", status=_CREATED),
    _route("GET", CONTEXT, contexts.show_context),
    _route("DELETE", CONTEXT, contexts.delete_context),
    _route("POST", f"{CONTEXT}/fork", contexts.fork_context, "NewFork", status=_CREATED),
    _route("GET", f"{CONTEXT}/stats", contexts.count_context),
    # Pages
    _route("GET", f"{CONTEXT}/pages", pages.list_pages),
    _route("POST", f"{CONTEXT}/pages", pages.create_page, "NewPage", status=_CREATED),
    _route("GET", PAGE, pages.show_page),
    _route("PATCH", PAGE, pages.change_page, "PageChange"),
    _route("DELETE", PAGE, pages.remove_page),
    _operation("expand", "Expand a page and all folders above it."),
    _operation("hide", "Show only the page's summary line."),
    _operation("pin", "Pin a page: it is always shown whole."),
    _operation("unpin", "Remove a pin."),
    _operation("restore", "Restore a hot-archived page to the view."),
    _operation("recall", "Bring a page back from the cold archive."),
    _route("POST", f"{PAGE}/archive", pages.archive_page, "Archiving"),
    _route("POST", f"{PAGE}/move", pages.move_page, "Moving"),
    # Messages
    _route("GET", f"{CONTEXT}/messages", pages.list_messages),
    _route("POST", f"{CONTEXT}/messages", pages.add_messages, status=_CREATED),
    _route("POST", f"{CONTEXT}/import", pages.import_messages, retries=False),
    # Views
    _route("GET", f"{CONTEXT}/view", views.show_view),
    _route("GET", f"{CONTEXT}/sent", views.show_sent),
    _route("POST", f"{CONTEXT}/render", views.render_view, "Rendering"),
    _route("GET", f"{CONTEXT}/diff", views.compare_views),
    _route("GET", f"{CONTEXT}/why/{{p}}", views.explain_page),
    # History
    _route("GET", f"{CONTEXT}/history", history.list_entries),
    _route("POST", f"{CONTEXT}/undo", history.undo, "Undoing"),
    _route("GET", f"{CONTEXT}/rollback", history.preview_rollback),
    _route("POST", f"{CONTEXT}/rollback", history.rollback, "RollingBack"),
    _route("POST", f"{CONTEXT}/checkpoint", history.checkpoint, "Checkpoint"),
    # Search, windows, tools. An action or a tool may have effects outside the store, so it is not retried.
    _route("GET", f"{CONTEXT}/search", pages.find_pages),
    _route("GET", f"{CONTEXT}/windows", views.list_windows),
    _route("POST", f"{CONTEXT}/windows/{{w}}/{{action}}", views.act, retries=False),
    _route("GET", f"{CONTEXT}/tools", views.list_tools),
    _route("POST", f"{CONTEXT}/tools/call", views.call_tool, "ToolCalling", retries=False),
    # Sessions of the gateway
    _route("GET", "/api/gateway/sessions", contexts.list_sessions),
    _route("POST", "/api/gateway/mode", contexts.choose_mode, "GatewayMode"),
    # Live changes
    Route(
        "GET",
        f"{CONTEXT}/events",
        "events",
        str,
        "Stream the changes of one context as server-sent events.",
        EventsQuery,
        media=_EVENTS,
    ),
    Route(
        "GET", "/api/events", "events", str, "Stream the changes of all contexts as server-sent events.", media=_EVENTS
    ),
)
