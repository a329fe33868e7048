"""The gateway: legal requests after a fold, edits of a session, answers that belong to others, figures, commands."""

import json
import os
import random
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

import pytest

import quire
import quire.gateway
from quire import Conflict, Context
from quire.cli import main
from tests.known_failures import fails, given, until_step
from tests.strict_provider import Body, Fault, Reply, State, StrictProvider

Message = dict[str, Any]
TOOL = {"name": "Read", "description": "read", "input_schema": {"type": "object", "properties": {}}}
NAME = "gateway/local/anthropic/s"


@pytest.fixture
def upstream() -> Iterator[StrictProvider]:
    with StrictProvider(State(limit=10**7), lambda _: Reply("ok")) as made:
        yield made


class Answer(NamedTuple):
    """An answer of the gateway."""

    status: int
    note: str
    """The header `x-quire`: why a request was not folded."""
    body: Any


def _request(url: str, body: object = None, **headers: str) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Answer(answer.status, answer.headers.get("x-quire", ""), json.loads(answer.read() or b"null"))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers.get("x-quire", ""), None)


class Client:
    """A client that sends its whole conversation again with each request."""

    def __init__(self, url: str, session: str = "s") -> None:
        self.url, self.messages, self.steps = url, list[Message](), 0
        self.headers = {"x-quire-session": session, "anthropic-version": "2023-06-01", "x-api-key": "k"}

    def send(self) -> Answer:
        body = {"model": "claude-fable-5-1", "max_tokens": 50, "tools": [TOOL], "messages": self.messages}
        return _request(self.url + "/v1/messages", body, **self.headers)

    def ask(self, text: str) -> Answer:
        """Send a message of the user, and keep the answer."""
        self.messages.append({"role": "user", "content": text})
        answer = self.send()
        self.messages.append({"role": "assistant", "content": "ok"})
        return answer

    def use_tool(self, result: str, *after: Message) -> None:
        """Add a call with its result, and further messages."""
        self.steps += 1
        call = {"type": "tool_use", "id": f"t{self.steps}", "name": "Read", "input": {"path": f"f{self.steps}.py"}}
        block = {"type": "tool_result", "tool_use_id": f"t{self.steps}", "content": result}
        self.messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}, *after]

    def figures(self) -> dict[str, Any]:
        (found,) = _request(self.url + "/quire/sessions").body
        return dict(found)


def _open(upstream: Any, where: object = "memory:", budget: int = 3_000) -> Any:
    return quire.gateway.start(str(where), anthropic=upstream.url, port=0, mode="fold", budget=budget)


def _left(number: int) -> Message:
    return {"role": "system", "content": f"<total_tokens>{15_000_000 - number} tokens left</total_tokens>"}


@until_step(5, "a system message stands before a message of the user", example_of="system_after_fold")
def test_a_request_that_folds_in_a_later_turn_is_legal(upstream: StrictProvider) -> None:
    with _open(upstream, budget=6_000) as gateway:
        client = Client(gateway.url)
        reminder = {"type": "text", "text": "<system-reminder>\ncontext\n</system-reminder>"}
        first = {"role": "user", "content": [reminder, {"type": "text", "text": "First task"}]}
        client.messages = [first, {"role": "system", "content": "# Environment\nYou have been invoked."}]
        for number in range(15):
            if number == 3:
                client.messages += [
                    {"role": "assistant", "content": "done"},
                    {"role": "user", "content": "Second task"},
                ]
                client.messages.append(_left(0))
            client.send()
            client.use_tool(f"result {number} " + f"abcd{number} efgh " * 150, _left(number))
    assert [problem.rule for problem in upstream.refused] == []


_SAID = [
    "Decision: we use UUID v7 for ids and the deadline is 2026-12-24.",
    "From now on amounts are in cents, never floats.",
    "The table is called settlement_runs.",
    "You must not touch payments/legacy.py.",
    "Rename class Foo to SettlementJob.",
]


@until_step(3, "the words of the user leave the view")
@pytest.mark.parametrize("injects", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_the_user_said_stays_in_the_view_after_folds(injects: bool, upstream: StrictProvider) -> None:
    chance = random.Random(1)
    with _open(upstream, budget=12_000) as gateway:
        client = Client(gateway.url)
        client.ask("Help me with the settlement service.")
        for turn in range(10):
            said = _SAID[turn] if turn < len(_SAID) else f"Continue with part {turn}."
            client.messages += [{"role": "user", "content": said}]
            client.messages += [_left(chance.randrange(10**6))] * injects
            for _ in range(3):
                code = "\n".join(
                    f"    ledger_{chance.randrange(99)} = load({chance.randrange(9999)})" for _ in range(45)
                )
                client.use_tool(code, *[_left(chance.randrange(10**6))] * injects)
            client.send()
            client.messages.append({"role": "assistant", "content": f"Part {turn} is done."})
        client.ask("What did we decide?")
    sent = json.dumps(upstream.requests[-1]["messages"])
    given(len(upstream.requests[-1]["messages"]) < len(client.messages) - 1)
    assert [text for text in _SAID if text not in sent] == []


@until_step(5, "a cut message is counted nowhere")
def test_a_message_that_is_cut_is_counted(upstream: StrictProvider) -> None:
    with _open(upstream) as gateway:
        client = Client(gateway.url)
        client.ask(" ".join(f"{number:05x}" for number in range(4_000)))
        given(len(json.dumps(upstream.requests[-1])) < len(json.dumps(client.messages)) / 2)
        assert client.figures()["folded_requests"] == 1


@until_step(5, "every error but two is passed on")
def test_a_folded_request_that_is_refused_is_sent_once_as_the_client_wrote_it(upstream: StrictProvider) -> None:
    with _open(upstream, budget=1_000) as gateway:
        client = Client(gateway.url)

        def refuse_folded(body: Body) -> Reply | Fault:
            return Reply("ok") if len(body["messages"]) == len(client.messages) else Fault(400, "no reason")

        upstream.script = refuse_folded
        answers = [client.ask(f"Q{number} " + "word " * 200) for number in range(8)]
    assert {answer.status for answer in answers} == {200}
    assert any(answer.note for answer in answers)


def _edit(where: Path, edit: Callable[[Context, Any], object]) -> None:
    """Wait until the gateway has recorded twelve exchanges, and edit the ninth message."""
    ends = time.monotonic() + 10
    with quire.open(where, NAME) as ctx:
        while True:
            try:
                assert len(ctx.messages()) == 24 or time.monotonic() > ends
                edit(ctx, ctx.conversation.page_of(8))
                return
            except (AssertionError, Conflict):
                time.sleep(0.01)
                ctx.refresh()


_STOPS = until_step(5, "after the edit no request is folded any more")


def _slow(name: str, edit: Callable[[Context, Any], object], *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(edit, id=name, marks=[pytest.mark.slow, *marks])


@pytest.mark.parametrize(
    "edit",
    [
        _slow("nothing", lambda ctx, page: None),
        _slow("archive", lambda ctx, page: ctx.pages.archive(page)),
        _slow("pin", lambda ctx, page: ctx.pages.pin(page)),
        _slow("rollback", lambda ctx, page: ctx.rollback(ctx.seq - 6)),
        _slow("insert", lambda ctx, page: ctx.conversation.insert({"role": "user", "content": "R"}, at=8)),
        _slow("batch", lambda ctx, page: ctx.conversation.batch_start()),
        _slow("delete", lambda ctx, page: ctx.delete([8]), _STOPS),
        _slow("remove", lambda ctx, page: ctx.pages.remove_page(page), _STOPS),
        _slow("cold archive", lambda ctx, page: ctx.pages.archive(page, cold=True), _STOPS),
        _slow("compress", lambda ctx, page: ctx.compress([8, 9]), _STOPS),
        _slow("replace", lambda ctx, page: ctx.replace(8, {"role": "user", "content": "R"}), _STOPS),
        fails(lambda ctx, page: ctx.pages.purge(page), step=5, why="folding stops", id="purge"),
        _slow("cleanup", lambda ctx, page: (ctx.delete([8]), ctx.conversation.cleanup()), _STOPS),
    ],
)
def test_folding_goes_on_after_a_person_edits_a_session(
    edit: Callable[[Context, Any], object], upstream: StrictProvider, tmp_path: Path
) -> None:
    late = []
    with _open(upstream, tmp_path / "a.db", 1_000) as gateway:
        client = Client(gateway.url)
        for number in range(16):
            answer = client.ask(f"Q{number:02} " + "TOPSECRET77 " * (number == 4) + "word " * 80)
            if number == 11:
                _edit(tmp_path / "a.db", edit)
            elif number > 11:
                is_whole = len(upstream.requests[-1]["messages"]) == len(client.messages) - 1
                late.append(is_whole and not answer.note)
    with quire.open(tmp_path / "a.db", NAME) as ctx:
        said = [message.text[:3] for message in ctx.messages() if message.role == "user" and message.text != "R"]
    assert late == [False] * 4
    assert said == sorted(set(said))


@until_step(5, "what a person purged is recorded again")
def test_a_text_that_a_person_purged_is_not_recorded_again(upstream: StrictProvider, tmp_path: Path) -> None:
    with _open(upstream, tmp_path / "a.db", 1_000) as gateway:
        client = Client(gateway.url)
        for number in range(16):
            client.ask(f"Q{number:02} " + "TOPSECRET77 " * (number == 4) + "word " * 80)
            if number == 11:
                _edit(tmp_path / "a.db", lambda ctx, page: ctx.pages.purge(page))
    assert [path.name for path in tmp_path.iterdir() if b"TOPSECRET77" in path.read_bytes()] == []


def _answer(text: str) -> bytes:
    usage = {"input_tokens": 1, "output_tokens": 1}
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
    }
    data = json.dumps({**body, "stop_reason": "end_turn", "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data) + data


_LATE = b"HTTP/1.1 408 Request Time-out\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Echo(socketserver.ThreadingTCPServer):
    """An upstream that answers with the last message, or with given bytes.

    The first answer has `more` bytes than it says, after a pause.
    """

    daemon_threads = True

    def __init__(self, more: bytes = b"", pause: float = 0, instead: bytes = b"") -> None:
        self.more, self.pause, self.instead = more, pause, instead
        super().__init__(("127.0.0.1", 0), EchoHandler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class EchoHandler(socketserver.StreamRequestHandler):
    server: Echo

    def handle(self) -> None:
        length = 0
        for line in self.rfile:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            if line == b"\r\n":
                said = json.loads(self.rfile.read(length))["messages"][-1]["content"]
                if self.server.instead:
                    with suppress(OSError):
                        self.wfile.write(self.server.instead)
                    return
                more, self.server.more = self.server.more, b""
                self.wfile.write(_answer(f"answer to {said}") + more * (not self.server.pause))
                if more and self.server.pause:
                    time.sleep(self.server.pause)
                    self.wfile.write(more)
                    return


@until_step(5, "a connection with unread bytes is used again")
@pytest.mark.parametrize(
    ("more", "pause"), [(_answer("of another client"), 0), (b"stray", 0), (_LATE, 0.05)], ids=["answer", "bytes", "408"]
)
def test_each_client_gets_the_answer_to_its_own_request(more: bytes, pause: float) -> None:
    with Echo(more, pause) as upstream, _open(upstream) as gateway:
        texts = []
        for number in range(3):
            answer = Client(gateway.url, f"s{number}").ask(f"q{number}")
            texts.append(answer.body["content"][0]["text"] if answer.status == 200 else str(answer.status))
            time.sleep(0.15)
    assert texts == ["answer to q0", "answer to q1", "answer to q2"]


_ALONE = """
import sys
import quire.gateway
with quire.gateway.start("memory:", anthropic=sys.argv[1], port=0, mode="fold", budget=3_000) as gateway:
    print(gateway.url, flush=True)
    sys.stdin.readline()
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def _endless() -> bytes:
    return b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\n\r\n" + b"x" * (300 << 20)


def _packed() -> bytes:
    """Return an answer of 5 MB that is a hundred times as large when it is unpacked."""
    packer, noise = zlib.compressobj(1, zlib.DEFLATED, 31), random.Random(1).randbytes(4_000).hex().encode()
    start = packer.compress(b'{"a":"')
    parts = [packer.compress(noise + b"0" * 500_000) for _ in range(1_000)]
    data = b"".join([start, *parts, packer.compress(b'"}'), packer.flush()])
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: "
    return f"{head}{len(data)}\r\n\r\n".encode() + data


@pytest.mark.slow
@pytest.mark.parametrize("make", [_endless, _packed])
@until_step(5, "the whole body is held in memory")
def test_an_answer_without_end_takes_little_memory(make: Callable[[], bytes]) -> None:
    with (
        Echo(instead=make()) as upstream,
        subprocess.Popen(
            [sys.executable, "-c", _ALONE, upstream.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as alone,
    ):
        assert alone.stdout
        with suppress(OSError, ValueError):
            Client(alone.stdout.readline().strip()).ask("q")
        most = int(alone.communicate("\n", timeout=60)[0]) >> 10
    assert most < 300, f"{most} MB"


_FAKE_CLIENT = """#!{python}
import os, urllib.error, urllib.parse, urllib.request
parts = urllib.parse.urlsplit(os.environ["ANTHROPIC_BASE_URL"])
try:
    print(urllib.request.urlopen(f"{{parts.scheme}}://{{parts.netloc}}/quire/sessions").status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def _run_client(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Run a client that does not talk with its model through `quire gateway run`, and return the exit code."""
    program = folder / "claude"
    program.write_text(_FAKE_CLIENT.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return main(["gateway", "run", str(folder / "a.db"), "--stub", *options, "--", "claude"])


@pytest.mark.slow
@until_step(5, "every program of the machine may read the sessions")
def test_a_run_refuses_programs_without_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given(_run_client(tmp_path, monkeypatch) == 0)
    assert capfd.readouterr().out.split()[-1] in {"401", "403", "404"}


@pytest.mark.slow
@until_step(8, "a run without a request ends without a word")
def test_a_run_without_a_request_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _run_client(tmp_path, monkeypatch)
    assert capfd.readouterr().err.strip()


@until_step(7, "the option is unknown", raises=SystemExit)
def test_a_run_takes_the_option_redact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run_client(tmp_path, monkeypatch, "--redact") == 0


@pytest.fixture(scope="module")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with one session of a gateway that folded."""
    where = tmp_path_factory.mktemp("recorded") / "a.db"
    with StrictProvider() as upstream, _open(upstream, where, 1_000) as gateway:
        client = Client(gateway.url)
        for number in range(14):
            client.ask(f"Q{number:02} " + "word " * 80)
    return where


@pytest.fixture
def recorded(session_store: Path, tmp_path: Path) -> str:
    return str(copyfile(session_store, tmp_path / "a.db"))


@until_step(7, "the figures of an erased session stay")
def test_an_erased_session_is_not_listed(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["erase", recorded, NAME, "--yes"])
    capsys.readouterr()
    main(["gateway", "sessions", recorded, "--json"])
    assert capsys.readouterr().out.strip() == ""


@until_step(7, "a session for a client can be read by all users of the machine")
def test_a_handed_over_session_is_for_its_owner_only(recorded: str, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert (
            main(["gateway", "handoff", recorded, "s", "--client", "claude", "--file", str(tmp_path / "h.jsonl")]) == 0
        )
    finally:
        os.umask(before)
    assert (tmp_path / "h.jsonl").stat().st_mode & 0o077 == 0


@until_step(8, "tokens that were in the cache count as saved")
def test_the_figures_of_a_session_name_no_saved_tokens(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["gateway", "sessions", recorded, "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert [name for name in figures if "saved" in name] == []


@until_step(6, "the table is wider than the terminal")
def test_the_table_of_sessions_fits_80_columns(
    recorded: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["gateway", "sessions", recorded])
    lines = capsys.readouterr().out.splitlines()
    given(lines)
    assert max(len(line) for line in lines) <= 80


@until_step(8, "a write to the cache is priced like fresh input")
@pytest.mark.parametrize(("lifetime", "bill"), [("5m", "13.50"), ("1h", "21.00")])
def test_replay_prints_what_was_billed(
    lifetime: str, bill: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries: list[Message] = []
    for number, (fresh, read, written) in enumerate([(100, 0, 1_000_000), (10, 1_000_000, 100)]):
        created = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
        created[f"ephemeral_{lifetime}_input_tokens"] = written
        usage = {"input_tokens": fresh, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        said = {"role": "user", "content": f"question {number}"}
        reply: Message = {"id": f"m{number}", "type": "message", "role": "assistant", "model": "claude-fable-5-1"}
        reply |= {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}
        reply |= {"usage": {**usage, "cache_creation": created, "output_tokens": 10}}
        entries += [{"type": "user", "message": said}, {"type": "assistant", "message": reply}]
    file = tmp_path / "session.jsonl"
    ids = [{"sessionId": "s", "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None} for n in range(len(entries))]
    at = {"timestamp": "2026-11-18T10:00:00.000Z"}
    file.write_text("\n".join(json.dumps({**id_, **at, **entry}) for id_, entry in zip(ids, entries, strict=True)))
    assert main(["replay", str(file), "--price", "10,1,50", "-b", "4k", "--strategies", "unmanaged"]) == 0
    assert bill in capsys.readouterr().out
