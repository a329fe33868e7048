"""The table of routes. The dispatcher, the validation of requests and the OpenAPI document are derived from it.

A handler is a plain function. Its first argument is the open context that the path names, or the pool of contexts if
the path names none; the other parameters of the path follow. Its keyword-only arguments are the query of a GET or
DELETE request and the JSON body of a POST or PATCH request; an argument `body` is the whole body. Its return type is
the type of the answer, and the first line of its docstring is the summary.
"""

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from inspect import Parameter, signature
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, defstruct

from quire.server import responses
from quire.server.context_pool import ContextPool
from quire.server.handlers import EventsQuery, contexts, history, pages, views
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

LAST_EVENT_ID = "Last-Event-ID"
"""The header with which a client resumes a stream of server-sent events."""
_REF = "#/components/schemas/"
_SCHEMA_NAMES: dict[type, str] = {
    responses.ActionResult: "Acted",
    responses.AddResult: "Added",
    responses.CommitResult: "Done",
    responses.ContextStats: "Counted",
    responses.ErrorBody: "Failed",
    responses.ErrorDetail: "Failure",
    responses.ImportResult: "Imported",
    responses.PageResult: "Changed",
    responses.PageRollback: "Turned",
    responses.RemoveResult: "Removed",
    responses.ToolResult: "Called",
    responses.ViewBody: "ViewOf",
    responses.ViewItem: "Shown",
    Empty: "Nothing",
}
"""Names of schemas in the document that differ from the class names. Generated clients rely on them."""
for _kind, _name in _SCHEMA_NAMES.items():
    _kind.__name__ = _name  # msgspec names a schema after its class
_PARAMETERS = {
    "c": "The name of a context.",
    "p": "A page index, such as usr-7.",
    "w": "The id of a window.",
    "action": "The name of an action.",
}
_PUBLIC_STATUSES = (400, 403)
_ERROR_STATUSES = (400, 401, 403, 404, 409, 422, 503)
_BODY_STATUSES = (408, 413, 415)


def describe_api(version: str) -> dict[str, Any]:
    """Return the OpenAPI document of all routes."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    answers = [route.answer for route in ROUTES if route.media == "application/json"]
    queries = [route.query for route in ROUTES]
    types: list[Any] = [*bodies, *answers, *queries, responses.ErrorBody]
    written, components = msgspec.json.schema_components(types, ref_template=_REF + "{name}")
    schemas = {repr(kind): schema for kind, schema in zip(types, written, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, schemas, components)
    for name in {query.__name__ for query in queries}:  # described as the parameters of its route
        components.pop(name, None)
    components[Empty.__name__] = {"type": "object", "additionalProperties": False, "properties": {}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "quire", "version": version, "description": "Contexts of agents: pages under a budget."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "parameters": [*_path_parameters(route), *_query_parameters(route, components)],
        "responses": _responses(route, schemas),
    }
    if route.public:
        found["security"] = []
    if route.body is not None:
        content = {"application/json": {"schema": schemas[repr(route.body)]}}
        found["requestBody"] = {"required": not is_optional(route.body), "content": content}
    return found


def is_optional(body: Any) -> bool:
    """Return whether a body may be omitted because all its fields may."""
    if not (isinstance(body, type) and issubclass(body, msgspec.Struct)):
        return bool(body == dict[str, Any])
    return all(not field.required for field in msgspec.structs.fields(body))


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for part in route.path.split("/"):
        if part.startswith("{"):
            name = part.strip("{}")
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": _PARAMETERS[name],
                "schema": {"type": "string", "minLength": 1},
            }


def _query_parameters(route: Route, components: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if route.query is Empty:
        return
    schema = components[route.query.__name__]
    for name, field in schema["properties"].items():
        yield {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _without_null(field),
        }
    if route.query is EventsQuery:
        header = {"name": LAST_EVENT_ID, "in": "header", "required": False, "description": "Same as `after`."}
        yield {**header, "schema": {"type": "string"}}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter, which is omitted instead of null."""
    kept = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    if "anyOf" in kept:
        choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
        kept |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    if "enum" in kept:
        kept["enum"] = [value for value in kept["enum"] if value is not None]
    return kept


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = schemas[repr(route.answer)] if route.media == "application/json" else {"type": "string"}
    found = {str(route.status.value): _response(route.status, route.media, schema)}
    failed = schemas[repr(responses.ErrorBody)]
    statuses = _PUBLIC_STATUSES if route.public else _ERROR_STATUSES
    for status in (*statuses, *(_BODY_STATUSES if route.body is not None else ())):
        found[str(status)] = _response(HTTPStatus(status), "application/json", failed)
    return found


def _response(status: HTTPStatus, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": status.phrase, "content": {media: {"schema": schema}}}
