"""Who may use the HTTP server and how much: token, Host, Origin, limits, live changes, start and end."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

import quire
import quire.server
from quire import App, InvalidOperation, InvalidValue, StorageFailure, action
from tests.surfaces.http_service import TOKEN, Service, check_headers, refused, serving
from tests.surfaces.http_table import USER

RIGHT = ("Authorization", f"Bearer {TOKEN}")
HOST = ("Host", "localhost")
LISTED = "/api/contexts"
HEAD = (
    f"POST {LISTED} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
)
SECOND = "0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""The end of a body in chunks, and a request that a server must not see behind two lengths."""
START = ": listening"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(max_body=200_000, heartbeat=0.1, patience=0.3, header_timeout=0.3) as found:
        yield found


def answer(
    service: Service, headers: list[tuple[str, str]], path: str = LISTED, method: str = "GET"
) -> tuple[int, str]:
    """Send exactly these headers; return the status and the code of the refusal."""
    connection = HTTPConnection("127.0.0.1", service.client.base_url.port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value.encode("latin-1"))
    connection.endheaders()
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)["error"]["code"] if response.status >= 400 and text[:1] == b"{" else ""


# Token, Host, Origin


@pytest.mark.parametrize("token", [RIGHT[1], f"bearer {TOKEN}"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1:1", "[::1]:80"])
def test_the_right_token_host_and_origin_enter(token: str, host: str, service: Service) -> None:
    headers = [("Host", host), ("Authorization", token)]
    for origin in ([], [("Origin", f"http://{host}")], [("Origin", f"https://{host}")]):
        assert answer(service, headers + origin) == (200, "")


TOKENS = ("", "Bearer ", "Bearer wrong", RIGHT[1][:-1], f"{RIGHT[1]}x", RIGHT[1].upper(), f"Basic {TOKEN}", TOKEN)
HOSTS = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:1", "10.0.0.1", "a@b", "")
ORIGINS = ("http://evil.example", "http://localhost.evil.example", "http://localhost:1", "null", "", "file://")


def test_one_wrong_header_is_enough_to_stay_out(service: Service) -> None:
    for token in TOKENS:
        assert answer(service, [HOST, ("Authorization", token)]) == (401, "unauthorized")
    for path in (LISTED, "/health", "/"):
        for host in HOSTS:
            assert answer(service, [("Host", host), RIGHT], path)[0] in (400, 403)
        for origin in ORIGINS:
            assert answer(service, [HOST, RIGHT, ("Origin", origin)], path) == (403, "forbidden_origin")
    assert answer(service, [HOST, RIGHT, RIGHT])[0] == 401
    assert answer(service, [HOST, HOST, RIGHT])[0] in (400, 403)


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", LISTED, "/api/events", "/api/nothing", "/x"])
def test_everything_but_health_and_the_inspector_needs_the_token(path: str, service: Service) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE"):
        assert answer(service, [HOST], path, method)[0] == 401
    for public in ("/health", "/", "/static/app.js"):
        assert answer(service, [HOST], public)[0] == 200
    response = httpx.get(service.client.base_url.join(path))
    check_headers(response)
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/static/..%2fapp.py", "/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"]
)
def test_nothing_outside_the_inspector_is_served(path: str, service: Service) -> None:
    assert answer(service, [HOST], path)[0] in (401, 404)


def test_a_server_on_all_addresses_accepts_addresses_and_the_names_it_was_given() -> None:
    with serving(host="0.0.0.0", hosts=["books.example"]) as service:
        for host, status in (("books.example", 200), ("10.1.2.3:80", 200), ("[fe80::1]", 200), ("evil.example", 403)):
            assert answer(service, [("Host", host)], "/health")[0] == status


# Limits


def raw(service: Service, sent: bytes) -> bytes:
    """Send bytes; return what comes until the server closes the connection or says no more."""
    with socket.create_connection(("127.0.0.1", service.client.base_url.port or 0), timeout=30) as connection:
        connection.sendall(sent)
        received = connection.recv(65_536)
        connection.settimeout(0.3)
        with suppress(TimeoutError, ConnectionError):
            while received and (more := connection.recv(65_536)):
                received += more
        return received


def test_a_body_that_is_too_large_is_refused(service: Service) -> None:
    refused(service.ask("POST", LISTED, content=b"x" * 200_001), 413, "too_large")
    chunked = iter([b"x" * 65_536] * 4)  # without a length the bytes are counted
    assert service.client.post(LISTED, content=chunked, headers={"Content-Type": "application/json"}).status_code == 413


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (f"{HEAD}Content-Length: 10\r\n\r\n{{".encode(), b"408"),  # the body does not come
        (f"{HEAD}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{SECOND}".encode(), b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"A" * 100_000, b"400"),
    ],
)
def test_invalid_http_gets_one_answer(sent: bytes, status: bytes, service: Service) -> None:
    received = raw(service, sent)
    assert received.startswith(b"HTTP/1.1 " + status)
    assert received.count(b"HTTP/1.1 ") == 1
    assert service.get("/health")["status"] == "ok"


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_headers_that_do_not_come_are_not_waited_for(sent: bytes, service: Service) -> None:
    assert b" 200 " not in raw(service, sent)


class Slow(App):
    """An app whose action waits until a test lets it go on."""

    name = "slow"
    go_on = threading.Event()

    def content(self) -> str:
        return ""

    @action("Wait")
    def wait(self) -> str:
        self.go_on.wait(20)
        return "done"


def test_a_call_that_takes_too_long_is_given_up_and_the_server_continues() -> None:
    Slow.go_on.clear()
    with serving(apps=(Slow,), timeout=0.3) as service:
        context = service.library.open("c")
        context.windows.register(Slow)
        context.windows.open("slow", window_id="w")
        refused(service.ask("POST", "/api/contexts/c/windows/w/wait", {}), 503, "timeout")
        assert service.get("/health")["status"] == "ok"
        Slow.go_on.set()


# Live changes


class Stream:
    """The lines of a stream of changes."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        assert next(self._lines) == START

    def change(self) -> dict[str, Any]:
        """Return the next change."""
        data = next(line for line in self._lines if line.startswith("data: "))
        found: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return found

    def comment(self) -> str:
        """Return the next comment."""
        return next(line for line in self._lines if line.startswith(":"))

    def ended(self) -> bool:
        """Wait for the end; return whether no change came before it."""
        return not any(line.startswith("data: ") for line in self._lines)


@contextmanager
def listening(service: Service, path: str, **more: Any) -> Iterator[Stream]:
    with service.client.stream("GET", path, **more) as response:
        assert response.status_code == 200
        check_headers(response)
        stream = Stream(response)  # without this name the response would close before its test ends
        yield stream


def test_every_listener_hears_a_change_of_any_writer(service: Service) -> None:
    context, path = service.book("heard")
    with listening(service, f"{path}/events") as one, listening(service, "/api/events") as all_of_them:
        context.user("from another handle")
        change = {"context": "heard", "seq": context.seq, "operation": "user", "actor": "developer"}
        assert one.change() == all_of_them.change() == change
        assert service.post(LISTED, {"name": "beside"})["seq"] == all_of_them.change()["seq"] == 1
        service.post(f"{path}/pages/mem-3/hide")
        assert one.change()["operation"] == all_of_them.change()["operation"] == "hide"
        service.library.delete("heard")
        assert one.change() == {"context": "heard", "seq": 0, "operation": "delete", "actor": ""}
        service.library.create("heard")
        assert one.change()["operation"] == "create"


def test_a_listener_that_comes_back_receives_what_it_missed(service: Service) -> None:
    context, path = service.book("resumed")
    missed = [context.seq - 1, context.seq]
    old, new = {"Last-Event-ID": "1"}, {"Last-Event-ID": str(context.seq - 2)}
    for more in (
        {"params": {"after": context.seq - 2}},
        {"headers": new},
        {"params": {"after": missed[0] - 1}, "headers": old},
    ):
        with listening(service, f"{path}/events", **more) as stream:
            assert [stream.change()["seq"] for _ in missed] == missed
    with listening(service, f"{path}/events", params={"after": context.seq + 1_000}) as stream:
        assert stream.comment() == ": still here"
        context.user("now")
        assert stream.change()["seq"] == context.seq
    refused(service.ask("GET", f"{path}/events", headers={"Last-Event-ID": "x"}), 400, "invalid_value")


def test_no_more_may_listen_than_the_limit_and_the_end_lets_them_go() -> None:
    with serving(listeners=1) as service:
        with listening(service, "/api/events"):
            refused(service.ask("GET", "/api/events"), 503, "busy")
        end = time.monotonic() + 20
        while service.client.get("/metrics").text.find("quire_listeners 0") < 0 and time.monotonic() < end:
            time.sleep(0.01)
        with listening(service, "/api/events"):
            pass


# Start and end


def test_the_end_waits_for_answers_and_lets_listeners_go() -> None:
    Slow.go_on.clear()
    storage, statuses = quire.MemoryStorage(), list[int]()
    context = quire.open(storage, "c")
    context.windows.register(Slow)
    context.windows.open("slow", window_id="w")
    running = quire.server.start(storage, port=0, token=TOKEN, apps=(Slow,), grace=20)
    service = Service(quire.Library(storage), running.address)
    path = "/api/contexts/c/windows/w/wait"
    slow = threading.Thread(target=lambda: statuses.append(service.ask("POST", path, {}).status_code))
    with listening(service, "/api/events") as stream:
        slow.start()
        time.sleep(0.2)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        assert stream.ended()
        Slow.go_on.set()
        stopping.join(30)
        slow.join(30)
    assert statuses == [200]
    with pytest.raises(httpx.ConnectError):
        service.client.get("/health")
    service.client.close()
    context.refresh()
    context.user("the storage is still open: it was not the server's")


def test_a_token_is_made_once_and_kept_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "quire" / "token"
    tokens = []
    for _ in range(2):
        with quire.server.start("memory:", port=0, token_file=file) as running:
            tokens.append(running.token)
            assert running.url == f"{running.address}#token={running.token}"
    assert tokens == [file.read_text().strip()] * 2
    assert len(tokens[0]) >= 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    with pytest.raises(InvalidOperation):
        quire.server.start("memory:", port=0, token_file=file)


@pytest.mark.parametrize(
    "settings",
    [
        {"token": "short"},
        {"token": "with a blank in it, and long"},
        {"token": "漢字" * 10},
        {"token": "x" * 20 + "\n"},
        {"port": 70_000},
        {"host": ""},
        {"host": "no.such.host.invalid"},
        {"budget": -1},
        {"prot": 1},
    ],
)
def test_invalid_settings_are_refused_at_the_start(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as caught:
        quire.server.start("memory:", **{"port": 0, **settings})
    assert next(iter(settings)) in str(caught.value)
    assert settings.get("token", "no token") not in str(caught.value)


def test_a_store_that_is_not_there_and_a_port_in_use_are_errors(service: Service, tmp_path: Path) -> None:
    with pytest.raises(quire.QuireError):
        quire.server.start(tmp_path / "none.db", port=0, create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageFailure):
        quire.server.start("memory:", port=service.client.base_url.port or 0)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_serves_until_a_signal_and_prints_the_token_once(tmp_path: Path) -> None:
    words = ("serve", tmp_path / "a.db", "--create", "--port", 0, "--token-file", tmp_path / "token")
    environment = {name: value for name, value in os.environ.items() if name != "QUIRE_TOKEN"}
    process = subprocess.Popen(
        [sys.executable, "-m", "quire", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    try:
        assert process.stdout is not None
        link = next(word for word in process.stdout.readline().decode().split() if word.startswith("http"))
        address, _, token = link.partition("#token=")
        created = httpx.post(
            f"{address}api/contexts", json={"name": "里"}, headers={"Authorization": f"Bearer {token}"}
        )
        process.send_signal(signal.SIGTERM)
        printed = b"".join(process.communicate(timeout=60))
    finally:
        process.kill()
        process.wait()
    assert created.status_code == 201
    assert process.returncode in (0, -signal.SIGTERM)
    assert token.encode() not in printed
    with quire.Library(tmp_path / "a.db") as library:
        library.open("里", create=False).add(USER)
