"""Live changes: every listener receives the changes of every writer."""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import quire
from quire.server.change_stream import _changes_since, _read_newest
from quire.server.http_server import RunningServer
from tests.server.conftest import Api, Talk, check_headers

_WRITE = """
import sys, quire
quire.open(sys.argv[1], sys.argv[2]).user("from another process")
"""


class Stream:
    """The lines of an event stream."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        self.first = next(self._lines)

    def next(self) -> dict[str, Any]:
        """Return the next change, without the comments before it."""
        for line in self._lines:
            if line.startswith("data: "):
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                return found
        raise EOFError

    def comment(self) -> str:
        return next(line for line in self._lines if line.startswith(":"))

    def ended(self) -> bool:
        return all(not line.startswith("data") for line in self._lines)


@contextmanager
def events(api: Api, path: str, last: str | None = None, **query: Any) -> Iterator[Stream]:
    headers = {} if last is None else {"Last-Event-ID": last}
    with api.client.stream("GET", path, params=query, headers=headers) as response:
        assert response.status_code == 200
        check_headers(response)
        yield Stream(response)


def eventually(look: Callable[[], bool]) -> bool:
    for _ in range(500):
        if look():
            return True
        time.sleep(0.01)
    return False


def test_a_change_by_another_process_is_heard(api: Api, talk: Talk, store: Path) -> None:
    with events(api, f"{talk.path}/events") as one, events(api, "/api/events") as everything:
        subprocess.run([sys.executable, "-c", _WRITE, str(store), talk.context.name], check=True, timeout=60)
        heard = {"context": talk.context.name, "seq": talk.context.seq + 1, "operation": "user", "actor": "developer"}
        assert one.next() == heard
        while (change := everything.next())["context"] != talk.context.name:
            pass  # other tests write too
        assert change == heard


def test_a_listener_of_one_context_receives_only_its_changes(api: Api, talk: Talk) -> None:
    with events(api, f"{talk.path}/events") as stream:
        other = api.post("/api/contexts", {"name": f"beside {talk.context.name}"}, 201)
        assert other["seq"] == 1
        api.post(f"{talk.path}/pages/mem-2/hide")
        change = stream.next()
        assert (change["context"], change["operation"]) == (talk.context.name, "hide")


def test_a_client_that_reconnects_receives_missed_changes(api: Api, talk: Talk) -> None:
    with events(api, f"{talk.path}/events", after=talk.context.seq - 2) as stream:
        assert [stream.next()["seq"] for _ in range(2)] == [talk.context.seq - 1, talk.context.seq]


def test_a_browser_that_reconnects_receives_missed_changes_and_the_parameter_wins(api: Api, talk: Talk) -> None:
    seq = talk.context.seq
    with events(api, f"{talk.path}/events", last=str(seq - 2)) as stream:
        assert [stream.next()["seq"] for _ in range(2)] == [seq - 1, seq]
    with events(api, f"{talk.path}/events", last="1", after=seq - 1) as stream:
        assert stream.next()["seq"] == seq
    words = api.refused("GET", f"{talk.path}/events", 400, "invalid_value", headers={"Last-Event-ID": "x"})
    assert "after" in words


@pytest.mark.parametrize("how", ["after", "last"])
def test_beyond_the_last_entry_is_from_now_on(how: str, api: Api, talk: Talk) -> None:
    beyond: dict[str, Any] = {how: str(talk.context.seq + 1_000)}
    with events(api, f"{talk.path}/events", **beyond) as stream:
        assert stream.comment() == ": still here"  # no change is sent twice
        api.post(f"{talk.path}/pages/mem-2/hide")
        assert stream.next()["seq"] == talk.context.seq + 1


def test_a_context_that_is_deleted_and_created_again_is_reported(api: Api, talk: Talk, library: quire.Library) -> None:
    with events(api, f"{talk.path}/events") as stream:
        api.ask("DELETE", talk.path, 200)
        assert stream.next() == {"context": talk.context.name, "seq": 0, "operation": "delete", "actor": ""}
        library.open(talk.context.name)
        assert stream.next()["operation"] == "create"


def test_a_context_that_is_created_again_between_two_polls_is_reported(library: quire.Library) -> None:
    name = "created again"
    library.create(name).user("old")
    seen = _read_newest(library, name)
    library.delete(name)
    library.create(name).user("new")  # at the same entry
    heard = _changes_since(library, seen, _read_newest(library, name))
    assert [change.operation for change in heard] == ["delete", "create", "user"]
    assert _changes_since(library, seen, _read_newest(library, name)) == []


def test_a_damaged_context_does_not_stop_the_stream_of_the_others(tmp_path: Path) -> None:
    with quire.Library(tmp_path / "agents.db") as library:
        for name in ("damaged", "sound"):
            library.create(name)
        seen = _read_newest(library, None)
        for name in ("damaged", "sound"):
            library.open(name).user("hello")
            list(library.storage.scan(name, "page"))  # applies the commit log
        with sqlite3.connect(tmp_path / "agents.db") as connection:
            connection.execute("UPDATE context SET head = x'00' WHERE name = 'damaged'")
        heard = _changes_since(library, seen, _read_newest(library, None))
        assert [(change.context, change.operation) for change in heard] == [("sound", "user")]


def test_a_silent_stream_shows_that_it_lives(api: Api, talk: Talk) -> None:
    with events(api, f"{talk.path}/events") as stream:
        assert stream.comment() == ": still here"


def test_a_listener_that_disconnects_is_removed(api: Api, talk: Talk, running: RunningServer) -> None:
    hub = running.service.changes
    assert eventually(lambda: len(hub) == 0)
    with events(api, f"{talk.path}/events") as one, events(api, "/api/events") as other:
        assert len(hub) == 2
        assert one.first == other.first
    assert eventually(lambda: len(hub) == 0)
    assert eventually(lambda: hub._task is None)


def test_not_more_may_listen_than_are_let_in(talk: Talk, store: Path) -> None:
    with quire.server.start(store, port=0, token="x" * 20, listeners=1) as running:
        api = Api(running.address, "x" * 20)
        with events(api, f"{talk.path}/events") as stream:
            api.refused("GET", f"{talk.path}/events", 503, "busy")
            assert stream.first == ": listening"
        assert eventually(lambda: len(running.service.changes) == 0)
        with events(api, f"{talk.path}/events") as stream:
            assert stream.first == ": listening"
        api.client.close()


def test_a_listener_that_does_not_read_is_let_go(talk: Talk) -> None:
    from quire.server.change_stream import Change, Listener

    listener = Listener(talk.context.name, {})
    listener.send(Change("c", n, "user", "x") for n in range(2_000))
    heard = [listener.queue.get_nowait() for _ in range(listener.queue.qsize())]
    assert len(heard) == 1_001
    assert heard[-1] is None
