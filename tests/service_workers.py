"""The example service as worker processes with a scripted model, and what its store must contain after a load."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import httpx

import quire
from tests.strict_provider.replies import Body, Call, Reply
from tests.strict_provider.server import StrictProvider

WORKERS, USERS, IN_FLIGHT, BUDGET = 4, 200, 12, 1_500
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def answer(body: Body) -> Reply:
    """Call the tool for a question, then answer with its result; write a summary if it is asked for one."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return Reply(f"The shop says: {last['content']}")
    text = str(last["content"])
    if text.startswith("Summarise"):
        return Reply("A summary by the model.")
    order = text.rpartition(" ")[2].rstrip("?")
    return Reply(calls=(Call(f"call-{random.getrandbits(64):x}", "order_status", {"order_id": order}),))


class Workers:
    """The worker processes of the service, each on its own port."""

    def __init__(self, store: str, provider: StrictProvider, folder: Path, count: int = WORKERS) -> None:
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]),
            "SERVICE_STORE": store,
            "SERVICE_BUDGET": str(BUDGET),
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_API_KEY": "none",
        }
        self._log = (folder / "workers.log").open("ab")
        self._ports = [_free_port() for _ in range(count)]
        self._running = [self._start(port) for port in self._ports]
        self.kills = 0
        self.wait()

    def wait(self) -> None:
        """Wait until all workers answer."""
        for port in self._ports:
            _wait_for(partial(_is_ready, port))

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def kill(self, number: int) -> None:
        """Kill a worker at once, start another in its place, and wait until it answers."""
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._start(self._ports[number])
        self.kills += 1
        _wait_for(partial(_is_ready, self._ports[number]))

    def stop(self) -> None:
        """End all workers as an operator does. They finish their requests."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            assert process.wait(timeout=60) in (0, -signal.SIGTERM)
        self._log.close()

    def memory(self) -> list[int]:
        """Return the resident memory of each worker in bytes."""
        pages = [int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) for process in self._running]
        return [count * os.sysconf("SC_PAGE_SIZE") for count in pages]

    def _start(self, port: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "uvicorn", "service.app:app", "--port", str(port), "--no-access-log"]
        return subprocess.Popen(command, env=self._env, stdout=self._log, stderr=self._log)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.HTTPError:
        return False


def _wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "a worker does not start"
        time.sleep(0.05)


def count_losses(store: str, answered: Mapping[str, Sequence[str]]) -> tuple[int, int]:
    """Return how many answered requests are incomplete in the store, and how many messages are there twice."""
    lost = doubled = 0
    with quire.Library(store) as library:
        for user, ids in answered.items():
            with library.open(user) as ctx:
                messages = ctx.messages()
                asked = Counter(one.text.split()[1].rstrip(":") for one in messages if one.role == "user")
                results = Counter(one.tool_call_id for one in messages if one.role == "tool")
                answers = sum(one.role == "assistant" and not one.tool_calls for one in messages)
                lost += len(set(ids) - set(asked)) + max(0, len(ids) - answers) + len(ctx.check())
                doubled += asked.total() - len(asked) + results.total() - len(results) + max(0, answers - len(ids))
    return lost, doubled
