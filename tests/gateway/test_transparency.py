"""In `observe`, and in `fold` below the budget, the bytes to the upstream are those of the client, and back."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import pytest
import zstandard

import quire.gateway
from tests.gateway.raw_upstream import HeaderList, RawRequest, RawResponse, RawUpstream, answer_with, send
from tests.strict_provider import Reply, StrictProvider

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}
TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages?beta=true": {
        "model": "claude-opus-5",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [TOOL],
        "messages": [{"role": "user", "content": "Wie spät ist es? 几点了？"}],
    },
    "/v1/messages/count_tokens": {"model": "claude-opus-5", "messages": [{"role": "user", "content": "Hello"}]},
    "/v1/chat/completions": {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}]},
    "/v1/responses": {"model": "gpt-5", "input": [{"role": "user", "content": "Hello"}], "store": False},
}
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    with StrictProvider(script=lambda _: Reply("Es ist acht. 八点。")) as strict:
        yield strict


@pytest.fixture(scope="module")
def server() -> Iterator[RawUpstream]:
    with RawUpstream(lambda _: RawResponse()) as raw:
        yield raw


@pytest.fixture
def upstream(server: RawUpstream, provider: StrictProvider) -> RawUpstream:
    """The upstream of all tests here, without the requests of earlier ones."""
    server.requests.clear()
    server.answer = answer_with(provider)
    return server


@pytest.fixture(scope="module", params=["observe", "fold"])
def gateway(request: pytest.FixtureRequest, server: RawUpstream) -> Iterator[Any]:
    with quire.gateway.start("memory:", anthropic=server.url, openai=server.url, mode=request.param, port=0) as running:
        yield running


def kept(headers: HeaderList) -> HeaderList:
    """Return the headers that belong to the message and not to the connection."""
    return sorted((name.lower(), value) for name, value in headers if name.lower() not in HOP_BY_HOP)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_bytes_and_headers_are_the_same_in_both_directions(
    gateway: Any, upstream: RawUpstream, path: str, stream: bool
) -> None:
    value = {**BODIES[path], **({"stream": True} if stream and "count" not in path else {})}
    body = json.dumps(value, indent=1, ensure_ascii=False).encode()
    headers = [
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
    through, direct = send(gateway.url, "POST", path, headers, body), send(upstream.url, "POST", path, headers, body)
    one, two = upstream.requests
    assert one.body == two.body == body
    assert (one.method, one.target) == (two.method, two.target)
    assert kept(one.headers) == [pair for pair in kept(two.headers) if pair[0] != "x-hop"]
    assert through.status == direct.status == 200
    assert _plain(through.body) == _plain(direct.body)
    assert kept(through.headers) == kept(direct.headers)


def _plain(body: bytes) -> bytes:
    """Return a response without the number of the request, which the strict provider counts."""
    return body.replace(b"0001", b"0000").replace(b"0002", b"0000")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoded_bodies_pass_unchanged(
    gateway: Any, upstream: RawUpstream, provider: StrictProvider, encoding: str
) -> None:
    plain = json.dumps(BODIES["/v1/messages?beta=true"]).encode()
    body = ENCODINGS[encoding](plain)
    reply = ENCODINGS[encoding](b'{"type":"message","content":[]}')
    upstream.answer = lambda _: RawResponse(200, [("content-encoding", encoding or "identity")], [reply], length=True)
    got = send(gateway.url, "POST", "/v1/messages", [("Content-Encoding", encoding or "identity")], body)
    assert upstream.requests[0].body == body
    assert got.body == reply


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_unknown_paths_pass_unchanged(gateway: Any, upstream: RawUpstream, method: str) -> None:
    upstream.answer = lambda _: RawResponse(200, [("X-Request-Id", "r")], [b"hello"], length=True)
    body = b"\x00\xff" if method == "PUT" else None
    got = send(gateway.url, method, "/api/hello%2Fyou?x=%20&y", [], body)
    assert upstream.requests[0][:2] == (method, "/api/hello%2Fyou?x=%20&y")
    assert upstream.requests[0].body == (body or b"")
    assert (got.status, got.body) == (200, b"" if method == "HEAD" else b"hello")
    assert ("x-request-id", "r") in kept(got.headers)


@pytest.mark.parametrize("status", [400, 429, 529])
def test_errors_pass_verbatim(gateway: Any, upstream: RawUpstream, status: int) -> None:
    headers = [("retry-after", "7"), ("anthropic-ratelimit-requests-remaining", "0"), ("request-id", "req_9")]
    upstream.answer = lambda _: RawResponse(status, headers, [b'{"error": ', b'"no"}'])
    got = send(gateway.url, "POST", "/v1/messages", [], json.dumps(BODIES["/v1/messages?beta=true"]).encode())
    assert (got.status, got.body) == (status, b'{"error": "no"}')
    assert kept(got.headers) == sorted(headers)
    assert len(upstream.requests) == 1


def test_a_body_that_is_no_json_passes_unchanged(gateway: Any, upstream: RawUpstream) -> None:
    upstream.answer = lambda _: RawResponse(400, [], [b"what?"])
    for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 3}', b'{"messages": [' + b"[" * 100_000):
        got = send(gateway.url, "POST", "/v1/chat/completions", [], body)
        assert (got.status, got.body) == (400, b"what?")
        assert upstream.requests[-1].body == body


@pytest.mark.parametrize(("spare", "count"), [(0, 1), (-1, 0), (-60, 0)])
def test_a_body_that_is_too_large_is_passed_on_and_not_recorded(upstream: RawUpstream, spare: int, count: int) -> None:
    upstream.answer = lambda _: RawResponse(200, [], [b"{}"])
    body = json.dumps({**BODIES["/v1/messages?beta=true"], "system": "x" * 300_000}).encode()
    limit = len(body) + spare
    with quire.gateway.start("memory:", anthropic=upstream.url, port=0, max_body=limit) as gateway:
        assert send(gateway.url, "POST", "/v1/messages", [], body).status == 200
        gateway.gateway.sessions.drain()
        assert len(json.loads(send(gateway.url, "GET", "/quire/sessions", []).body)) == count
    assert upstream.requests[-1].body == body


def test_upstream_is_named_by_the_path() -> None:
    seen: list[str] = []

    def answer(name: str) -> Callable[[RawRequest], RawResponse]:
        def note(request: RawRequest) -> RawResponse:
            seen.append(f"{name} {request.target}")
            return RawResponse()

        return note

    with (
        RawUpstream(answer("a")) as a,
        RawUpstream(answer("o")) as o,
        quire.gateway.start("memory:", anthropic=a.url, openai=f"{o.url}/api/v1", port=0) as gateway,
    ):
        for path in ("/v1/models", "/anthropic/v1/models", "/openai/v1/models", "/v1/threads/t/messages"):
            send(gateway.url, "GET", path, [])
        send(gateway.url, "GET", "/v1/models", [("x-api-key", "k")])
    assert seen == [
        "o /api/v1/models",
        "a /v1/models",
        "o /api/v1/models",
        "o /api/v1/threads/t/messages",
        "a /v1/models",
    ]
