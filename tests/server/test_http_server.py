"""Start and stop: the token, the port, several servers on one store, and a graceful end."""

import gc
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import quire
import quire.server
from quire import Conflict, InvalidOperation, InvalidValue, StorageFailure
from quire.server.access import load_token
from quire.server.connections import ThreadedServer, UvicornServer
from quire.server.context_pool import ContextPool
from quire.server.http_server import RunningServer, announce
from quire.storage.base import Commit
from tests.server.conftest import TOKEN, Api, Talk, talk_in
from tests.server.test_change_stream import events

# The token


def test_a_token_is_made_once_kept_for_its_owner_and_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quire" / "token"
    with quire.server.start("memory:", port=0, token_file=file, ready=announce) as running:
        said = capsys.readouterr().out
        assert said == f"quire serves at http://127.0.0.1:{running.port}/#token={running.token}\n"
        assert file.read_text().strip() == running.token
        assert len(running.token) >= 40
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        first = running.token
    with quire.server.start("memory:", port=0, token_file=file, ready=announce) as running:
        assert running.token == first
        assert capsys.readouterr().out == f"quire serves at http://127.0.0.1:{running.port}/\n"
        assert running.url.endswith(first)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(InvalidOperation, match="chmod 600"):
        load_token(None, file)
    file.chmod(0o600)
    assert load_token(None, file) == (TOKEN, False)


@pytest.mark.parametrize("token", ["", "short", "with a blank in it, and long", "漢字" * 10, "x" * 20 + "\n", 7])
def test_a_token_that_cannot_be_sent_is_refused_and_not_quoted(token: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        load_token(token, None)
    assert not token or str(token) not in str(caught.value)


@pytest.mark.parametrize(("in_url", "token"), [(False, "abc"), (True, "with/a/slash/and/long/enough")])
def test_an_unusable_token_in_a_file_is_refused_with_the_file(in_url: bool, token: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    with pytest.raises(InvalidValue) as caught:
        load_token(None, file, in_url=in_url)
    assert caught.value.argument == "token_file"
    assert str(file) in str(caught.value)
    assert token not in str(caught.value).replace(str(file), "")
    assert ("letters, digits and - _ . ~" if in_url else "visible ASCII characters") in str(caught.value)


def test_a_token_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageFailure, match="Cannot read the token"):
        load_token(None, tmp_path / "folder")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageFailure, match="Cannot write the token"):
        load_token(None, tmp_path / "file" / "token")
    assert load_token(None, None).is_new
    assert load_token(None, None) != load_token(None, None)


# The address


def test_a_port_in_use_is_an_error(running: RunningServer) -> None:
    with pytest.raises(StorageFailure, match=f"Cannot listen on 127.0.0.1:{running.port}"):
        quire.server.start("memory:", port=running.port)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"port": 70_000}, "port is 70000"),
        ({"port": -1}, "port is -1"),
        ({"host": ""}, "host is ''"),
        ({"host": "no.such.host.invalid"}, "cannot be bound"),
        ({"budget": -1}, "budget is -1"),
        ({"prot": 1}, "'prot' is not an option of start"),
    ],
)
def test_invalid_settings_are_refused_at_the_start(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        quire.server.start("memory:", **{"port": 0, **settings})


def test_a_store_that_is_not_there_is_not_made_unless_wanted(tmp_path: Path) -> None:
    with pytest.raises(quire.QuireError):
        quire.server.start(tmp_path / "none.db", port=0, create=False)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_error_is_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "quire.server.http_server")
    monkeypatch.delattr(quire.server, "http_server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InvalidOperation, match=r"pip install .*\[server\]'"):
        quire.server.start("memory:", port=0)


# Several servers on one store


def test_two_servers_on_one_file_see_each_other(running: RunningServer, api: Api, talk: Talk, store: Path) -> None:
    with quire.server.start(store, port=0, token=TOKEN, budget=4_000) as second:
        other = Api(second.address)
        for turn in range(5):
            mine, theirs = (api, other) if turn % 2 else (other, api)
            seq = mine.post(f"{talk.path}/messages", {"role": "user", "content": f"轮 {turn}"}, 201)["seq"]
            assert theirs.get(talk.path)["seq"] == seq
            assert theirs.get(f"{talk.path}/view")["messages"][-1]["content"] == f"轮 {turn}"
            page = mine.post(f"{talk.path}/pages", {"name": f"n{turn}", "parent": "mem-0"}, 201)["page"]["index"]
            assert theirs.get(f"{talk.path}/pages/{page}")["name"] == f"n{turn}"
            theirs.post(f"{talk.path}/pages/{page}/hide")
            assert mine.get(f"{talk.path}/pages/{page}")["visibility"] == "hidden"
        mine.ask("DELETE", talk.path, 200)
        theirs.refused("GET", talk.path, 404, "no_such_context")
        assert mine.post("/api/contexts", {"name": talk.context.name}, 201)["seq"] == 1
        assert theirs.get(talk.path)["seq"] == 1
        other.client.close()


def test_writers_at_once_all_get_through(running: RunningServer, api: Api, talk: Talk, store: Path) -> None:
    before = talk.context.seq
    with quire.server.start(store, port=0, token=TOKEN) as second:
        addresses = [running.address, second.address] * 2
        statuses: list[int] = []

        def write(address: str) -> None:
            one = Api(address)
            for n in range(5):
                response = one.client.post(f"{talk.path}/messages", json={"role": "user", "content": f"{address} {n}"})
                statuses.append(response.status_code)
            one.client.close()

        threads = [threading.Thread(target=write, args=(address,)) for address in addresses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(statuses) <= {201, 409}
    talk.context.refresh()
    assert talk.context.seq == before + statuses.count(201)
    assert statuses.count(201) >= 10
    assert talk.context.check() == []


class Overtaken(quire.MemoryStorage):
    """Raises `Conflict` for the next `ahead` commits, as if another writer was first."""

    ahead = 0

    def commit(self, context: str, commit: Commit) -> None:
        if self.ahead:
            self.ahead -= 1
            raise Conflict("somebody was first")
        super().commit(context, commit)


def test_a_change_that_met_another_writer_is_made_once_more() -> None:
    storage = Overtaken()
    talk = talk_in(quire.Library(storage), "c", turns=1)
    with quire.server.start(storage, port=0, token=TOKEN) as running:
        api = Api(running.address)
        storage.ahead = 1
        assert api.post(f"{talk.path}/pages/mem-2/hide")["page"]["visibility"] == "hidden"
        assert "quire_conflicts_retried_total 1" in api.ask("GET", "/metrics", 200).text
        storage.ahead = 2
        api.refused("POST", f"{talk.path}/pages/mem-2/expand", 409, "conflict", json={})
        api.client.close()


def test_the_pool_holds_at_most_its_limit_of_contexts(library: quire.Library, running: RunningServer) -> None:
    names = [f"pool {n}" for n in range(4)]
    for name in names:
        library.open(name)
    with quire.server.start(library.storage, port=0, token=TOKEN, contexts=2) as small:
        api = Api(small.address)
        for name in names * 2:
            assert api.get(f"/api/contexts/{name}")["seq"] == 1
            assert len(small.service.pool) <= 2
        api.client.close()


def test_a_context_that_two_threads_open_at_once_is_closed_once(
    library: quire.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.create("both")
    pool = ContextPool(library, budget=None, apps=())
    open_context = pool._open_context
    made: list[quire.Context] = []
    closed: list[quire.Context] = []

    def open_late(name: str) -> quire.Context:
        made.append(open_context(name))
        found = made[-1]
        if len(made) == 1:
            with pool.use(name):  # as another thread would do now
                pass
        return found

    monkeypatch.setattr(pool, "_open_context", open_late)
    monkeypatch.setattr(quire.Context, "close", lambda context: closed.append(context))
    with pool.use("both") as opened:
        assert opened.context is made[1]
    assert closed == made[:1]
    pool.close()
    assert closed == made


def test_a_server_that_does_not_get_ready_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = ThreadedServer("server", UvicornServer(uvicorn.Config(lambda: None)), listening, 1)
        monkeypatch.setattr("quire.server.connections._START_TIMEOUT", 0.01)
        monkeypatch.setattr(server, "_serve", ends.wait)
        monkeypatch.setattr(server, "_request_exit", ends.set)
        with pytest.raises(StorageFailure, match=r"The server did not start within 0\.01 seconds"):
            server.start()
        assert ends.is_set()


def test_a_context_in_use_is_waited_for_and_not_for_ever(
    library: quire.Library, running: RunningServer, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.server.context_pool._LOCK_TIMEOUT", 0.05)
    pool = running.service.pool
    with pool.use(talk.context.name):
        failures: list[Exception] = []

        def look() -> None:
            try:
                with pool.use(talk.context.name):
                    pass
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert [type(error) for error in failures] == [quire.Busy]


def test_a_slow_request_times_out_and_the_server_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = quire.MemoryStorage()
    talk = talk_in(quire.Library(storage), "c", turns=1)
    held = threading.Event()
    with quire.server.start(storage, port=0, token=TOKEN, timeout=1.0) as running:
        api = Api(running.address)
        monkeypatch.setattr(type(running.service.pool.library), "info", lambda *_: held.wait(20))
        api.refused("GET", talk.path, 503, "timeout")
        assert api.get("/health")["status"] == "ok"
        held.set()
        api.client.close()


def test_an_unexpected_failure_is_logged_and_not_revealed(
    running: RunningServer, api: Api, talk: Talk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(type(running.service.pool.library), "info", fail)
    said = api.refused("GET", talk.path, 500, "internal")
    assert "secret" not in said
    assert "a secret of ours" in caplog.text


# The end


def test_the_end_waits_for_answers_and_lets_listeners_go() -> None:
    storage = quire.MemoryStorage()
    talk = talk_in(quire.Library(storage), "c", turns=1)
    begun, go_on = threading.Event(), threading.Event()

    class Slow(quire.Library):
        def info(self, name: str) -> Any:
            begun.set()
            go_on.wait(20)
            return super().info(name)

    running = quire.server.start(storage, port=0, token=TOKEN)
    running.service.pool.library = Slow(storage)
    api, answers = Api(running.address), []
    slow = threading.Thread(target=lambda: answers.append(api.ask("GET", talk.path)))
    listening = Api(running.address)
    with events(listening, "/api/events") as stream:
        slow.start()
        assert begun.wait(20)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        assert stream.ended()
        go_on.set()
        stopping.join(30)
        slow.join(30)
    assert [answer.status_code for answer in answers] == [200]
    assert not stopping.is_alive()
    running.stop()
    with pytest.raises(Exception, match="refused"):
        api.client.get("/health")
    api.client.close()
    listening.client.close()
    talk.context.user("the storage is still open: it was not the server's")


_SERVE = """
import sys, logging, quire.server
logging.basicConfig(level=logging.DEBUG)
quire.server.serve(sys.argv[1], port=0, token_file=sys.argv[2])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_serve_runs_until_a_signal_and_logs_no_token(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SERVE, str(tmp_path / "a.db"), str(tmp_path / "token")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.fullmatch(r"quire serves at (http://127\.0\.0\.1:\d+/)#token=(\S+)\n", said)
        assert found, said
        api = Api(found[1], found[2])
        assert api.post("/api/contexts", {"name": "里"}, 201)["seq"] == 1
        api.client.get(f"/api/contexts?token={found[2]}")
        api.client.close()
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert out == ""
    assert "GET /api/contexts" in log
    assert found[2] not in log
    assert quire.Library(tmp_path / "a.db").exists("里")


def test_ctrl_c_before_the_server_runs_ends_it_without_a_word(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    for at_once in (lambda running: signal.raise_signal(signal.SIGINT), lambda running: running.stop()):
        quire.server.serve(tmp_path / "a.db", port=0, token="t" * 32, ready=at_once)
    gc.collect()
    assert signal.getsignal(signal.SIGINT) is handler
    assert [str(warning.message) for warning in recwarn] == []
    assert capsys.readouterr().err == ""
