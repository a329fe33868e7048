"""Streamable HTTP: several clients, accepted hosts, the token, and an end that does not wait for streams."""

import asyncio
import http.client
import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from mcp import Client
from starlette.types import Message, Receive, Scope, Send

import quire
from quire.mcp_server.http import McpMiddleware
from quire.server.access import AccessCheck
from tests.mcp_server.clients import read, run, served, text_of
from tests.mcp_server.conftest import NAME, URI, fill
from tests.server.test_connections import connect, many_files

__all__ = ["many_files"]

TOKEN = "the-token-of-the-tests-0123456789"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def post(url: str, body: bytes | Any = None, **headers: str) -> tuple[int, str]:
    """Send a request without the SDK; return the status and the body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    sent = body if isinstance(body, bytes) else json.dumps(PING if body is None else body).encode()
    connection.request("POST", parts.path, sent, {**usual, **headers})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_clients_of_both_protocols_write_at_once_and_lose_nothing(http: tuple[Path, str]) -> None:
    path, url = http
    written: list[str] = []

    async def write(mode: Any, times: int) -> None:
        async with Client(url, mode=mode) as client:
            for number in range(times):
                text = f"{mode} 词 {number}"
                answer = await client.call_tool("write_page", {"name": text, "text": text})
                assert not answer.is_error, text_of(answer)
                written.append(text)
                assert text in await read(client, f"{URI}{text_of(answer).removeprefix('Wrote ').removesuffix('.')}")

    async def elsewhere(times: int) -> None:
        with quire.open(path, NAME) as other:
            for number in range(times):
                text = f"elsewhere {number}"
                answer = other.tools.answer("write_page", {"name": text, "text": text})
                assert not answer.failed, answer.text
                written.append(text)
                await asyncio.sleep(0.001)

    async def main() -> None:
        await asyncio.gather(write("legacy", 15), write("auto", 15), elsewhere(40))

    run(main)
    with quire.open(path, NAME) as ctx:
        names = [page.name for page in ctx.pages.children("mem-0")]
        assert sorted(name for name in names if name in written) == sorted(written)
        assert ctx.check() == []


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 403, "forbidden_host"),
        ({"Host": "127.0.0.1.evil.example:80"}, 403, "forbidden_host"),
        ({"Host": "10.0.0.1"}, 403, "forbidden_host"),
        ({"Origin": "http://evil.example"}, 403, "forbidden_origin"),
        ({"Origin": "null"}, 403, "forbidden_origin"),
    ],
)
def test_a_page_elsewhere_cannot_reach_it(
    http: tuple[Path, str], headers: dict[str, str], status: int, code: str
) -> None:
    found, body = post(http[1], **headers)
    assert (found, json.loads(body)["error"]["data"]["code"]) == (status, code)
    assert "evil" not in body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find","arguments":{"query":"\\ud83d"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud83d","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"quire://x/\\ud83d"}}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("version", ["", "2026-07-28", "1999-01-01"])
def test_the_server_survives_any_input(http: tuple[Path, str], body: bytes, version: str) -> None:
    status, _ = post(http[1], body, **({"MCP-Protocol-Version": version, "Mcp-Method": "x"} if version else {}))
    assert status in (200, 400, 404, 406), status


def test_a_body_that_is_too_large_is_refused(http: tuple[Path, str]) -> None:
    assert post(http[1], b" " * ((16 << 20) + 1))[0] == 413


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_a_thousand_half_open_connections_keep_nobody_out(http: tuple[Path, str]) -> None:
    with ExitStack() as opened:
        for _ in range(1_000):
            opened.enter_context(connect(http[1], b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "))
        assert post(http[1])[0] == 200


def test_two_lengths_are_refused_and_the_connection_is_closed(http: tuple[Path, str]) -> None:
    lengths = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with connect(http[1], b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lengths) as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"ambiguous_length" in answer


def test_a_body_that_does_not_arrive_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Message] = []

    async def read_body(scope: Scope, receive: Receive, send: Send) -> None:
        while not seen or seen[-1].get("more_body"):
            seen.append(await receive())

    async def drip() -> Message:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    monkeypatch.setattr("quire.mcp_server.http._BODY_SECONDS", 0.2)
    scope = {"type": "http", "method": "POST", "headers": [(b"host", b"127.0.0.1")]}
    middleware = McpMiddleware(read_body, AccessCheck("127.0.0.1", (), None))

    async def ask() -> None:
        await asyncio.wait_for(middleware(scope, drip, drip), 30)  # type: ignore[arg-type]

    asyncio.run(ask())
    assert seen[-1] == {"type": "http.disconnect"}


def test_ctrl_c_ends_it_though_clients_listen(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    fill(quire.open(path, NAME)).close()
    with served(path, QUIRE_TOKEN=TOKEN) as (process, told):
        assert told.keys() == {"url"}  # the token is not new
        assert post(told["url"])[0] == 401
        assert post(told["url"], Authorization="Bearer wrong")[0] == 401

        async def main() -> None:
            with_token = httpx_client({"Authorization": f"Bearer {TOKEN}"})
            async with with_token as known:
                from mcp.client.streamable_http import streamable_http_client

                async with (
                    Client(streamable_http_client(told["url"], http_client=known)) as client,
                    client.listen(resource_subscriptions=[f"{URI}mem-1"]) as stream,
                ):
                    assert await read(client, f"{URI}mem-1")
                    process.send_signal(signal.SIGINT)
                    assert [event async for event in stream] == []  # the stream ended properly

        run(main)
        _, complaint = process.communicate(timeout=30)
        assert (process.returncode, complaint) == (0, "")


def httpx_client(headers: dict[str, str]) -> Any:
    """Return an HTTP client of the SDK with headers."""
    from mcp.shared._httpx_utils import create_mcp_http_client

    return create_mcp_http_client(headers=headers)


# The middleware by itself


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    message: Message = await receive()
    assert message["type"] == "http.request"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def status(access: AccessCheck, headers: dict[str, str]) -> int:
    async def main() -> int:
        transport = httpx.ASGITransport(app=McpMiddleware(hello, access))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.post("/mcp", headers=headers)).status_code

    return asyncio.run(main())


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::", "quire.example"])
def test_the_rules_hold_wherever_it_listens(bound: str) -> None:
    access = AccessCheck(bound, ["me.example"], TOKEN)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert status(access, bearer) == 200
    assert status(access, {**bearer, "Host": "ME.example:8378"}) == 200
    assert status(access, {**bearer, "Host": "evil.example"}) == 403
    assert status(access, {**bearer, "Host": "127.0.0.1", "Origin": "http://evil.example"}) == 403
    assert status(access, {**bearer, "Host": "10.0.0.1"}) == (403 if bound == "127.0.0.1" else 200)
    assert status(access, {}) == 401
    assert status(access, {"Authorization": f"Basic {TOKEN}"}) == 401
    assert status(AccessCheck(bound, ["me.example"], None), {}) == 200
