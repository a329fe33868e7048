"""The command serve: the printed link works, and Ctrl-C ends it without an error."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire.cli.commands import demo
from tests.cli.conftest import NAME, Run

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@contextmanager
def serving(*words: object, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a command that serves in a process, and stop it with Ctrl-C; it must end without an error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "quire", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
        assert (process.returncode, complaint) == (0, "")
    finally:
        process.kill()
        process.communicate()


def status_of(address: str, path: str, token: str | None = None) -> int:
    """Return the HTTP status of a request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, headers=headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_serve_prints_a_link_with_a_token_that_works(store: Path) -> None:
    with serving("serve", store, "--port", 0, "--context", NAME, "--json") as process:
        assert process.stdout is not None
        printed = json.loads(process.stdout.readline())
        assert printed["url"].startswith(f"{printed['address']}#token={printed['token']}&context=%E6%94%AF")
        assert status_of(printed["address"], "api/contexts", printed["token"]) == 200
        assert status_of(printed["address"], "api/contexts") == 401


def test_serve_refuses_a_context_that_does_not_exist(store: Path, run: Run) -> None:
    refused = run("serve", store, "--port", 0, "--context", "nope", "--json")
    assert (refused.code, json.loads(refused.err)["error"]["code"]) == (2, "no_such_context")


def test_a_given_token_is_not_printed(store: Path) -> None:
    token = "given-" + "x" * 30
    with serving("serve", store, "--port", 0, QUIRE_TOKEN=token) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert token not in line
        address = line.split()[-1]
        assert status_of(address, "api/contexts", token) == 200
        assert process.stdout.readline() == "it asks for the token: the value of QUIRE_TOKEN\n"


@pytest.mark.parametrize("words", [("serve",), ("mcp", "--http"), ("gateway", "--openai", "http://127.0.0.1:9")])
def test_an_unusable_token_is_refused_with_its_source(
    words: tuple[str, ...], store: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "mcp" in words:
        pytest.importorskip("mcp")
    file = tmp_path / "token"
    file.write_text("hush")
    file.chmod(0o600)
    command = (words[0], store, "--port", 0, *words[1:])
    refused = run(*command, "--token-file", file)
    assert (refused.code, f"--token-file is {str(file)!r}, " in refused.err) == (2, True)
    monkeypatch.setenv("QUIRE_TOKEN", "hush")
    refused = run(*command)
    assert (refused.code, refused.err.startswith("quire: QUIRE_TOKEN is unusable; 16 or more ")) == (2, True)
    assert "hush" not in refused.err


def test_a_stored_token_is_not_printed_but_its_file_is_named(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("kept-" + "x" * 30)
    file.chmod(0o600)
    with serving("serve", store, "--port", 0, "--token-file", file) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "kept-" not in line
        assert status_of(line.split()[-1], "api/contexts", file.read_text()) == 200
        assert process.stdout.readline() == f"it asks for the token: the content of {file}\n"


def test_the_demo_serves_the_inspector_with_serve(tmp_path: Path) -> None:
    with serving("demo", "--fast", "--serve", TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "the inspector is at" in line)
        address, _, fragment = line.split()[-1].partition("#")
        token = fragment.removeprefix("token=").removesuffix("&context=coding-agent")
        assert status_of(address, "api/contexts/coding-agent", token) == 200


@pytest.mark.parametrize(
    ("terminal", "installed", "words", "serves"),
    [
        (True, True, [], True),
        (True, True, ["--no-serve"], False),
        (True, True, ["--json"], False),
        (True, False, [], False),
        (False, True, [], False),
        (False, True, ["--serve"], True),
    ],
)
def test_the_demo_serves_on_a_terminal_if_it_can(
    run: Run, monkeypatch: pytest.MonkeyPatch, terminal: bool, installed: bool, words: list[str], serves: bool
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(demo, "play_demo", lambda *_, **__: (Path("x.db"), None))
    monkeypatch.setattr(demo, "_result_values", lambda path, result: {})
    monkeypatch.setattr(demo, "serve_inspector", lambda where, out, **options: calls.append(where))
    monkeypatch.setattr(demo, "can_serve", lambda: installed)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert run("demo", *words).code == 0
    assert calls == ["x.db"] * serves


def test_without_the_extra_the_error_names_the_install_command(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("starlette", "uvicorn")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("quire.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "starlette", None)
    if "quire.server" in sys.modules:
        monkeypatch.delattr("quire.server.http_server", raising=False)
    ended = run("serve", store, "--port", 0)
    assert (ended.code, ended.out) == (2, "")
    assert "pip install " in ended.err
    assert "[server]'" in ended.err
