"""The HTTP API from outside: every route of the table, the refused requests, lists, views and other writers."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import quire
import quire.gateway
from quire.testing import FaultyStorage, StubProvider
from quire.windows.apps import Todo
from tests.surfaces.comparing import assert_has
from tests.surfaces.hostile_texts import HOSTILE
from tests.surfaces.http_service import Service, refused, serving
from tests.surfaces.http_table import CALLS, REFUSALS, USER, Call, Refusal

JSON = {"Content-Type": "application/json"}
STILL = "测试/still ?#%"
"""The context that no test changes. Its name has characters that a path must encode."""
GATEWAY = {("POST", "/api/gateway/mode")}
"""Routes that need a gateway; they have a test of their own."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving() as found:
        found.book(STILL)
        yield found


@pytest.fixture(scope="module")
def still() -> Iterator[Service]:
    """A server on a store that no test changes."""
    with serving() as found:
        found.book(STILL)
        yield found


@pytest.fixture
def book(service: Service, request: pytest.FixtureRequest) -> tuple[quire.Context, str]:
    """A context of this test."""
    return service.book(f"书/{request.node.name[-80:]} ?#%")


def described(service: Service, media: str) -> set[tuple[str, str]]:
    """Return the method and path of each route whose answer has this media type, from the server's own document."""
    paths = service.get("/openapi.json")["paths"]
    return {
        (method.upper(), path)
        for path, methods in paths.items()
        for method, route in methods.items()
        if any(media in answer["content"] for status, answer in route["responses"].items() if status < "300")
    }


def route_of(row: Call | Refusal, routes: set[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the route of a row: of those that match, the one with the fewest parameters."""
    path = row.path.replace("{c}", "/api/contexts/x")
    fits = [r for r in routes if r[0] == row.method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", r[1]), path)]
    return min(fits, key=lambda route: route[1].count("{"), default=None)


def name_of(row: Call | Refusal) -> str:
    return f"{row.method} {row.path} {'' if row.given is None else str(row.given)[:40]}"


@pytest.mark.parametrize("row", CALLS, ids=name_of)
def test_a_call_returns_its_value(row: Call, service: Service, book: tuple[quire.Context, str]) -> None:
    context, path = book
    before = context.seq
    response = service.ask(row.method, row.path.replace("{c}", path), row.given)
    assert response.status_code == row.status, response.text
    if row.value is not None:
        assert_has(response.json(), row.value)
    if row.then is not None:
        after = service.ask("GET", row.then[0].replace("{c}", path))
        assert after.status_code == (404 if row.then[1] is None else 200)
        if row.then[1] is not None:
            assert_has(after.json(), row.then[1])
    if row.method != "DELETE" or row.path != "{c}":
        context.refresh()
        assert context.seq == before + row.writes
        assert context.check() == []


@pytest.mark.parametrize("row", REFUSALS, ids=name_of)
def test_a_refused_request_names_the_reason_and_changes_nothing(row: Refusal, still: Service) -> None:
    before = still.state()
    path = row.path.replace("{c}", f"/api/contexts/{quote(STILL, safe='')}")
    message = refused(still.ask(row.method, path, row.given), row.status, row.code)
    assert [name for name in row.names if name not in message] == [], message
    assert still.state() == before


def test_every_route_of_the_server_has_its_rows(service: Service) -> None:
    routes = described(service, "application/json") | described(service, "text/plain")
    assert routes - {route_of(row, routes) for row in CALLS} == GATEWAY
    assert len(routes) > 40
    everywhere = {route for route in routes if not route[1].startswith("/api/") or "/pages/{p}/" in route[1]}
    rows = {route_of(row, routes) for row in REFUSALS}
    simple = {("GET", "{c}"), ("DELETE", "{c}"), ("GET", "{c}/stats"), ("GET", "{c}/sent"), ("GET", "{c}/windows")}
    unrefusable = {(method, path.replace("{c}", "/api/contexts/{c}")) for method, path in simple}
    assert routes - rows - everywhere - unrefusable == {("GET", "/api/gateway/sessions")}


def test_every_route_is_in_the_documentation(service: Service) -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    paths = service.get("/openapi.json")["paths"]
    rows = {
        f"| `{method.upper()} {path}` |": route for path, methods in paths.items() for method, route in methods.items()
    }
    for row, route in rows.items():
        line = next(line for line in page.splitlines() if line.startswith(row))
        assert route["summary"] in line
        assert [one["name"] for one in route["parameters"] if one["in"] == "query" and one["name"] not in line] == []


def test_every_route_refuses_a_context_that_does_not_exist_and_what_it_does_not_know(still: Service) -> None:
    before = still.state()
    routes = {route for media in ("application/json", "text/event-stream") for route in described(still, media)}
    seen = set()
    for row in CALLS:
        if "{c}" not in row.path or route_of(row, routes) in seen:
            continue
        seen.add(route_of(row, routes))
        for name, status, code in (("not-there", 404, "no_such_context"), ("%20x", 400, "invalid_value")):
            refused(still.ask(row.method, row.path.replace("{c}", f"/api/contexts/{name}"), row.given), status, code)
        path = row.path.replace("{c}", f"/api/contexts/{quote(STILL, safe='')}")
        for query in ("tokne=1", "limit=1&limit=2", "limit=%ff"):
            more = {"json": row.given} if row.method in ("POST", "PATCH") and row.given is not None else {}
            refused(still.client.request(row.method, f"{path}?{query}", **more), 400, "invalid_value")
        if row.method in ("POST", "PATCH") and row.given is not None:
            refused(still.ask(row.method, path, content=b"{}", headers={"Content-Type": "text/plain"}), 415, "not_json")
            for body in (b"{", b"\xff", b"7", b"[" * 5_000, b'"\\ud800"'):
                refused(still.ask(row.method, path, content=body, headers=JSON), 400, "invalid_value")
    assert len(seen) > 30
    assert still.state() == before


# Lists, views


@pytest.mark.parametrize(
    ("path", "field", "key", "query"),
    [
        ("/api/contexts", "contexts", "name", {"prefix": "list "}),
        ("{c}/pages", "pages", "index", {}),
        ("{c}/pages", "pages", "index", {"parent": "usr-0"}),
        ("{c}/messages", "messages", "index", {}),
        ("{c}/messages", "messages", "index", {"all": "true"}),
        ("{c}/history", "entries", "seq", {}),
        ("{c}/history", "entries", "seq", {"order": "desc"}),
        ("{c}/history", "entries", "seq", {"operation": "user"}),
    ],
)
def test_the_parts_of_a_list_are_the_list(
    path: str, field: str, key: str, query: dict[str, Any], service: Service, book: tuple[quire.Context, str]
) -> None:
    book[0].conversation.delete([4, 5])
    for n in range(4):
        service.library.open(f"list {n}")
    path = path.replace("{c}", book[1])
    whole = [item[key] for item in service.get(path, **query)[field]]
    assert len(whole) >= 3
    for limit in (1, 2, 3):
        found, more = [], dict(query)
        while True:
            part = service.get(path, limit=limit, **more)
            assert len(part[field]) <= limit
            found += [item[key] for item in part[field]]
            if part["next"] is None:
                break
            more["before" if query.get("order") == "desc" else "after"] = part["next"]
        assert found == whole


@pytest.mark.parametrize("form", ["openai", "anthropic", "responses"])
def test_a_view_is_that_of_the_library(form: str, service: Service, book: tuple[quire.Context, str]) -> None:
    context, path = book
    view = service.get(f"{path}/view", format=form, budget=3_000)
    other = service.library.open(context.name)
    other.windows.register(Todo)
    drawn = other.render(max_tokens=3_000, preview=True)
    sent: Any = getattr(drawn, form)()
    assert view["messages"] == (sent["messages"] if form == "anthropic" else sent)
    assert view["tokens"] == drawn.tokens == sum(item["tokens"] for item in view["items"])
    context.user("And now?")
    later = service.get(f"{path}/view", format=form, budget=3_000)
    shared = len(view["messages"]) - 1  # all but the window, which stays last
    assert later["prefix"]["messages"] == shared
    assert later["messages"][:shared] == view["messages"][:shared]


def test_rendering_may_fold_and_looking_never_does(service: Service, book: tuple[quire.Context, str]) -> None:
    context, path = book
    for n in range(40):
        context.user(f"Question {n}: " + "water " * 20)
        context.assistant("Yes. " * 20)
    before = service.state()
    service.get(f"{path}/view", budget=1_500)
    service.get(f"{path}/rollback", to=10)
    service.get(f"{path}/diff", left_budget=1_000, right_budget=2_000, left_seq=30)
    assert service.state() == before
    rendered = service.post(f"{path}/render", {"budget": 1_500})
    assert rendered["folded"]["exchanges"] > 0
    assert rendered["tokens"] <= 1_500
    context.refresh()
    assert context.budget == service.get(path)["budget"] == 1_500  # for all handles


def test_the_last_sent_view_is_the_one_that_the_program_sent(service: Service, book: tuple[quire.Context, str]) -> None:
    context, path = book
    view = context.render()
    context.assistant("It is in Washington.")
    context.pages.hide("mem-3")
    sent = service.get(f"{path}/sent")
    assert (sent["tokens"], sent["exact"], sent["view"]["messages"]) == (view.tokens, True, view.openai())
    prefix = service.get(f"{path}/view", against="call")["prefix"]
    assert 0 < prefix["messages"] < len(view.openai())
    assert prefix["broke"]["at"] == prefix["messages"]


def test_a_comparison_and_a_preview_of_a_rollback_show_what_changed(
    service: Service, book: tuple[quire.Context, str]
) -> None:
    context, path = book
    then = context.seq
    context.conversation.delete([1])
    context.pages.remove_page("mem-3")
    answer = service.get(f"{path}/diff", left_seq=then)
    assert {one["op"] for one in answer["changes"]} > {"same"}
    lefts = [one["left"] for one in answer["changes"] if one["left"] is not None]
    rights = [one["right"] for one in answer["changes"] if one["right"] is not None]
    assert rights == service.get(f"{path}/view")["messages"]
    assert lefts[: answer["shared"]] == rights[: answer["shared"]]
    preview = service.get(f"{path}/rollback", to=then)
    assert preview["messages_after"] == preview["messages_before"] + 1
    assert {page["index"] for page in preview["pages"]} >= {"mem-3", "usr-1"}
    service.post(f"{path}/rollback", {"to": then})
    assert len(service.get(f"{path}/messages")["messages"]) == preview["messages_after"]
    assert service.get(f"{path}/pages/mem-3")["name"] == "note 1"


def test_hostile_texts_come_back_as_they_are_in_json(service: Service, book: tuple[quire.Context, str]) -> None:
    context, path = book
    for text in HOSTILE:
        context.pages.create_detail_page(text, text, text, "mem-0")
    for n, text in enumerate(HOSTILE):
        assert service.post(f"{path}/messages", {"role": "user", "content": text})["index"] == 10 + n
    for text in HOSTILE[::7]:
        hits = service.get(f"{path}/search", q=text)["hits"]
        assert all(isinstance(piece["text"], str) for hit in hits for piece in hit["snippet"])
        part = quote(text, safe="")
        for address in (f"/api/contexts/{part}", f"{path}/pages/{part}", f"{path}/view?format={part}", f"/{part}"):
            assert service.ask("GET", address).json()["error"]["code"]  # a header says that it is JSON
    pages = [page for page in service.get(f"{path}/pages", parent="mem-0")["pages"] if not page["folder"]]
    assert [(page["name"], page["description"]) for page in pages] == [(text, text) for text in HOSTILE]
    assert [message["content"] for message in service.get(f"{path}/messages", after=9)["messages"]] == list(HOSTILE)
    assert HOSTILE[0] in str(service.get(f"{path}/view", budget=100_000))


# Other writers, failures, the gateway


def test_writers_on_two_servers_all_get_through_or_are_told(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as one, serving(tmp_path / "store.db") as two:
        context, path = one.book("both")
        before, statuses = context.seq, list[int]()

        def write(service: Service, text: str) -> None:
            statuses.extend(
                service.ask("POST", f"{path}/messages", {**USER, "content": text}).status_code for _ in "12345"
            )

        threads = [
            threading.Thread(target=write, args=args) for args in ((one, "a"), (two, "b"), (one, "c"), (two, "d"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        context.refresh()
        assert set(statuses) <= {201, 409}
        assert 10 <= statuses.count(201) == context.seq - before
        assert one.get(path)["seq"] == two.get(path)["seq"] == context.seq
        assert one.ask("DELETE", path).status_code == 200
        refused(two.ask("GET", path), 404, "no_such_context")
        assert one.post("/api/contexts", {"name": "both"})["seq"] == two.get(path)["seq"]  # nothing old is shown


def test_a_failure_of_the_storage_is_told_and_the_server_continues() -> None:
    storage = FaultyStorage(quire.MemoryStorage())
    with serving(storage) as service:
        _, path = service.book("c")
        storage.arm(1, lasting=True)
        refused(service.ask("POST", f"{path}/messages", USER), 503, "injected_fault")
        assert service.get("/health")["status"] == "ok"
        storage.heal()
        assert service.post(f"{path}/messages", USER)["index"] == 10


def test_the_mode_of_a_session_of_the_gateway_is_chosen() -> None:
    storage, upstream = quire.MemoryStorage(), StubProvider()
    body = {"model": "claude-fable-5-1", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
    with serving(storage) as service, quire.gateway.start(storage, anthropic=upstream.url, port=0) as gateway:
        sent = service.client.post(f"{gateway.url}/v1/messages", json=body, headers={"x-quire-session": "mine"})
        assert sent.status_code == 200
    with serving(storage) as service:  # the end of the gateway stored its figures
        (session,) = service.get("/api/gateway/sessions")["sessions"]
        assert (session["requests"], session["mode"], session["chosen"]) == (1, "observe", None)
        service.post("/api/gateway/mode", {"name": session["name"], "mode": "fold"})
        assert service.get("/api/gateway/sessions")["sessions"][0]["chosen"] == "fold"
        wrong = {"name": session["name"], "mode": "folds"}
        assert "observe" in refused(service.ask("POST", "/api/gateway/mode", wrong), 400, "invalid_value")
    upstream.close()
