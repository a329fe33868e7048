"""A server on a store in memory, and a client that checks the headers of every answer."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import httpx

import quire
import quire.server
from tests.surfaces.http_table import BUDGET, fill

TOKEN = "the-token-of-the-tests-0123456789"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


def check_headers(response: httpx.Response) -> None:
    """Check the headers that every answer must have."""
    headers = response.headers
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers
    if response.url.path.startswith("/api"):
        assert headers["cache-control"] == "no-store"
        assert headers["content-type"] in ("application/json", "text/event-stream; charset=utf-8")


class Service:
    """A running server, a client with its token, and a handle on its store like that of another program."""

    def __init__(self, library: quire.Library, address: str) -> None:
        self.library = library
        self.client = httpx.Client(base_url=address, headers=AUTHORIZED, timeout=30)

    def ask(self, method: str, path: str, given: Any = None, **more: Any) -> httpx.Response:
        """Send a query with GET or DELETE, else a body; check the headers of the answer and return it."""
        place = "params" if method in ("GET", "DELETE") else "json"
        response = self.client.request(method, path, **({} if given is None else {place: given}), **more)
        check_headers(response)
        return response

    def get(self, path: str, **query: Any) -> Any:
        """Return the value of a GET."""
        response = self.ask("GET", path, query or None)
        assert response.status_code == 200, f"{path}: {response.text}"
        return response.json()

    def post(self, path: str, body: Any = None) -> Any:
        """Return the value of a POST."""
        response = self.ask("POST", path, body)
        assert response.status_code in (200, 201), f"{path}: {response.text}"
        return response.json()

    def book(self, name: str) -> tuple[quire.Context, str]:
        """Return a new filled context with this name, and its path."""
        return fill(self.library.open(name, budget=BUDGET)), f"/api/contexts/{quote(name, safe='')}"

    def state(self) -> dict[str, int]:
        """Return the number of the last journal entry of every context."""
        return {name: self.library.info(name).seq for name in self.library.list()}

    def close(self) -> None:
        """Close the connections of the client."""
        self.client.close()


def refused(response: httpx.Response, status: int, code: str) -> str:
    """Check a refusal and return its message."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code, error
    assert error["message"]
    return str(error["message"])


@contextmanager
def serving(storage: Any = None, **settings: Any) -> Iterator[Service]:
    """Serve a store in this process."""
    store = quire.MemoryStorage() if storage is None else storage
    settings = {"budget": BUDGET, "poll": 0.02, "grace": 2, **settings}
    with (
        quire.server.start(store, port=0, token=TOKEN, **settings) as running,
        closing(Service(quire.Library(store), running.address)) as service,
    ):
        yield service
