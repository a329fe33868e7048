"""Stdio: only protocol messages on standard output, a clean end, and no lost writes after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

import quire
from quire.cli import main
from tests.mcp_server.clients import Line, command, over_stdio, read, run, running, text_of
from tests.mcp_server.conftest import NAME, URI, fill

HALF = "x" * 200_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    fill(quire.open(path, NAME)).close()
    return path


def test_the_official_client_works_with_a_store_that_the_command_makes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "agent.db"
    path.parent.mkdir()

    async def work() -> None:
        async with over_stdio(path, "--create", "--actor", "desktop") as client:
            assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["find", "read_page"]
            written = await client.call_tool("write_page", {"name": "座位", "text": "靠窗的座位"})
            assert text_of(written) == "Wrote mem-1."
            assert "mem-1" in text_of(await client.call_tool("find", {"query": "座位"}))
            assert await read(client, "quire://default/mem-1") == "靠窗的座位"
            assert (await client.call_tool("read_page", {"page": "mem-9"})).is_error

    run(work)
    with quire.open(path, create=False) as ctx:
        assert ctx.pages.detail("mem-1") == "靠窗的座位"
        assert [entry.actor for entry in ctx.history()][-1] == "desktop"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["two.db", "--create"], "'a', 'b'. Choose one with --context NAME"),
        (["two.db"], "'a', 'b'. Choose one with --context NAME"),
        (["two.db", "-c", "第三"], "--create creates it"),
        (["new.db", "--http"], "Add --create to create it"),
        (["two.db", "-c", "a", "--port", "1", "--allow-host", "x"], "--port, --allow-host: no effect over stdio"),
        (["two.db", "-c", "a", "--token-file", "t"], "add --http"),
        (["two.db", "-c", "a", "-b", "0"], "--budget is 0"),
    ],
)
def test_missing_things_are_named(
    said: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        quire.open("two.db", name).close()
    assert main(["mcp", *said]) != 0
    assert told in capsys.readouterr().err
    assert not Path("new.db").exists()


def test_only_the_protocol_is_printed_and_ctrl_c_ends_it_quietly(store: Path) -> None:
    with running(store) as process:
        line = Line(process)
        for version in ("2025-06-18", "2025-11-25", "2024-11-05"):
            assert line.initialize(version)["protocolVersion"] == version
        line.send("this is no JSON")
        line.send('{"jsonrpc":"2.0"}')
        line.send("[]")
        assert line.ask("ping") == {}
        assert line.ask("no/such/method")["code"] == -32601
        assert line.call("find", {"query": "座位"})["isError"] is False
        assert line.ask("resources/read", uri=f"{URI}mem-1")["contents"][0]["uri"] == f"{URI}mem-1"
        long = "长" * 300_000
        assert line.call("write_page", {"name": "long", "text": long})["content"][0]["text"] == "Wrote mem-2."
        assert line.ask("resources/read", uri=f"{URI}mem-2")["contents"][0]["text"] == long
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=30)
        assert process.returncode == 0
        assert said in (
            "",
            '{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}\n',
        )  # an answer of write_page
        assert "Traceback" not in complaint


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'])
def test_a_closed_input_ends_it(store: Path, first: str) -> None:
    ended = subprocess.run(command(store), input=first, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout in ("", '{"jsonrpc":"2.0","id":1,"result":{}}\n')


@pytest.mark.slow
def test_a_client_that_reads_no_more_ends_it(store: Path) -> None:
    with running(store) as process:
        Line(process).initialize()
        assert process.stdout is not None
        process.stdout.close()
        line = Line(process)
        for _ in range(3):
            line.tell("notifications/cancelled", requestId=99)
        line.send('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_output_of_apps_does_not_reach_the_client(tmp_path: Path) -> None:
    program = """
import sys, quire
from quire.mcp_server import serve_stdio
ctx = quire.open(sys.argv[1])
find = ctx.agent.__class__.find
def loud(self, *args, **named):
    print("loud and clear", flush=True)
    assert sys.stdin.read() == ""
    return find(self, *args, **named)
ctx.agent.__class__.find = loud
serve_stdio(ctx)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "agent.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = Line(process)
    line.initialize()
    assert line.call("find", {"query": "x"})["isError"] is False
    said, complaint = process.communicate(timeout=30)
    assert (process.returncode, said, complaint) == (0, "", "loud and clear\n")


def test_a_store_that_cannot_be_opened_is_reported_on_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database at all" * 100)
    for where, complaint in (
        (tmp_path / "none.db", "There is no store"),
        (damaged, "is damaged or no SQLite file"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", "127.0.0.1"),
    ):
        assert main(["mcp", str(where)]) == 1
        said, complained = capfd.readouterr()
        assert said == ""
        assert complained.startswith("quire: ")
        assert complaint in complained
        assert "secret" not in complained


def test_a_server_that_is_killed_in_the_middle_of_a_call_loses_nothing(
    store: Path, pytestconfig: pytest.Config
) -> None:
    seed = int(os.environ.get("SEED", "11"))
    random = Random(seed)
    sys.stdout.write(f"SEED={seed}\n")  # printed on failure; set it to repeat the run
    acknowledged: dict[str, str] = {}
    lives = 12 if pytestconfig.getoption("--long") else 1
    for life in range(lives):
        with running(store) as process:
            line = Line(process)
            line.initialize()
            for number in range(random.randrange(3, 20)):
                text = f"life {life} note {number} " + "词" * random.choice((1, 500, 20_000))
                answer = line.call("write_page", {"name": "note", "text": text})["content"][0]["text"]
                acknowledged[answer.removeprefix("Wrote ").removesuffix(".")] = text
            if lives > 1 and life == lives - 1:  # the last process runs to the end
                assert process.communicate(timeout=30) == ("", "")
                assert process.returncode == 0
            else:
                half = {"name": "write_page", "arguments": {"name": "half", "text": HALF}}
                line.send(json.dumps({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": half}))
                time.sleep(random.uniform(0, 0.02))
                process.kill()
        with quire.open(store, NAME) as ctx:
            assert ctx.check() == []
            found = {page.index: page for page in ctx.pages.children("mem-0")}
            assert acknowledged.keys() <= found.keys()
            for index, text in acknowledged.items():
                assert ctx.pages.detail(index) == text
            assert all(ctx.pages.detail(index) == HALF for index, page in found.items() if page.name == "half")


@pytest.mark.slow
def test_thousands_of_calls_leave_memory_flat(store: Path) -> None:
    with running(store) as process:
        line = Line(process)
        line.initialize()

        def work(times: int) -> int:
            for number in range(times):
                for name, arguments in (
                    ("find", {"query": "座位"}),
                    ("read_page", {"page": "mem-1"}),
                    ("budget", {}),
                    ("write_page", {"page": "mem-1", "text": f"She wants seat {number}."}),
                    ("read_page", {"page": "mem-999"}),
                ):
                    assert "content" in line.call(name, arguments)
                assert "contents" in line.ask("resources/read", uri=f"{URI}view")
            return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        first = work(200)
        assert work(200) - first < 3_000_000
        assert work(200) - first < 4_000_000
