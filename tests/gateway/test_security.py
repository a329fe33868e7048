"""Security: who may use a gateway, what it reads, and what it never keeps."""

import gzip
import json
import logging
import re
import socket
from math import nan
from pathlib import Path
from typing import Any

import pytest

import quire.gateway
from quire.errors import InvalidOperation, InvalidValue
from tests.gateway.conftest import Start
from tests.gateway.raw_upstream import RawResponse, RawUpstream, send
from tests.gateway.scripted_client import Client
from tests.strict_provider import StrictProvider

TOKEN = "a-token-of-this-gateway"
SECRET = "sk-ant-api03-very-secret-credential"


def test_other_machines_need_a_token() -> None:
    with pytest.raises(InvalidOperation, match="give a token"):
        quire.gateway.create_app("memory:", openai="http://127.0.0.1:9", host="0.0.0.0")
    quire.gateway.create_app("memory:", openai="http://127.0.0.1:9", host="0.0.0.0", token=TOKEN)


@pytest.mark.parametrize("url", ["ftp://a", "https://", "https://user:pw@a", "a b", "http://a?x=1", "http://a:70000"])
def test_an_upstream_is_a_plain_url(url: str) -> None:
    with pytest.raises(InvalidValue, match="openai") as caught:
        quire.gateway.create_app("memory:", openai=url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        *(("max_body", value, "a whole number from 0") for value in ("x", None, -1, 1.5, True)),
        *(("connect_timeout", value, "a number of seconds above 0") for value in ("x", None, 0, -1, nan, True)),
        *(("hosts", value, "a list of names") for value in ("abc", [5], None, [""], 7)),
        ("redact", 5, "a function of one text"),
        ("summariser", 5, "a function of a text and a number"),
        ("mode", None, "one of observe, fold"),
    ],
)
def test_the_error_for_a_setting_says_what_is_accepted(name: Any, value: Any, needed: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{name}=? is {re.escape(repr(value))}; {needed}"):
        quire.gateway.create_app("memory:", openai="http://127.0.0.1:9", **{name: value})


def test_a_token_in_the_path_is_required_and_never_sent_on(start: Start, provider: StrictProvider) -> None:
    running = start(token=TOKEN)
    base = running.url.removesuffix(f"/k/{TOKEN}")
    for path in ("/v1/messages", "/k//v1/messages", "/k/wrong/v1/messages", f"/k/{TOKEN[:-1]}/v1/messages"):
        got = send(base, "POST", path, [("Authorization", f"Bearer {TOKEN}")], b"{}")
        assert got.status == 401
        assert TOKEN.encode() not in got.body
    client = Client(running.url, "anthropic")
    client.say("Hello")
    assert TOKEN not in str(provider.headers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "evil.example")], 403),
        ([("Host", "127.0.0.1"), ("Origin", "https://evil.example")], 403),
        ([("Host", "127.0.0.1"), ("Origin", "null")], 403),
        ([("Host", "localhost")], 200),
    ],
)
def test_host_and_origin_are_checked(start: Start, headers: list[tuple[str, str]], status: int) -> None:
    with RawUpstream(lambda _: RawResponse(200, [], [b"ok"])) as upstream:
        running = start(openai=upstream.url)
        assert send(running.url, "POST", "/v1/chat/completions", headers, b"{}").status == status
        assert len(upstream.requests) == (status == 200)


def test_a_request_names_no_other_upstream(start: Start, provider: StrictProvider) -> None:
    running = start()
    with socket.create_connection((running.host, running.port)) as connection:
        connection.sendall(b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    with socket.create_connection((running.host, running.port)) as connection:
        both = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        connection.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + both)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_credentials_are_neither_stored_nor_logged(
    start: Start, provider: StrictProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for mode in ("observe", "fold"):
        running = start(mode=mode)
        keys = {"x-api-key": SECRET, "authorization": f"Bearer {SECRET}", "x-quire-session": mode}
        client = Client(running.url, "anthropic", keys)
        client.say("Hello")
        client.items.append({"role": "narrator", "content": "x"})
        client.request()
        running.gateway.sessions.drain()
        running.stop()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert SECRET not in caplog.text
    assert SECRET in str(provider.headers)


def test_a_session_name_of_a_client_is_only_a_name(start: Start, provider: StrictProvider) -> None:
    running = start()
    for name in ("../../etc/passwd", "a/b", "x" * 500, "anonymous", "gateway/local", "~2", "\xff\xfe"):
        client = Client(running.url, "anthropic", {"x-quire-session": name})
        client.say("Hello")
    running.gateway.sessions.drain()
    names = [info.name for info in running.gateway.list_sessions()]
    assert len(names) == 7
    assert all(name.startswith("gateway/local/anthropic/") and name.count("/") == 3 for name in names)


def test_a_small_body_that_decodes_to_a_large_one_is_passed_and_not_read(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.gateway.sessions._MAX_DECODED", 1 << 20)
    body = gzip.compress(json.dumps({"messages": [{"role": "user", "content": " " * (8 << 20)}]}).encode())
    with RawUpstream(lambda _: RawResponse(200, [], [b"{}"])) as upstream:
        running = start(openai=upstream.url, mode="fold")
        got = send(running.url, "POST", "/v1/chat/completions", [("Content-Encoding", "gzip")], body)
        assert (got.status, upstream.requests[0].body) == (200, body)
    running.gateway.sessions.drain()
    assert running.gateway.list_sessions() == []
