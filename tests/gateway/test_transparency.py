"""In `observe`, and in `fold` below the budget, the bytes to the upstream are those of the client, and back."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import brotli
import pytest
import zstandard

import quire
import quire.gateway
from tests.gateway.raw_upstream import HeaderList, RawRequest, RawResponse, RawUpstream, answer_with, send
from tests.strict_provider import Reply, StrictProvider

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "x-hop"}
HEADERS = [
    ("Content-Type", "application/json"),
    ("Authorization", "Bearer secret-1"),
    ("anthropic-version", "2023-06-01"),
    ("anthropic-beta", "one-2026,two-2026"),
    ("X-Codex-Window-Id", "w1"),
    ("X-Two", "a"),
    ("X-Two", "b"),
    ("Accept-Encoding", "gzip, br, zstd"),
    ("Connection", "keep-alive, x-hop"),
    ("X-Hop", "1"),
]
LIMITS = [("retry-after", "7"), ("anthropic-ratelimit-requests-remaining", "0"), ("request-id", "req_9")]
ASKED = [{"role": "user", "content": "Wie spät ist es? 几点了？"}]
TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
SYSTEM = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
BODIES: Mapping[str, dict[str, Any]] = {
    "/v1/messages?beta=true": {"max_tokens": 100, "system": SYSTEM, "tools": [TOOL], "messages": ASKED},
    "/v1/messages/count_tokens": {"messages": ASKED},
    "/v1/chat/completions": {"messages": ASKED},
    "/v1/responses": {"input": ASKED, "store": False},
}
MESSAGES = json.dumps({"model": "claude-opus-5", **BODIES["/v1/messages?beta=true"]}).encode()
ENCODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


class Case(NamedTuple):
    """An exchange: what the client sends, and what the upstream answers if it is not the strict provider."""

    path: str
    body: bytes | None = None
    answer: RawResponse | None = None
    method: str = "POST"
    encoding: str = ""


def _list_cases() -> Iterator[Any]:
    for path, fields in BODIES.items():
        for stream in ({}, {"stream": True})[: 1 if "count" in path else 2]:
            body = json.dumps({"model": "m", **fields, **stream}, indent=1, ensure_ascii=False).encode()
            yield pytest.param(Case(path, body), id=f"{path} {'stream' if stream else 'plain'}")
    for name, encode in ENCODINGS.items():
        reply = RawResponse(
            200, [("content-encoding", name)], [encode(b'{"type":"message","content":[]}')], length=True
        )
        yield pytest.param(Case("/v1/messages", encode(MESSAGES), reply, encoding=name), id=name)
    hello = RawResponse(200, [("X-Request-Id", "r")], [b"hello"], length=True)
    for method in ("GET", "HEAD", "PUT"):
        body_of_put = b"\x00\xff" if method == "PUT" else None
        yield pytest.param(Case("/api/hello%2Fyou?x=%20&y", body_of_put, hello, method), id=method)
    for status in (400, 429, 529):
        error = RawResponse(status, LIMITS, [b'{"error": ', b'"no"}'])
        yield pytest.param(Case("/v1/messages", MESSAGES, error), id=str(status))
    for number, body in enumerate(
        (b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 3}', b'{"messages": [' + b"[" * 99_999)
    ):
        yield pytest.param(Case("/v1/chat/completions", body, RawResponse(400, [], [b"what?"])), id=f"no JSON {number}")


@pytest.fixture(scope="module")
def upstream() -> Iterator[RawUpstream]:
    with RawUpstream(lambda _: RawResponse()) as raw:
        yield raw


@pytest.fixture(scope="module", params=["observe", "fold"])
def gateway(request: pytest.FixtureRequest, upstream: RawUpstream) -> Iterator[Any]:
    places: Any = {"anthropic": upstream.url, "openai": upstream.url, "port": 0}
    with quire.gateway.start("memory:", mode=request.param, **places) as running:
        yield running


@pytest.mark.parametrize("case", list(_list_cases()))
def test_bytes_and_headers_are_the_same_in_both_directions(gateway: Any, upstream: RawUpstream, case: Case) -> None:
    headers = [*HEADERS, *([("Content-Encoding", case.encoding)] if case.encoding else [])]
    got = []
    for url in (gateway.url, upstream.url):
        with StrictProvider(script=lambda _: Reply("Es ist acht. 八点。")) as provider:
            given = case.answer
            upstream.answer = answer_with(provider) if given is None else lambda _, given=given: given  # type: ignore[misc]
            got.append(send(url, case.method, case.path, headers, case.body))
    through, direct = got
    one, two = upstream.requests[-2:]
    assert one.body == two.body == (case.body or b"")
    assert (one.method, one.target) == (two.method, two.target) == (case.method, case.path)
    assert _kept(one.headers) == _kept(two.headers)
    assert (through.status, through.body) == (direct.status, direct.body)
    assert _kept(through.headers) == _kept(direct.headers)


def _kept(headers: HeaderList) -> HeaderList:
    """Return the headers that belong to the message and not to the connection."""
    return sorted((name.lower(), value) for name, value in headers if name.lower() not in HOP_BY_HOP)


@pytest.mark.parametrize(("spare", "count"), [(0, 1), (-1, 0), (-100_000, 0)])
def test_a_body_that_is_too_large_is_passed_on_and_not_recorded(upstream: RawUpstream, spare: int, count: int) -> None:
    upstream.answer = lambda _: RawResponse(200, [], [b"{}"])
    body = json.dumps({"tools": [TOOL], "messages": ASKED, "system": "x" * 300_000}).encode()
    store = quire.MemoryStorage()
    with quire.gateway.start(store, anthropic=upstream.url, port=0, max_body=len(body) + spare) as gateway:
        assert send(gateway.url, "POST", "/v1/messages", [], body).status == 200
    assert len(list(quire.Library(store).list(prefix="gateway/"))) == count
    assert upstream.requests[-1].body == body


def test_an_upstream_is_named_by_the_path_or_the_headers() -> None:
    seen: list[str] = []

    def note(name: str) -> Callable[[RawRequest], RawResponse]:
        return lambda request: (seen.append(f"{name} {request.target}"), RawResponse())[1]  # type: ignore[func-returns-value]

    with (
        RawUpstream(note("a")) as a,
        RawUpstream(note("o")) as o,
        quire.gateway.start("memory:", anthropic=a.url, openai=f"{o.url}/api/v1", port=0) as gateway,
    ):
        for path in ("/v1/models", "/anthropic/v1/models", "/openai/v1/models", "/v1/threads/t/messages"):
            send(gateway.url, "GET", path, [])
        send(gateway.url, "GET", "/v1/models", [("x-api-key", "k")])
    expected = ["o /api/v1/models", "a /v1/models", "o /api/v1/models", "o /api/v1/threads/t/messages"]
    assert seen == [*expected, "a /v1/models"]
