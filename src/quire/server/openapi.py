"""The OpenAPI description of the table of routes."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from quire.server import told
from quire.server.asked import EventsQuery, Nothing
from quire.server.routes import ROUTES, Route

LAST_HEARD = "Last-Event-ID"
"""The header with which a client of server-sent events comes again."""
_REF = "#/components/schemas/{name}"
_PARAMETERS = {
    "c": "The name of a context.",
    "p": "A page index, such as usr-7.",
    "w": "The id of a window.",
    "action": "The name of an action.",
}
_REFUSALS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_BODY_REFUSALS = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)


def description(version: str) -> dict[str, Any]:
    """All routes, with what they take and answer."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    answers = [route.answer for route in ROUTES if route.media == "application/json"]
    queries = [route.query for route in ROUTES]
    types: list[Any] = [*bodies, *answers, *queries, told.Failed]
    written, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = {_key(kind): schema for kind, schema in zip(types, written, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    for name in {query.__name__ for query in queries}:  # each stands as the parameters of its route
        components.pop(name, None)
    components.setdefault("Nothing", {"type": "object", "additionalProperties": False, "properties": {}})
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


def _key(kind: Any) -> str:
    return repr(kind)


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
        content = {"application/json": {"schema": schemas[_key(route.body)]}}
        found["requestBody"] = {"required": not is_optional(route.body), "content": content}
    return found


def is_optional(body: Any) -> bool:
    """Whether a body may be left out: everything in it may."""
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
    if route.query is Nothing:
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
        schema = {"type": "string"}
        yield {"name": LAST_HEARD, "in": "header", "required": False, "description": "As `after`.", "schema": schema}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What a parameter may be: it is left out instead of being null."""
    kept = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    if "anyOf" in kept:
        choices = [choice for choice in kept.pop("anyOf") if choice != {"type": "null"}]
        kept |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    if "enum" in kept:
        kept["enum"] = [value for value in kept["enum"] if value is not None]
    return kept


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = schemas[_key(route.answer)] if route.media == "application/json" else {"type": "string"}
    found = {str(route.status.value): _response(route.status, route.media, schema)}
    failed = schemas[_key(told.Failed)]
    refusals = (HTTPStatus.FORBIDDEN, HTTPStatus.BAD_REQUEST) if route.public else _REFUSALS
    for status in (*refusals, *(_BODY_REFUSALS if route.body is not None else ())):
        found[str(status.value)] = _response(status, "application/json", failed)
    return found


def _response(status: HTTPStatus, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": status.phrase, "content": {media: {"schema": schema}}}
