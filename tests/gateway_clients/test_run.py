"""`quire gateway run`: a client with a gateway in a process of its own, which survives kill -9."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.cli import main
from tests.gateway_clients.records import read_record
from tests.gateway_clients.runs import gateway_command
from tests.strict_provider import Reply, StrictProvider

pytestmark = pytest.mark.clients
CLIENT = """
import json, os, pathlib, signal, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
headers = {"content-type": "application/json", "x-quire-session": "mine"}
messages = []
for text in ("Hello", "And now?"):
    messages.append({"role": "user", "content": text})
    body = {"model": "claude-fable-5-1", "max_tokens": 9, "messages": messages, "tools": []}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        messages.append({"role": "assistant", "content": json.loads(answer.read())["content"]})
    parts = pathlib.Path("/proc", str(os.getppid()), "task").glob("*/children")
    for child in {int(word) for part in parts for word in part.read_text().split()} - {os.getpid()}:
        os.kill(child, signal.SIGKILL)  # the gateway
print(messages[-1]["content"][0]["text"], *sys.argv[1:])
sys.exit(7)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_client_keeps_its_gateway_after_kill_9_and_its_exit_code_is_returned(tmp_path: Path) -> None:
    store, words = tmp_path / "agent.db", [sys.executable, "-c", CLIENT, "--json", "and more"]
    with StrictProvider(script=lambda _: Reply("Good morning")) as upstream:
        run = gateway_command(store, upstream.url, words, "--env", "ANTHROPIC_BASE_URL")
        done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (7, "Good morning --json and more\n"), done.stderr
    assert [len(body["messages"]) for body in upstream.requests] == [1, 3]
    (record,) = read_record(store).values()
    assert [message.text for message in record.messages][:3] == ["Hello", "Good morning", "And now?"]


@pytest.mark.parametrize(
    "words",
    [
        ["--anthropic", "gopher:x", "--", "claude"],
        ["--", "no-such-agent"],
        ["--mcp", "--env", "BASE_URL", "--", "no-such-agent"],
        ["--mcp", "--", "aider"],
    ],
)
def test_what_cannot_be_started_is_refused(words: list[str], tmp_path: Path) -> None:
    assert main(["gateway", "run", str(tmp_path / "agent.db"), *words]) != 0
