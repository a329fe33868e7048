"""The middleware: the token, accepted hosts and origins, limits on bodies, and no secret in any log."""

import asyncio
import http.client
import logging
import socket
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import quire.server
from quire import metrics
from quire.server.app import FAMILIES, AccessMiddleware
from quire.server.http_server import RunningServer
from tests.server.conftest import TOKEN, Api, Talk, check_headers

RIGHT, WRONG = "right", "wrong"
TOKENS = {
    f"Bearer {TOKEN}": RIGHT,
    f"bearer {TOKEN}": RIGHT,
    "": WRONG,
    "Bearer ": WRONG,
    "Bearer wrong": WRONG,
    f"Bearer {TOKEN[:-1]}": WRONG,
    f"Bearer {TOKEN}x": WRONG,
    f"Bearer {TOKEN.upper()}": WRONG,
    f"Basic {TOKEN}": WRONG,
    TOKEN: WRONG,
    "Bearer \xe4\xf6": WRONG,
}
HOSTS = {
    "127.0.0.1:{port}": RIGHT,
    "localhost:{port}": RIGHT,
    "LOCALHOST": RIGHT,
    "[::1]:{port}": RIGHT,
    "evil.example": WRONG,
    "evil.example:{port}": WRONG,
    "127.0.0.1.evil.example": WRONG,
    "localhost.evil.example:{port}": WRONG,
    "127.0.0.1@evil.example": WRONG,
    "10.0.0.1": WRONG,
    "": WRONG,
    "[::1": WRONG,
    "localhost:x": WRONG,
}
ORIGINS = {
    None: RIGHT,
    "http://{host}": RIGHT,
    "https://{host}": RIGHT,
    "http://evil.example": WRONG,
    "http://{host}.evil.example": WRONG,
    "http://localhost:1": WRONG,
    "null": WRONG,
    "": WRONG,
    "file://": WRONG,
}


def status(running: RunningServer, path: str, headers: list[tuple[str, str]], method: str = "GET") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value.encode("latin-1"))
    connection.endheaders()
    found = connection.getresponse().status
    connection.close()
    return found


Headers = list[tuple[str, str]]


def matrix(port: int) -> Iterator[tuple[Headers, tuple[str, str, str]]]:
    """Yield the headers of every combination, and whether its token, host and origin are right."""
    for (token, good_token), (host, good_host), (origin, good_origin) in product(
        TOKENS.items(), HOSTS.items(), ORIGINS.items()
    ):
        name = host.format(port=port)
        headers = [("Host", name)]
        headers += [("Authorization", token)] if token else []
        headers += [("Origin", origin.format(host=name))] if origin is not None else []
        yield headers, (good_token, good_host, good_origin)


def expected(good: tuple[str, str, str]) -> int:
    return 200 if good == (RIGHT, RIGHT, RIGHT) else 401 if good == (WRONG, RIGHT, RIGHT) else 403


async def send_through(middleware: AccessMiddleware, headers: Headers) -> int:
    """Return the status of a request that goes through the middleware."""
    sent: list[Any] = []
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "GET", "path": "/api/contexts", "headers": encoded}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await middleware(scope, receive, send)
    found: int = sent[0]["status"]
    return found


def test_only_the_right_token_host_and_origin_enter() -> None:
    async def inside(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    middleware = AccessMiddleware(
        inside, token=TOKEN, bound="127.0.0.1", hosts=(), metrics=metrics.Registry(FAMILIES), max_body=9, patience=1
    )

    async def all_of_them() -> int:
        entered = 0
        for headers, good in matrix(8377):
            found = await send_through(middleware, headers)
            assert found == expected(good), headers
            entered += found == 200
        return entered

    assert asyncio.run(all_of_them()) == 2 * 4 * 3


def test_over_a_socket_one_wrong_thing_is_enough_to_stay_out(running: RunningServer) -> None:
    for headers, good in matrix(running.port):
        if good.count(WRONG) < 2 and headers[0][1] in (f"localhost:{running.port}", "evil.example", "10.0.0.1", "[::1"):
            found = status(running, "/api/contexts?limit=1", headers)
            assert found == expected(good) or (found == 400 and good[1] == WRONG), headers  # not a valid Host header


@pytest.mark.parametrize("path", ["/health", "/", "/static/app.js"])
def test_public_paths_need_no_token_but_the_right_host(path: str, running: RunningServer) -> None:
    assert status(running, path, [("Host", "localhost")]) in (200, 404)
    assert status(running, path, [("Host", "evil.example")]) == 403
    assert status(running, path, [("Host", "localhost"), ("Origin", "http://evil.example")]) == 403


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/api/contexts", "/api/events", "/api/nothing", "/x"])
def test_everything_else_needs_the_token(path: str, running: RunningServer) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE"):
        assert status(running, path, [("Host", "localhost")], method) == 401
    assert status(running, "/health", [("Host", "localhost")], "POST") == 401


def test_two_hosts_or_two_tokens_are_none(running: RunningServer) -> None:
    token = ("Authorization", f"Bearer {TOKEN}")
    assert status(running, "/api/contexts", [("Host", "localhost"), token, token]) == 401
    assert status(running, "/api/contexts", [("Host", "localhost"), ("Host", "localhost"), token]) in (400, 403)
    twice = [("Host", "localhost"), ("Origin", "http://localhost"), ("Origin", "http://localhost"), token]
    assert status(running, "/api/contexts", twice) == 403


def test_a_server_on_all_addresses_takes_addresses_and_the_names_it_was_given() -> None:
    with quire.server.start("memory:", host="0.0.0.0", port=0, token=TOKEN, hosts=["books.example"]) as running:
        assert running.address == f"http://127.0.0.1:{running.port}/"
        for host, wanted in (("books.example", 200), ("10.1.2.3:80", 200), ("[fe80::1]", 200), ("evil.example", 403)):
            assert status(running, "/health", [("Host", host)]) == wanted


def test_a_refusal_names_the_reason(running: RunningServer) -> None:
    def words(**headers: str) -> str:
        answer = httpx.get(f"{running.address}api/contexts", headers=headers)
        return str(answer.json()["error"]["message"])

    missing = "Send the token: 'Authorization: Bearer TOKEN'."
    assert words() == missing
    assert words(Authorization=f"Basic {TOKEN}") == missing
    assert words(Authorization="Bearer") == missing
    assert words(Authorization="Bearer another-token-than-this") == "This is not the token of this server."
    assert "--allow-host" in words(Host="books.example")


def test_refusals_have_the_headers_too_and_tell_nothing(running: RunningServer) -> None:
    stranger = Api(running.address, "not-the-token-of-the-tests")
    for path in ("/api/contexts", "/api/contexts/%E4%B8%AD", "/metrics", "/nothing"):
        response = stranger.client.get(path)
        check_headers(response)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["error"]["code"] == "unauthorized"
        assert "access-control-allow-origin" not in response.headers
    stranger.client.close()


# Bodies


def test_a_body_that_is_too_large_is_refused_before_it_is_read(running: RunningServer, api: Api) -> None:
    said = api.refused("POST", "/api/contexts", 413, "too_large", content=b"x" * 200_001)
    assert "200,000" in said
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.request(
        "POST",
        "/api/contexts",
        iter([b"x" * 65_536] * 4),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413  # without Content-Length the bytes are counted
    connection.close()


def test_a_body_that_does_not_come_is_not_waited_for(running: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as one:
        one.sendall(
            f"POST /api/contexts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{".encode()
        )
        assert b"408 Request Timeout" in one.recv(4_096)


def test_invalid_http_is_answered_and_the_server_continues(running: RunningServer, api: Api) -> None:
    for raw in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"A" * 100_000):
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as one:
            one.sendall(raw + b"\r\n\r\n")
            one.shutdown(socket.SHUT_WR)
            one.recv(4_096)
    assert api.get("/health")["status"] == "ok"


# Logs


def test_the_token_is_in_no_log(running: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("uvicorn.access").propagate = True  # as a program may configure it
    for token in (TOKEN, f"{TOKEN}x"):
        api = Api(running.address, token)
        for path in ("/api/contexts", f"/api/contexts?token={TOKEN}", f"/api/contexts/{TOKEN}"):
            api.client.get(path)
        api.client.close()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("http", "h11"))]
    assert "GET /api/contexts 200" in "\n".join(ours)
    assert not [line for line in ours if TOKEN in line]


def test_requests_are_counted(api: Api) -> None:
    def figure(name: str) -> float:
        text = api.ask("GET", "/metrics", 200).text
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)), 0)

    route = 'quire_http_requests_total{method="GET",route="/api/contexts/{c}",status="404"}'
    before = figure(route)
    seconds = figure('quire_http_request_seconds_count{route="/api/contexts/{c}"}')
    for name in ("not-there", "nor-there", '"} 1\n'):
        api.ask("GET", f"/api/contexts/{quote(name)}", None)
    assert figure(route) == before + 2
    assert figure('quire_http_request_seconds_count{route="/api/contexts/{c}"}') == seconds + 3
    assert figure("quire_requests_running") == 1
    refused = figure('quire_http_refused_total{why="unauthorized"}')
    api.client.get("/metrics", headers={"Authorization": "Bearer no"})
    assert figure('quire_http_refused_total{why="unauthorized"}') == refused + 1


def test_the_metrics_of_the_process_are_added_when_they_are_counted(api: Api, talk: Talk) -> None:
    before = api.ask("GET", "/metrics", 200)
    assert "quire_render_seconds" not in before.text
    assert before.headers["content-type"] == metrics.CONTENT_TYPE
    metrics.start()
    try:
        api.get(f"{talk.path}/view")
        text = api.ask("GET", "/metrics", 200).text
    finally:
        metrics.stop()
    assert "\nquire_render_seconds_count 1\n" in text
    assert '\nquire_http_requests_total{method="GET",route="/metrics",status="200"} ' in text
    assert "\nquire_requests_running 1\n" in text
