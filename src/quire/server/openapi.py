"""The OpenAPI document, derived from the table of routes."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from quire.server import responses
from quire.server.requests import EventsQuery
from quire.server.routes import ROUTES, Empty, Route

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
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
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


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
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
