"""Security: who may use a gateway, what it reads, and what it never keeps."""

import logging
import socket
from math import nan
from pathlib import Path
from typing import Any

import pytest

import quire.gateway
from quire.errors import InvalidOperation, InvalidValue
from tests.gateway.conftest import Recorded, Start
from tests.gateway.raw_upstream import RawResponse, RawUpstream, send
from tests.gateway.scripted_client import Client
from tests.strict_provider import StrictProvider

TOKEN = "a-token-of-this-gateway"
SECRET = "sk-ant-api03-very-secret-credential"
NOWHERE = "http://127.0.0.1:9"


def test_other_machines_need_a_token() -> None:
    with pytest.raises(InvalidOperation):
        quire.gateway.create_app("memory:", openai=NOWHERE, host="0.0.0.0")
    quire.gateway.create_app("memory:", openai=NOWHERE, host="0.0.0.0", token=TOKEN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("openai", url)
            for url in ("ftp://a", "https://", "https://user:pw@a", "a b", "http://a?x=1", "http://a:70000")
        ),
        *(("max_body", value) for value in ("x", None, -1, 1.5, True)),
        *(("connect_timeout", value) for value in ("x", None, 0, -1, nan, True)),
        *(("hosts", value) for value in ("abc", [5], None, [""], 7)),
        ("redact", 5),
        ("summariser", 5),
        ("mode", None),
    ],
)
def test_a_wrong_setting_is_named(name: Any, value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        quire.gateway.create_app("memory:", **{"openai": NOWHERE, name: value})
    assert caught.value.argument == name
    assert "pw" not in str(caught.value)


def test_a_token_in_the_path_is_required_and_never_sent_on(start: Start, provider: StrictProvider) -> None:
    running = start(token=TOKEN)
    base = running.url.removesuffix(f"/k/{TOKEN}")
    for path in ("/v1/messages", "/k//v1/messages", "/k/wrong/v1/messages", f"/k/{TOKEN[:-1]}/v1/messages"):
        got = send(base, "POST", path, [("Authorization", f"Bearer {TOKEN}")], b"{}")
        assert got.status == 401
        assert TOKEN.encode() not in got.body
    Client(running.url, "anthropic").say("Hello")
    assert TOKEN not in str(provider.headers)


def test_a_session_never_crosses_tokens(start: Start, recorded: Recorded) -> None:
    tokens = ("token-number-one-1", "token-number-two-2")
    for token in tokens:
        Client(start(token=token).url, "anthropic", {"x-quire-session": "one"}).say("Hello")
    names = list(recorded())
    assert len(names) == len(tokens)
    assert not any(token in name for token in tokens for name in names)


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


def test_a_request_names_no_other_upstream(start: Start) -> None:
    running = start()
    both = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    for head in (
        b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + both,
    ):
        with socket.create_connection((running.host, running.port)) as connection:
            connection.sendall(head)
            assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_a_request_for_a_websocket_is_answered_with_426(start: Start, provider: StrictProvider) -> None:
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    assert send(start().url, "GET", "/v1/responses", headers).status == 426
    assert provider.requests == []


@pytest.mark.parametrize("mode", ["observe", "fold"])
def test_credentials_are_neither_stored_nor_logged(
    start: Start,
    provider: StrictProvider,
    recorded: Recorded,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = {"x-api-key": SECRET, "authorization": f"Bearer {SECRET}", "x-quire-session": "one"}
    client = Client(start(mode=mode).url, "anthropic", keys)
    client.say("Hello")
    client.items.append({"role": "narrator", "content": "x"})
    client.request()
    recorded()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert SECRET not in caplog.text
    assert SECRET in str(provider.headers)


def test_secrets_are_removed_from_the_record_and_not_from_the_request(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    running = start(redact=lambda text: text.replace("hunter2", "[removed]"))
    Client(running.url, "anthropic", {"x-quire-session": "one"}).say("My password is hunter2.")
    assert "hunter2" in str(provider.requests[-1])
    assert recorded() == {"local/anthropic/one": ["u:My password is [removed].", "a:ok"]}


def test_a_session_name_of_a_client_is_only_a_name(start: Start, recorded: Recorded) -> None:
    running = start()
    for name in ("../../etc/passwd", "a/b", "x" * 500, "anonymous", "gateway/local", "~2", "\xff\xfe"):
        Client(running.url, "anthropic", {"x-quire-session": name}).say("Hello")
    names = list(recorded())
    assert len(names) == 7
    assert all(name.startswith("local/anthropic/") and name.count("/") == 2 for name in names)
