"""Every route: a valid request, refused requests, and a context that does not exist."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import pytest

from quire import Library
from quire.errors import Hint, InvalidOperation
from quire.server.gateway_ledger import GatewaySession, Ledger
from quire.server.responses import to_http_error
from quire.server.routes import ROUTES, Route
from tests.server.conftest import Api, Talk
from tests.server.test_change_stream import events

JSON = "application/json"
_NONE: Mapping[str, Any] = MappingProxyType({})


class Case(NamedTuple):
    """A valid request of a route, and fields of the response."""

    path: Mapping[str, str] = _NONE
    query: Mapping[str, Any] = _NONE
    body: Any = None
    has: Mapping[str, Any] = _NONE


CASES: dict[str, Case] = {
    "get_health": Case(has={"status": "ok"}),
    "get_metrics": Case(),
    "get_openapi_json": Case(has={"openapi": "3.1.0"}),
    "get_contexts": Case(query={"limit": "2", "prefix": "测试"}),
    "post_contexts": Case(has={"seq": 1, "budget": 4_000}),
    "get_contexts_c": Case(has={"seq": 26}),
    "delete_contexts_c": Case(has={"seq": 0}),
    "post_contexts_c_fork": Case(has={"budget": 4_000}),
    "get_contexts_c_stats": Case(has={"active_items": 13}),
    "get_contexts_c_pages": Case(query={"parent": "mem-1", "limit": "2"}, has={"next": "mem-3"}),
    "post_contexts_c_pages": Case(
        body={"kind": "detail", "name": "新", "description": "d", "detail": "文本", "parent": "mem-0"}, has={"seq": 27}
    ),
    "get_contexts_c_pages_p": Case({"p": "mem-2"}, {"max_chars": "6", "offset": "2"}, has={"detail": "xt 0 t"}),
    "patch_contexts_c_pages_p": Case({"p": "mem-2"}, body={"name": "neu", "detail": "anders"}, has={"seq": 27}),
    "delete_contexts_c_pages_p": Case({"p": "mem-1"}, has={"removed": 6}),
    "post_contexts_c_pages_p_expand": Case({"p": "mem-2"}, has={"seq": 26}),
    "post_contexts_c_pages_p_hide": Case({"p": "mem-2"}, has={"seq": 27}),
    "post_contexts_c_pages_p_pin": Case({"p": "mem-2"}, body={}, has={"seq": 27}),
    "post_contexts_c_pages_p_unpin": Case({"p": "mem-2"}, has={"seq": 26}),
    "post_contexts_c_pages_p_restore": Case({"p": "mem-2"}, has={"seq": 26}),
    "post_contexts_c_pages_p_recall": Case({"p": "mem-2"}, has={"seq": 26}),
    "post_contexts_c_pages_p_archive": Case({"p": "mem-2"}, body={"cold": True}, has={"seq": 27}),
    "post_contexts_c_pages_p_move": Case({"p": "mem-5"}, body={"target": "mem-1", "before": "mem-2"}, has={"seq": 27}),
    "get_contexts_c_messages": Case(query={"after": "2", "limit": "1"}, has={"next": 3}),
    "post_contexts_c_messages": Case(body={"role": "user", "content": "你好"}, has={"index": 19}),
    "post_contexts_c_import": Case(body={"messages": [{"role": "user", "content": "x"}]}, has={"messages": 1}),
    "get_contexts_c_view": Case(query={"budget": "900", "format": "anthropic", "recall": "0.2"}, has={"budget": 900}),
    "get_contexts_c_sent": Case(query={"format": "anthropic"}, has={"tokens": None, "view": None}),
    "post_contexts_c_render": Case(body={"budget": 900, "reserve": 10}, has={"budget": 900}),
    "get_contexts_c_diff": Case(query={"left_seq": "10", "right_budget": "900"}, has={"format": "openai"}),
    "get_contexts_c_why_p": Case({"p": "mem-2"}, {"budget": "900"}, has={"index": "mem-2", "shown": "whole"}),
    "get_contexts_c_history": Case(query={"order": "desc", "limit": "1"}, has={"next": 26}),
    "post_contexts_c_undo": Case(body={"seq": 26}, has={"seq": 27}),
    "get_contexts_c_rollback": Case(query={"to": "20"}, has={"seq": 20, "entries": 6}),
    "post_contexts_c_rollback": Case(body={"to": 20}, has={"seq": 27}),
    "post_contexts_c_checkpoint": Case(body={"name": "这里"}, has={"seq": 27}),
    "get_contexts_c_search": Case(query={"q": "西雅图", "role": "user"}),
    "get_contexts_c_windows": Case(has={"apps": ["todo", "scratch"]}),
    "post_contexts_c_windows_w_action": Case({"w": "todo_1", "action": "add"}, body={"text": "买菜"}),
    "get_contexts_c_tools": Case(query={"format": "mcp"}, has={"format": "mcp"}),
    "post_contexts_c_tools_call": Case(body={"name": "find", "arguments": {"query": "note"}}),
    "get_contexts_c_events": Case(query={"after": "25"}),
    "get_events": Case(),
    "get_gateway_sessions": Case(),
    "post_gateway_mode": Case(body={"name": "gateway/one", "mode": "fold"}),
}
IN_CONTEXT = [route for route in ROUTES if "{c}" in route.path]


def named(route: Route) -> str:
    return route.name


def url(route: Route, context: str, case: Case) -> str:
    return route.path.format(c=context.rpartition("/")[2], **{k: quote(v) for k, v in case.path.items()})


def body_of(route: Route, case: Case, talk: Talk) -> dict[str, Any]:
    if route.name in ("post_contexts", "post_contexts_c_fork"):
        return {"json": {"name": f"made of {talk.context.name}"}}
    return {} if case.body is None else {"json": case.body}


def test_every_route_has_its_case() -> None:
    assert {route.name for route in ROUTES} == CASES.keys()
    assert len({route.name for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_a_route_returns_its_declared_type(route: Route, api: Api, talk: Talk, library: Library) -> None:
    case = CASES[route.name]
    if "gateway" in route.path:
        ledger = Ledger(library, create=True)
        ledger.write({"gateway/one": GatewaySession(name="gateway/one")})
        ledger.close()
    if "windows" in route.path:
        from quire.windows.apps import Todo

        talk.context.windows.register(Todo)
        talk.context.windows.open("todo")
    path = url(route, talk.path, case)
    if route.media == "text/event-stream":
        with events(api, path, **case.query) as stream:
            assert stream.first == ": listening"
        return
    response = api.ask(route.method, path, route.status, params=case.query, **body_of(route, case, talk))
    assert response.headers["content-type"].startswith(route.media)
    if route.media == JSON:
        answer = msgspec.json.decode(response.content, type=route.answer) if route.name not in RAW else response.json()
        assert answer is not None
        for field, value in case.has.items():
            assert response.json()[field] == value, response.json()


RAW = ("get_contexts_c_view", "post_contexts_c_render")
"""Their responses contain encoded parts, which cannot be decoded into the type."""


@pytest.mark.parametrize("route", IN_CONTEXT, ids=named)
@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("not-there", 404, "no_such_context"), ("%20x", 400, "invalid_value"), ("a%00b", 400, "invalid_value")],
)
def test_a_context_that_does_not_exist_is_named(route: Route, name: str, status: int, code: str, api: Api) -> None:
    case = CASES[route.name]
    body = {} if case.body is None else {"json": case.body}
    if route.name == "post_contexts_c_fork":
        body = {"json": {"name": "x"}}
    said = api.refused(route.method, url(route, name, case), status, code, params=case.query, **body)
    assert status == 400 or "not-there" in said or "\\x00" in said or "x" in said


@pytest.mark.parametrize("route", IN_CONTEXT, ids=named)
def test_a_parameter_that_a_route_does_not_have_is_refused(route: Route, api: Api, still: Talk) -> None:
    case = CASES[route.name]
    said = api.refused(
        route.method, url(route, still.path, case), 400, "invalid_value", params={**case.query, "tokne": "1"}
    )
    assert "tokne" in said
    query = {**case.query, "limit": "1"}
    twice = "&".join(f"{key}={quote(str(value))}" for key, value in [*query.items(), ("limit", "1")])
    api.refused(route.method, f"{url(route, still.path, case)}?{twice}", 400, "invalid_value")
    api.refused(route.method, f"{url(route, still.path, case)}?limit=%ff", 400, "invalid_value")


WITH_BODY = [route for route in IN_CONTEXT if route.body is not None]


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_a_body_that_is_not_as_it_should_be_is_refused_and_changes_nothing(route: Route, api: Api, still: Talk) -> None:
    path, before = url(route, still.path, CASES[route.name]), still.context.seq
    send = {"content": b"{}", "headers": {"content-type": "text/plain"}}
    api.refused(route.method, path, 415, "not_json", **send)
    for content in (b"{", b"\xff", b'{"a": 1} x', b"7", b'"x"', b"null", b"[" * 5_000, b'{"x":' * 5_000):
        api.refused(route.method, path, 400, "invalid_value", content=content, headers={"content-type": JSON})
    if route.name not in ("post_contexts_c_windows_w_action", "post_contexts_c_messages"):
        api.refused(route.method, path, 400, "invalid_value", json={"not a field": 1})
    assert not still.context.refresh()
    assert still.context.seq == before


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "code"),
    [
        ("GET", "/pages/mem-99", {}, 404, "no_such_page"),
        ("GET", "/pages/USR-1", {}, 404, "no_such_page"),
        ("GET", "/pages?parent=mem-2", {}, 422, "invalid_operation"),
        ("GET", "/pages?parent=mem-1&after=usr-1", {}, 400, "invalid_value"),
        ("GET", "/pages?limit=0", {}, 400, "invalid_value"),
        ("GET", "/pages?limit=1001", {}, 400, "invalid_value"),
        ("GET", "/pages?after=mem-2", {}, 400, "invalid_value"),
        ("GET", "/pages?lifecycle=ACTIVE", {}, 400, "invalid_value"),
        ("GET", "/messages?after=99", {}, 400, "invalid_value"),
        ("GET", "/view?budget=5", {}, 422, "irreducible_floor"),
        ("GET", "/view?budget=-5", {}, 400, "invalid_value"),
        ("GET", "/view?format=gemini", {}, 400, "invalid_value"),
        ("GET", "/view?recall=2", {}, 400, "invalid_value"),
        ("GET", "/diff?left_seq=999", {}, 400, "invalid_value"),
        ("GET", "/why/mem-99", {}, 404, "no_such_page"),
        ("GET", "/history?page=mem-99", {}, 400, "invalid_value"),
        ("GET", "/rollback", {}, 400, "invalid_value"),
        ("GET", "/rollback?to=nowhere", {}, 400, "invalid_value"),
        ("GET", f"/rollback?to={'9' * 5_000}", {}, 400, "invalid_value"),
        ("GET", "/search", {}, 400, "invalid_value"),
        ("GET", "/search?q=x&segment=nope", {}, 404, "no_such_segment"),
        ("POST", "/pages", {"json": {"name": "", "parent": "mem-0"}}, 400, "invalid_value"),
        ("POST", "/pages", {"json": {"name": "x", "parent": "nope-0"}}, 404, "no_such_page"),
        (
            "POST",
            "/pages",
            {"json": {"kind": "contents", "name": "x", "detail": "y", "parent": "mem-0"}},
            400,
            "invalid_value",
        ),
        ("POST", "/pages/sys-0/hide", {}, 422, "invalid_operation"),
        ("POST", "/pages/mem-1/move", {"json": {"target": "mem-1"}}, 422, "invalid_operation"),
        ("PATCH", "/pages/usr-1", {"json": {"detail": "x"}}, 422, "invalid_operation"),
        ("POST", "/messages", {"json": {"role": "nobody"}}, 400, "invalid_value"),
        ("POST", "/messages", {"json": []}, 400, "invalid_value"),
        ("POST", "/undo", {"json": {"seq": 999}}, 400, "invalid_value"),
        ("POST", "/rollback", {"json": {"to": "nowhere"}}, 400, "invalid_value"),
        ("POST", "/fork", {"json": {"name": " outer space"}}, 400, "invalid_value"),
        ("POST", "/windows/none/add", {"json": {}}, 404, "no_such_window"),
        ("PUT", "", {}, 405, "no_such_method"),
        ("GET", "/nothing", {}, 404, "no_such_route"),
    ],
)
def test_a_refused_request_names_the_reason_and_changes_nothing(
    method: str, path: str, more: dict[str, Any], status: int, code: str, api: Api, still: Talk
) -> None:
    before = still.context.seq
    api.refused(method, still.path + path, status, code, **more)
    still.context.refresh()
    assert still.context.seq == before


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("GET", "/view?format=xml", None, ("format is 'xml'", "openai", "anthropic", "responses")),
        ("GET", "/view?against=zz", None, ("against is 'zz'", "given", "call")),
        ("GET", "/pages?lifecycle=zz", None, ("lifecycle is 'zz'", "active", "hot", "cold")),
        ("GET", "/history?order=up", None, ("order is 'up'", "asc", "desc")),
        ("GET", "/search?q=x&kind=zz", None, ("kind is 'zz'", "folder", "chapter")),
        ("GET", "/tools?format=xml", None, ("format is 'xml'", "mcp")),
        ("GET", "/pages?limit=abc", None, ("limit is 'abc'", "a whole number from 1 to 1,000 ")),
        ("GET", "/pages?limit=5000", None, ("limit is '5000'", "1,000")),
        ("GET", "/pages?parent=", None, ("parent is ''", "text of 1 to 64 characters")),
        ("GET", "/view?recall=x", None, ("recall is 'x'", "a number from 0 to 1 or true or false is")),
        ("GET", "/view?zz=1", None, ("`zz`", "budget, format, recall, against")),
        ("POST", "/render", {"windows": "x"}, ("windows is 'x'", "tail", "inline")),
        ("POST", "/render", {"recall": "x"}, ("recall is 'x'", "a number from 0 to 1, true or false or null is")),
        ("POST", "/fork", {"at": 1}, ("`name`", "Fields: name, at")),
        ("POST", "/import", {"messages": 3}, ("messages is 3", "a list")),
        ("POST", "/tools/call", {"name": "find", "arguments": 3}, ("arguments is 3", "an object", "text", "null")),
    ],
)
def test_an_invalid_value_is_named_with_the_accepted_ones(
    method: str, path: str, body: Any, words: tuple[str, ...], api: Api, still: Talk
) -> None:
    said = api.refused(method, still.path + path, 400, "invalid_value", **({} if body is None else {"json": body}))
    assert all(word in said for word in words), said


@pytest.mark.parametrize("half", ["\\ud800", "\\uDC00", "\\ud800x"])
def test_half_of_a_surrogate_pair_is_named(half: str, api: Api, still: Talk) -> None:
    content = f'{{"role":"user","content":"\\ud83d\\ude00 {half}"}}'.encode()
    headers = {"content-type": JSON}
    said = api.refused("POST", f"{still.path}/messages", 400, "invalid_value", content=content, headers=headers)
    assert f"{half[:6]} is half of a surrogate pair" in said


def test_a_preview_takes_the_values_of_recall_that_a_view_takes(api: Api, still: Talk) -> None:
    assert api.get(f"{still.path}/view", recall="true")["messages"]
    assert api.get(f"{still.path}/view", recall="0.2")["messages"]


def test_an_unknown_gateway_session_does_not_exist(api: Api) -> None:
    assert "'zz'" in api.refused("POST", "/api/gateway/mode", 404, "no_such_context", json={"name": "zz", "mode": None})


def test_a_number_is_an_entry_in_a_preview_and_in_the_change(api: Api, talk: Talk) -> None:
    assert "'20'" in api.refused("POST", f"{talk.path}/checkpoint", 400, "invalid_value", json={"name": "20"})
    previewed = api.get(f"{talk.path}/rollback", to="20")["messages_after"]
    fork = f"{talk.context.name} at 20"
    api.post(f"{talk.path}/fork", {"name": fork, "at": "20"}, 201)
    assert len(api.get(f"/api/contexts/{quote(fork, safe='')}/messages")["messages"]) == previewed
    api.post(f"{talk.path}/rollback", {"to": "20"})
    assert len(api.get(f"{talk.path}/messages")["messages"]) == previewed


def test_a_part_of_a_page_has_no_messages(api: Api, still: Talk) -> None:
    path = f"{still.path}/pages/usr-1"
    whole = api.get(path)
    assert whole["messages"][0]["content"] in whole["detail"]
    size = whole["detail_chars"]
    assert api.get(path, max_chars=size)["messages"] == whole["messages"]
    for part in ({"max_chars": 5}, {"max_chars": size - 1}, {"offset": 1}):
        answer = api.get(path, **part)
        assert (answer["messages"], answer["detail_chars"]) == ([], size)
        assert len(answer["detail"]) < size


def test_a_context_cannot_be_made_twice(api: Api, talk: Talk) -> None:
    said = api.refused("POST", "/api/contexts", 422, "invalid_operation", json={"name": talk.context.name})
    assert "exists already" in said
    api.refused("POST", f"{talk.path}/fork", 422, "invalid_operation", json={"name": talk.context.name})


def test_a_page_moved_to_another_segment_has_a_new_index(api: Api, talk: Talk) -> None:
    talk.context.pages.add_segment(
        msgspec.structs.replace(talk.context.pages.get_segment("mem"), id="b", root_index="")
    )
    answer = api.post(f"{talk.path}/pages/mem-2/move", {"target": "b-0"})
    assert answer["moved"] == {"mem-2": "b-1"}
    assert answer["page"]["index"] == "b-1"
    assert "b-1" in api.refused("GET", f"{talk.path}/pages/mem-2", 404, "no_such_page")


def test_a_change_of_a_page_is_one_entry(api: Api, talk: Talk) -> None:
    answer = api.ask(
        "PATCH", f"{talk.path}/pages/mem-2", 200, json={"name": "a", "description": "", "detail": "长"}
    ).json()
    assert answer["seq"] == talk.context.seq + 1
    page = api.get(f"{talk.path}/pages/mem-2")
    assert (page["name"], page["description"], page["detail"]) == ("a", "", "长")
    api.refused(
        "PATCH", f"{talk.path}/pages/mem-2", 400, "invalid_value", json={"name": "b", "description": "x" * 3_000}
    )
    assert api.get(f"{talk.path}/pages/mem-2")["name"] == "a"


def test_hints_of_errors_name_routes() -> None:
    def text(*hints: Hint) -> str:
        return str(to_http_error(InvalidOperation("mem-2 is hidden.", *hints)))

    expected = "mem-2 is hidden. Call POST …/pages/mem-2/expand to open it."
    assert text(Hint("expand", "mem-2", purpose="to open it")) == expected
    assert text(Hint("find", purpose="to look for it")) == "mem-2 is hidden. Call GET …/search to look for it."
    assert text(Hint("refresh")) == "mem-2 is hidden. Retry the request."
    assert text(Hint("migrate", arguments="target")) == "mem-2 is hidden."
