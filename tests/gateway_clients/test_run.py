"""`quire gateway run`: a client with a gateway in a process of its own, which survives kill -9."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from quire.cli import main
from quire.errors import StorageFailure
from quire.gateway.supervisor import Supervisor
from tests.strict_provider import Reply, StrictProvider

CLIENT = """
import json, os, sys, urllib.request
body = {"model": "claude-fable-5-1", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
headers = {"content-type": "application/json", "x-quire-session": "mine"}
answer = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
print(json.loads(answer)["content"][0]["text"], *sys.argv[1:])
sys.exit(7)
"""


def test_a_client_gets_the_address_and_its_exit_code_is_returned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with StrictProvider(script=lambda _: Reply("Good morning")) as upstream:
        code = main(
            [
                *(
                    "gateway",
                    "run",
                    str(tmp_path / "agent.db"),
                    "--anthropic",
                    upstream.url,
                    "--env",
                    "ANTHROPIC_BASE_URL",
                ),
                *("--", sys.executable, "-c", CLIENT, "--json", "and more"),
            ]
        )
    assert (code, capfd.readouterr().out) == (7, "Good morning --json and more\n")
    assert [body["messages"][0]["content"] for body in upstream.requests] == ["Hello"]


def test_a_gateway_that_is_killed_is_started_again_at_the_same_address(tmp_path: Path) -> None:
    settings = {"anthropic": "http://127.0.0.1:9", "port": 0}
    with Supervisor(str(tmp_path / "agent.db"), settings, tmp_path / "log") as gateway:
        first = gateway.pid
        for _ in range(2):
            os.kill(gateway.pid, signal.SIGKILL)
            time.sleep(0.05)
            with urllib.request.urlopen(f"{gateway.url}/quire/health", timeout=60) as response:  # it is not refused
                assert response.status == 200
        assert (gateway.starts, gateway.pid != first) == (3, True)
    with pytest.raises(ProcessLookupError):
        os.kill(gateway.pid, 0)


def test_a_gateway_that_is_started_again_while_it_is_stopped_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'import sys; print(\'{"url": "", "port": 1}\', flush=True); sys.stdin.read()'
    begins, popen = Event(), subprocess.Popen
    made: list[subprocess.Popen[bytes]] = []

    def start(_: Any, **options: Any) -> "subprocess.Popen[bytes]":
        if made:
            begins.set()
            assert gateway._stopping.wait(30)
            time.sleep(0.2)  # now stop() has found the old process
        made.append(popen([sys.executable, "-c", script], **options))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    gateway = Supervisor("memory:", {"port": 0}, tmp_path / "log")
    os.kill(gateway.pid, signal.SIGKILL)
    assert begins.wait(30)
    gateway.stop()
    codes = [process.poll() for process in made]
    for process in made:
        process.kill()
    assert codes == [-signal.SIGKILL, 0]


def test_a_gateway_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="gopher"):
        Supervisor(str(tmp_path / "agent.db"), {"anthropic": "gopher:x", "port": 0}, tmp_path / "log")
