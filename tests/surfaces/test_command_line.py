"""The command line from outside: every command and option, its exit code, its JSON, and what a terminal shows."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any
from unicodedata import combining, east_asian_width

import pytest

import quire
from tests.cli.conftest import Result, run_here, write_store
from tests.cli.sessions import CLAUDE_CODE, write_lines
from tests.surfaces.command_line_table import CHANGING, NAME, NO_STORE, READING, REFUSED, SERVING, Works
from tests.surfaces.comparing import assert_has

ALL = (*READING, *CHANGING, *SERVING)
REFUSALS = [(call.strip(), code) for code, calls in REFUSED.items() for call in calls.strip().splitlines()]
TIERED = [
    pytest.param(call, code, marks=pytest.mark.clients if call.startswith("mcp ") else ()) for call, code in REFUSALS
]
"""The command `mcp` needs its package."""
OTHERS = {"json", "help", "context"}
"""Options that all commands share."""
CREATING = {"new", "import", "replay"}
"""Commands with a context that need not exist, or with none."""
CLIENT = """
import json, os, urllib.request
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
body = {"model": "m", "tools": [tool], "messages": [{"role": "user", "content": "Which key is it?"}]}
headers = {"content-type": "application/json", "x-session-id": "s1"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""


Run = Callable[[str], Result]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a store with one context: notes in a folder, a cold note, a checkpoint, a conversation with a call."""
    return write_store(tmp_path_factory.mktemp("written") / "agent.db")


@pytest.fixture(scope="module")
def untouched(written: Path) -> tuple[object, ...]:
    """Return the state of the store before a call."""
    return state(written)


@pytest.fixture
def store(tmp_path: Path, written: Path) -> Path:
    """Return a copy of the store."""
    return Path(copyfile(written, tmp_path / "agent.db"))


@pytest.fixture
def words(store: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function that splits a call of the table and puts real names in."""
    folder = store.parent / "made"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))  # the demo writes there
    monkeypatch.chdir(store.parent)
    session = write_lines(store.parent / "session.jsonl", CLAUDE_CODE)

    def split(call: str) -> list[str]:
        names: dict[str, object] = {
            "STORE": store,
            "SESSION": session,
            "PYTHON": sys.executable,
            "DIR": folder,
            "CLIENT": "client.py",
        }
        if "LAST" in call:
            names["LAST"] = state(store)[0]
        found = re.compile(rf"\b({'|'.join(names)})\b")
        return [found.sub(lambda match: str(names[match[1]]), word) for word in shlex.split(call)]

    (store.parent / "client.py").write_text(CLIENT)
    return split


@pytest.fixture
def run(words: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a call of the table in this process."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run(call: str) -> Result:
        return run_here(words(call), capsys)

    return run


def rows(table: Sequence[Works]) -> list[Any]:
    """Return the rows as parameters, each with its call as its name."""
    return [pytest.param(row, id=row.call, marks=[pytest.mark.slow] * row.slow) for row in table]


def as_json(call: str) -> str:
    """Ask a command for JSON."""
    own, dashes, client = call.partition(" -- ")
    return f"{own} --json{dashes}{client}"


def state(store: Path) -> tuple[object, ...]:
    """Return the number of the newest entry, and everything that the store has."""
    with quire.Library(store) as library:
        contexts = [(name, library.open(name)) for name in library.list()]
        last = max((context.seq for _, context in contexts), default=0)
        return last, [(name, context.seq, context.pages.marshal()) for name, context in contexts]


def assert_prints(ended: Result, expected: Any) -> None:
    """Check that a command succeeded, and that its JSON has what is expected."""
    assert (ended.code, ended.err) == (0, "")
    if expected is not None and expected != ():
        (value,) = [ended.values()] if isinstance(expected, list) else ended.values()
        assert_has(value, expected)


# The table


@pytest.mark.parametrize("row", rows(READING))
def test_a_reading_call_prints_its_value_and_changes_nothing(
    run: Run, store: Path, untouched: tuple[object, ...], row: Works
) -> None:
    assert_prints(run(as_json(row.call)), row.value)
    assert state(store) == untouched


@pytest.mark.parametrize("row", rows(CHANGING))
def test_a_changing_call_prints_its_value_and_has_its_effect(run: Run, row: Works) -> None:
    if row.first:
        assert run(row.first).code == 0
    assert_prints(run(as_json(row.call)), row.value)
    if row.then:
        assert_prints(run(as_json(row.then)), row.shows)


@pytest.mark.parametrize(("call", "code"), TIERED, ids=[f"{call[:60]}" for call, _ in REFUSALS])
def test_a_refused_call_gives_its_code_and_changes_nothing(
    run: Run, store: Path, untouched: tuple[object, ...], call: str, code: str
) -> None:
    ended = run(as_json(call))
    assert (ended.code, ended.out) == (2, "")
    error = json.loads(ended.err)["error"]
    assert error["code"] == code
    assert 0 < len(error["message"]) < 600
    assert state(store) == untouched
    assert list((store.parent / "made").iterdir()) == []


@pytest.mark.parametrize("call", [call for call, _ in REFUSALS[::7]], ids=lambda call: call[:60])
def test_a_refused_call_is_told_to_a_person_too(run: Run, call: str) -> None:
    ended = run(call)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.strip()
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", NO_STORE)
def test_a_missing_store_is_an_error_and_is_not_created(run: Run, store: Path, command: str) -> None:
    missing = store.parent / "missing.db"
    ended = run(as_json(f"{command} {missing}"))
    assert (ended.code, ended.out) == (1, "")
    assert json.loads(ended.err)["error"]["code"] == "storage_failure"
    assert not missing.exists()


def test_an_option_without_its_package_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    ended = run("gateway run STORE --mcp -- claude")
    assert (ended.code, ended.out) == (2, "")
    assert "pip install" in ended.err


def test_a_mistyped_first_call_creates_no_store(run: Run, store: Path) -> None:
    assert run("new DIR/a.db --budget 0").code == 2
    assert list((store.parent / "made").iterdir()) == []


@pytest.mark.parametrize("row", rows([row for row in READING if row.value]))
def test_a_person_reads_text_without_colours_in_a_pipe(run: Run, row: Works) -> None:
    ended = run(row.call)
    assert ended.code == 0
    assert ended.out.strip()
    assert "\x1b" not in ended.out


# Completeness


def commands_in_help(run: Run) -> list[str]:
    """Return the commands that the help lists."""
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", run("--help").out, re.MULTILINE)


def options_in_help(run: Run, name: str) -> list[str]:
    """Return the options that the help of a command lists."""
    return re.findall(r"^ +(?:-\w[^,]*, )?--([a-z-]+)", run(f"{name} --help").out, re.MULTILINE)


def command_of(call: str, commands: list[str]) -> str:
    """Return the longest command that a call begins with."""
    return max((name for name in commands if f"{call} ".startswith(f"{name} ")), key=len, default="")


def test_every_command_and_every_option_is_in_the_table(run: Run) -> None:
    commands = commands_in_help(run)
    used: dict[str, set[str]] = {"": set()}
    for call in [*(call for row in ALL for call in (row.call, row.then)), *(call for call, _ in REFUSALS)]:
        used.setdefault(command_of(call, commands), set()).update(re.findall(r"(?<= --)[a-z-]+", call))
    assert set(commands) <= used.keys()
    for name in commands:
        listed = options_in_help(run, name)
        assert {"json", "help"} <= {*listed}
        assert set(listed) - OTHERS - used[name] == set(), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_can_be_completed(run: Run, shell: str) -> None:
    script = run(f"completion {shell}").out
    assert [name for name in commands_in_help(run) if " " not in name and name not in script] == []


def test_every_command_refuses_a_context_that_does_not_exist(run: Run, store: Path) -> None:
    before, commands = state(store), commands_in_help(run)
    rows = {command_of(row.call, commands): row.call for row in (*READING, *CHANGING) if not row.slow}
    for name, call in rows.items():
        if name not in CREATING and "--context" in run(f"{name} --help").out:
            ended = run(f"{as_json(call)} --context nobody")
            assert (name, ended.code, ended.out) == (name, 2, "")
            assert json.loads(ended.err)["error"]["code"] == "no_such_context"
    assert state(store) == before


def test_every_command_and_option_is_on_the_page_about_them(run: Run) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^### quire ([^\n]+)\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE))
    assert parts.keys() == set(commands_in_help(run))
    for name, part in parts.items():
        assert set(options_in_help(run, name)) - OTHERS - {*re.findall(r"--([a-z-]+)", part)} == set()
        assert "JSON: " in part


# What a terminal shows and sends


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert quire.__version__ in run("--version").out
    assert run("").code == 2


def test_text_comes_from_standard_input_if_it_is_utf_8(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for sent, code in (("座位".encode(), 0), (b"\xff\xfe", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent), encoding="utf-8"))
        assert run("write STORE note -").code == code
    assert run("show STORE mem-4 --body").out.strip() == "座位"


def columns(line: str) -> int:
    """Return the columns that a line takes."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in line)


@pytest.mark.parametrize(
    "call", ["tree STORE", "ls STORE -l", "history STORE", "find STORE 座位", "stats STORE", "view STORE"]
)
def test_lines_fit_a_terminal_of_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(call)
    assert ended.code == 0
    assert max(map(columns, ended.out.splitlines())) <= 80


@pytest.mark.parametrize(("environment", "coloured"), [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_follow_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in run("tree STORE").out) is coloured


def test_control_characters_of_a_page_do_not_reach_a_terminal(run: Run, store: Path) -> None:
    with quire.open(store, NAME) as context:
        context.user("\x1b[2Jgone\x07")
    assert "\x1b" not in run("tree STORE").out
    assert "\x1b" not in run("find STORE gone").out


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("ls postgresql://me:hush@127.0.0.1:1/x", "127.0.0.1"),
        ("ls postgres://me:hush@h:nine/x", "postgres"),
        ("postgresql://me:hush@h/x", "postgresql://me@h/x"),
        ("s3://box/x?secret_access_key=hush", "s3://"),
        ("s3://box/x", "s3://box/x"),
    ],
)
def test_an_address_is_printed_without_its_password(run: Run, call: str, shown: str) -> None:
    ended = run(call)
    assert ended.code in (1, 2)
    assert shown in ended.err
    assert "hush" not in ended.out + ended.err


class Terminal:
    """A standard input where a person types one line."""

    def __init__(self, line: str) -> None:
        self.line = line

    def readline(self) -> str:
        """Return the line once."""
        line, self.line = self.line, ""
        return line

    def isatty(self) -> bool:
        """Return that a person types."""
        return True


@pytest.mark.parametrize(
    "call", ["purge STORE mem-2", f"erase STORE {NAME}", f"delete STORE {NAME}", "expire STORE 0d"]
)
@pytest.mark.parametrize("answer", ["yes\n", "no\n", ""])
def test_a_removal_asks_first(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, call: str, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    before = state(store)
    assert run(call).code == (0 if answer == "yes\n" else 2)
    assert (state(store) == before) is (answer != "yes\n")


# The installed program


@pytest.fixture
def start(words: Callable[[str], list[str]]) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Return a function that starts the program, and end what it started."""
    started: list[subprocess.Popen[str]] = []
    program = Path(sys.executable).with_name("quire")

    def start(call: str, **environment: str) -> "subprocess.Popen[str]":
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        process = subprocess.Popen([program, *words(call)], env={**os.environ, **environment}, **pipes)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("row", rows(SERVING))
def test_a_server_prints_its_address_and_ends_with_ctrl_c(
    start: Callable[..., "subprocess.Popen[str]"], row: Works
) -> None:
    pytest.importorskip("uvicorn")
    process = start(as_json(row.call), BROWSER="true")
    assert process.stdout is not None
    assert_has(json.loads(process.stdout.readline()), row.value)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert (process.returncode in (0, 130), complaint) == (True, "")


def test_a_terminal_without_utf_8_gets_every_text(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("tree STORE", PYTHONIOENCODING="ascii", LC_ALL="C")
    printed, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (0, "")
    assert "座位" in printed


def test_a_closed_pipe_ends_a_command_quietly(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("tree STORE")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == ""


def test_two_processes_print_the_same(start: Callable[..., "subprocess.Popen[str]"], run: Run) -> None:
    printed, _ = start("history STORE --all --json").communicate(timeout=30)
    assert printed == run("history STORE --all --json").out
