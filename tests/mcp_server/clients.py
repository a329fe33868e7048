"""Start the server as a process, and connect the official client to it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

T = TypeVar("T")
PATIENCE = 30.0


def command(*words: object) -> list[str]:
    """Return the command line of a server."""
    return [sys.executable, "-m", "quire", "mcp", *map(str, words)]


@contextmanager
def running(*words: object, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a server process with pipes to it; kill it at the end if it still runs."""
    process = subprocess.Popen(
        command(*words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def served(path: Path, *words: object, **environment: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """Start a server over HTTP; return what it printed when it was ready."""
    with running(path, "--http", "--port", 0, "--json", *words, **environment) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())


@contextmanager
def address_of(path: Path, *words: object) -> Iterator[str]:
    """Serve a store over HTTP and yield the URL; at the end Ctrl-C stops the server without a word."""
    with served(path, *words) as (process, told):
        yield told["url"]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0


@asynccontextmanager
async def over_stdio(*words: object, mode: str = "auto") -> AsyncIterator[Client]:
    """Start a server with the official client."""
    first, *rest = command(*words)
    parameters = StdioServerParameters(command=first, args=rest, env=dict(os.environ))
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


def text_of(result: Any) -> str:
    """Return the text of a tool's result, which has nothing else."""
    assert result.structured_content is None
    (content,) = result.content
    assert content.type == "text"
    return str(content.text)


async def read(client: Client, uri: str) -> str:
    """Return the current text of a resource."""
    (content,) = (await client.read_resource(uri, cache_mode="bypass")).contents
    assert content.mime_type == "text/plain"
    return str(content.text)  # type: ignore[union-attr]


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function with a timeout."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * PATIENCE):
            return await work()

    return asyncio.run(bounded())


class Line:
    """A minimal client of the protocol, one line per message."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._number = 0

    def send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def tell(self, method: str, **params: Any) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}, ensure_ascii=False))

    def ask(self, method: str, **params: Any) -> Any:
        """Return the response to a request; ignore notifications before it."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.send(json.dumps(request, ensure_ascii=False))
        while (answer := self.receive()).get("id") != self._number:
            assert "method" in answer
        return answer.get("result", answer.get("error"))

    def initialize(self, version: str = "2025-06-18") -> Any:
        greeting = self.ask(
            "initialize",
            protocolVersion=version,
            capabilities={},
            clientInfo={"name": "by hand", "version": "1"},
        )
        self.tell("notifications/initialized")
        return greeting

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        return self.ask("tools/call", name=name, arguments=arguments)
