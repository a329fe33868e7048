"""Sessions of several turns with a real client, each in the way that costs least: some clients start slowly."""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.gateway_clients.runs import AGAIN, MODELS, Client

Say = Callable[[str], str]
"""Takes a prompt, and returns what the client said in this turn."""


def open_dialogue(client: Client, address: str) -> AbstractContextManager[Say]:
    """Start a session with a client that sends its requests to `address`."""
    ways = {"opencode": _serve, "qwen": _pipe}
    return ways.get(client.name, _restart)(client, address)


@contextmanager
def _restart(client: Client, address: str) -> Iterator[Say]:
    """Start Claude Code and Codex anew for each turn: they continue their stored session."""
    said: list[str] = []

    def say(prompt: str) -> str:
        again = AGAIN[client.name] if said else ()
        said.append(client.ask(address, prompt, *again))
        return said[-1]

    yield say


@contextmanager
def _serve(client: Client, address: str) -> Iterator[Say]:
    """Start OpenCode's server, and talk to it as its terminal does."""
    with _start(client, address, [client.program, "serve", "--port", "0"]) as process:
        url = next(line for line in process.stdout if "listening on" in line).split()[-1]
        session = _post(f"{url}/session", {})["id"]
        provider, _, model = MODELS["opencode"].partition("/")

        def say(prompt: str) -> str:
            parts = [{"type": "text", "text": prompt}]
            chosen = {"providerID": provider, "modelID": model}
            return json.dumps(_post(f"{url}/session/{session}/message", {"model": chosen, "parts": parts}))

        yield say


@contextmanager
def _pipe(client: Client, address: str) -> Iterator[Say]:
    """Give Qwen Code one prompt after the other as lines of JSON."""
    command = [*client.command("", address=address)[:-2], "--input-format", "stream-json"]
    with _start(client, address, [*command, "--output-format", "stream-json"]) as process:

        def say(prompt: str) -> str:
            message = {"type": "user", "message": {"role": "user", "content": prompt}, "parent_tool_use_id": None}
            process.stdin.write(json.dumps({**message, "session_id": ""}) + "\n")
            process.stdin.flush()
            return str(next(line for line in process.stdout if '"type":"result"' in line))

        yield say


@contextmanager
def _start(client: Client, address: str, command: list[str]) -> Iterator[Any]:
    """Yield a process with text pipes, and end it."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    surroundings = {**client.surroundings(address), **pipes}
    with subprocess.Popen(command, text=True, **surroundings) as process:
        try:
            yield process
        finally:
            process.kill()


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=240) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer
