"""Hostile content in every field is returned unchanged, as JSON that no browser interprets as something else."""

import json
from typing import Any

import pytest

import quire
from tests.server.conftest import Api, Talk, talk_in
from tests.server.payloads import PAYLOADS


def test_there_are_150_different_ones() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) == 150
    assert all(len(payload) <= 200 and "\n" not in payload for payload in PAYLOADS)


@pytest.fixture(scope="module")
def hostile(library: quire.Library) -> Talk:
    """A context with hostile content in names, summaries, texts, messages, calls and windows."""
    from quire.windows.apps import Todo

    talk = talk_in(library, "<b onclick=window.__hit=1>", turns=0)
    context = talk.context
    context.windows.register(Todo)
    context.windows.open("todo", window_id="list")
    for n, payload in enumerate(PAYLOADS):
        context.pages.create_detail_page(payload, payload, payload, "mem-0", meta={"x": payload})
        if n % 10 == 0:
            context.user(payload)
            call = {"id": f"c{n}", "function": {"name": "look", "arguments": json.dumps({"x": payload})}}
            context.assistant(payload, [call])
            context.tool_result(f"c{n}", payload)
            context.windows.act("list", "add", text=payload)
            context.checkpoint(f"{n} {payload}"[:200].replace("\u2028", ""))
    return talk


def test_responses_are_json_with_the_original_content(hostile: Talk, api: Api) -> None:
    def listed(path: str, **query: Any) -> str:
        return json.dumps(api.get(f"{hostile.path}{path}", **query), ensure_ascii=False)

    kept = [payload.replace("\u2028", " ") for payload in PAYLOADS]  # names are one line
    answer = api.get(f"{hostile.path}/pages", parent="mem-0", limit=1_000)["pages"]
    assert {page["name"] for page in answer if not page["folder"]} == set(kept)
    assert {page["description"] for page in answer if not page["folder"]} == set(kept)
    texts = {api.get(f"{hostile.path}/pages/{page['index']}")["detail"] for page in answer[1:]}
    assert texts == set(PAYLOADS)
    said = {message["content"] for message in api.get(f"{hostile.path}/messages", limit=1_000)["messages"]}
    assert said >= set(PAYLOADS[::10])
    for path, query in (
        ("/view", {"budget": 100_000}),
        ("/view", {"budget": 100_000, "format": "anthropic"}),
        ("/history", {"limit": 1_000}),
        ("/windows", {}),
        ("/diff", {"left_seq": 40, "left_budget": 100_000, "right_budget": 100_000}),
        ("/rollback", {"to": 100}),
        ("", {}),
    ):
        assert "window.__hit" in listed(path, **query), path
    assert "window.__hit" in json.dumps(api.get("/api/contexts", prefix="<b"))


def test_every_payload_can_be_looked_for(hostile: Talk, api: Api) -> None:
    for payload in PAYLOADS[::10]:
        hits = api.get(f"{hostile.path}/search", q=payload)["hits"]
        for hit in hits:
            assert all(isinstance(piece["text"], str) for piece in hit["snippet"])


@pytest.mark.parametrize("payload", PAYLOADS[::15])
def test_a_payload_in_the_address_is_refused_in_json(payload: str, hostile: Talk, api: Api) -> None:
    from urllib.parse import quote

    hostile_part = quote(payload, safe="")
    for path in (
        f"/api/contexts/{hostile_part}",
        f"{hostile.path}/pages/{hostile_part}",
        f"{hostile.path}/why/{hostile_part}",
        f"{hostile.path}/view?format={hostile_part}",
        f"{hostile.path}/rollback?to={hostile_part}",
        f"{hostile.path}/{hostile_part}",
        f"/api/{hostile_part}",
        f"/static/{hostile_part}",
        f"/{hostile_part}",
    ):
        response = api.ask("GET", path)
        assert response.status_code in (400, 404)
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"]


@pytest.mark.parametrize(
    "path", ["/static/..%2frunning.py", "/static/../running.py", "/static/%2e%2e/running.py", "/static//etc/passwd"]
)
def test_nothing_outside_the_page_is_served(path: str, api: Api) -> None:
    import http.client

    connection = http.client.HTTPConnection(api.client.base_url.host, api.client.base_url.port or 0, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status in (401, 404)
    assert b"import" not in response.read()
    connection.close()
