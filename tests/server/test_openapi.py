"""The OpenAPI document: it is complete, and no valid or invalid request generated from it breaks the server.

With `--long` many more requests are made; a failure prints the blob with which `@reproduce_failure` makes it again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.python.asgi import HOST

import quire
from quire.server import handlers
from quire.server.app import Options, Service
from quire.server.routes import ROUTES, Empty, Route, describe_api
from tests.server.conftest import TOKEN, talk_in

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
ASKED = [route for route in ROUTES if "event" not in route.path]
NAMES = st.sampled_from(["book", "book", "book", "nobody", "测试", "a/b"])
PAGES = st.sampled_from(["mem-2", "mem-2", "usr-1", "usr-0", "sys-1", "mem-99", "x"])
KNOWN = {"c": NAMES, "p": PAGES, "w": st.sampled_from(["todo_1", "none"]), "action": st.sampled_from(["add", "close"])}


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    """The document of a server over a store that no other test uses."""
    library = quire.Library("memory:")
    talk_in(library, "book")
    service = Service(library, TOKEN, Options(hosts=(HOST,), budget=2_000))
    yield schemathesis.openapi.from_asgi("/openapi.json", service.app, headers=AUTHORIZED)
    library.close()


def test_the_description_has_every_route_and_every_word_of_it_is_said() -> None:
    document = describe_api("1")
    paths = document["paths"]
    assert {(path, method.upper()) for path, ways in paths.items() for method in ways} == {
        (route.path, route.method) for route in ROUTES
    }
    for route in ROUTES:
        operation = paths[route.path][route.method.lower()]
        assert operation["summary"].endswith("."), route.path
        assert str(route.status.value) in operation["responses"]
        assert ("requestBody" in operation) == (route.body is not None)
        assert {one["name"] for one in operation["parameters"] if one["in"] == "path"} == {
            part.strip("{}") for part in route.path.split("/") if part.startswith("{")
        }
        assert {one["name"] for one in operation["parameters"] if one["in"] == "query"} == {
            *route.query.__struct_fields__
        }
    assert set(_references(document)) == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


MODES = {"right": GenerationMode.POSITIVE, "wrong": GenerationMode.NEGATIVE}


def test_a_few_requests_that_can_be_described_break_nothing(schema: Any) -> None:
    for place, route in enumerate(ASKED):  # always the same routes; all routes run with --long
        if place % 4 in (0, 2):
            ask_for(schema, route, tuple(MODES)[place % 4 // 2], examples=2, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("route", ASKED, ids=lambda route: route.name)
def test_no_request_that_can_be_described_breaks_the_server(route: Route, how: str, schema: Any) -> None:
    ask_for(schema, route, how, examples=100, derandomize=False)


def ask_for(schema: Any, route: Route, how: str, *, examples: int, derandomize: bool) -> None:
    """Generate valid or invalid requests for a route and check the responses."""
    operation = schema[route.path][route.method]
    if how == "wrong" and not operation.path_parameters and not route.query.__struct_fields__:
        return  # there is no parameter that could be invalid

    @settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=[Phase.generate] if derandomize else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(
        case=operation.as_strategy(generation_mode=MODES[how]), known=st.fixed_dictionaries(KNOWN), use=st.booleans()
    )
    def ask(case: Any, known: dict[str, str], use: bool) -> None:
        if use or how == "right":
            case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
        response = case.call(headers=AUTHORIZED)
        assert response.status_code < 500, response.content
        case.validate_response(response, checks=[not_a_server_error])
        if response.status_code >= 400:
            assert response.json()["error"]["code"], response.content
        if response.status_code == 200 and how == "right":
            case.validate_response(response, checks=[schemathesis.checks.response_schema_conformance])

    ask()


FREE = {
    handlers.MessageOrList: "a message, or a list of them",
    handlers.HistoryOrList: "**`messages`**, or the list itself",
    handlers.ActionArguments: "the action's arguments by name",
}


def takes(route: Route) -> str:
    """Return the parameters or fields of a route as in the docs: required ones are bold."""
    if route.body in FREE:
        return FREE[route.body]
    taken = [field for kind in (route.query, route.body or Empty) for field in msgspec.structs.fields(kind)]
    return " ".join(f"**`{field.name}`**" if field.required else f"`{field.name}`" for field in taken)


def test_every_route_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    for route in ROUTES:
        assert f"| `{route.method} {route.path}` | {takes(route)} | {route.about} |" in page
    for name in Options.__dataclass_fields__.keys() - {"host"}:
        assert f"`{name}" in page, name
