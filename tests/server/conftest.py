"""One server per test process, on a SQLite file, and a client that checks the headers of every response."""

import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import quire
import quire.server
from quire.server.http_server import RunningServer
from tests.books import WordCounter

TOKEN = "the-token-of-the-tests-0123456789"
_numbers = count(1)


class Api:
    """A client with the token. It checks the headers of every response."""

    def __init__(self, address: str, token: str = TOKEN) -> None:
        self.client = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=30)

    def ask(self, method: str, path: str, status: int | None = None, **more: Any) -> httpx.Response:
        """Send a request, check the status, and return the response."""
        response = self.client.request(method, path, **more)
        assert status in (None, response.status_code), f"{method} {path}: {response.status_code} {response.text[:500]}"
        check_headers(response)
        return response

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return self.ask("GET", path, status, params=query).json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self.ask("POST", path, status, json=body).json()

    def refused(self, method: str, path: str, status: int, code: str, **more: Any) -> str:
        """Send a request that must be refused, and return the error message."""
        error = self.ask(method, path, status, **more).json()["error"]
        assert error["code"] == code, error
        assert error["message"]
        return str(error["message"])


def check_headers(response: httpx.Response) -> None:
    """Check the headers that every response must have."""
    headers = response.headers
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers
    if response.url.path.startswith("/api"):
        assert headers["cache-control"] == "no-store"
        assert headers["content-type"] in ("application/json", "text/event-stream; charset=utf-8")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "store.db"


@pytest.fixture(scope="session")
def running(store: Path) -> Iterator[RunningServer]:
    logging.getLogger("quire.server").setLevel(logging.INFO)
    settings: dict[str, Any] = {"poll": 0.02, "heartbeat": 0.2, "max_body": 200_000, "patience": 0.5, "grace": 5}
    with quire.server.start(store, port=0, token=TOKEN, budget=4_000, **settings) as server:
        yield server


@pytest.fixture(scope="session")
def api(running: RunningServer) -> Iterator[Api]:
    api = Api(running.address)
    yield api
    api.client.close()


@pytest.fixture(scope="session")
def library(store: Path, running: RunningServer) -> Iterator[quire.Library]:
    """Another handle on the same file, like that of another process."""
    with quire.Library(store) as library:
        yield library


class Talk:
    """A context with a conversation and notes, and its path over HTTP."""

    def __init__(self, context: quire.Context) -> None:
        self.context = context
        self.path = f"/api/contexts/{quote(context.name, safe='')}"


def talk_in(library: quire.Library, name: str = "", turns: int = 6) -> Talk:
    """Return a new context. Its name has characters that a path must encode."""
    context = library.open(name or f"测试/{next(_numbers)} ?#%", budget=4_000, counter=WordCounter())
    context.system("你要小心。")
    for turn in range(turns):
        context.user(f"Question {turn}: where is 西雅图?")
        context.assistant(None, [{"id": f"c{turn}", "function": {"name": "look", "arguments": "{}"}}])
        context.tool_result(f"c{turn}", f"result {turn}: " + "water " * 20)
    folder = context.pages.create_contents_page("notes", "what was noted", "mem-0")
    for n in range(5):
        context.pages.create_detail_page(f"note {n}", f"the {n}th", f"text {n} " * 10, folder)
    return Talk(context)


@pytest.fixture
def talk(library: quire.Library) -> Talk:
    return talk_in(library)


@pytest.fixture(scope="session")
def still(library: quire.Library) -> Talk:
    """A context that no test changes."""
    return talk_in(library)
