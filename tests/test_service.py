"""The example service with real processes: workers are killed at random; nothing is lost, nothing is doubled."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import quire
from tests.servers.postgres import postgres_url
from tests.strict_provider.replies import Body, Call, Reply
from tests.strict_provider.requests import State
from tests.strict_provider.server import StrictProvider

pytest.importorskip("openai")
from service import load

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

    def __init__(self, store: str, provider: StrictProvider, folder: Path) -> None:
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]),
            "SERVICE_STORE": store,
            "SERVICE_BUDGET": str(BUDGET),
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_API_KEY": "none",
        }
        self._log = (folder / "workers.log").open("ab")
        self._ports = [_free_port() for _ in range(WORKERS)]
        self._running = [self._start(port) for port in self._ports]
        self.kills = 0
        for port in self._ports:
            _wait_for(lambda port=port: _is_ready(port))

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def kill(self, number: int) -> None:
        """Kill a worker at once and start another in its place."""
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._start(self._ports[number])
        self.kills += 1

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


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "service.db") if request.param == "sqlite" else postgres_url()


def test_killed_workers_lose_and_double_nothing(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    long = bool(request.config.getoption("--long", default=False))
    seconds, turns = (300.0, 10_000) if long else (6.0, 10_000)
    seed = int(os.environ.get("QUIRE_SEED", random.randrange(10**6)))
    print(f"QUIRE_SEED={seed}")  # noqa: T201 - shown when it fails
    chance = random.Random(seed)
    with StrictProvider(State(limit=BUDGET + 100), answer) as provider:
        workers = Workers(store, provider, tmp_path)
        ended = threading.Event()

        def disturb() -> None:
            while not ended.wait(chance.uniform(1.0, 3.0)):
                workers.kill(chance.randrange(WORKERS))

        killer = threading.Thread(target=disturb)
        killer.start()
        try:
            until = time.monotonic() + seconds
            done = asyncio.run(load.run(workers.urls, USERS, IN_FLIGHT, turns, until=until, seed=seed))
        finally:
            ended.set()
            killer.join()
        text = httpx.get(f"{workers.urls[0]}/metrics").text
        memory = workers.memory()
        workers.stop()
        assert provider.refused == []
    assert done.failures == []
    assert workers.kills
    assert "quire_turns_total" in text
    assert max(memory) < 400_000_000
    with quire.Library(store) as library:
        answered = {user: Counter(ids) for user, ids in done.answered.items()}
        assert sum(counter.total() for counter in answered.values()) > 20
        for user, ids in answered.items():
            ctx = library.open(user)
            messages = ctx.messages()
            questions = Counter(message.text.split()[1].rstrip(":") for message in messages if message.role == "user")
            assert questions == ids, user  # all are there, each once
            ends = [message for message in messages if message.role == "assistant" and not message.tool_calls]
            assert len(ends) == len(ids)
            results = Counter(message.tool_call_id for message in messages if message.role == "tool")
            assert set(results.values()) <= {1}
            assert ctx.check() == []
            ctx.close()


def test_a_repeated_request_gets_the_same_answer_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    store = str(tmp_path / "service.db")
    with StrictProvider(State(), answer) as provider:
        workers = Workers(store, provider, tmp_path)
        url = f"{workers.urls[0]}/chat/ada"
        body = {"id": "r1", "text": "What is the status of order W0001?"}
        first, second = httpx.post(url, json=body, timeout=30), httpx.post(url, json=body, timeout=30)
        assert "Order W0001 left the warehouse" in first.text
        assert "Order W0001 left the warehouse" in second.text
        assert first.text.endswith("event: done\ndata: {}\n\n")
        for wrong in ({"id": "r2"}, {"id": 7, "text": "x"}, {"id": "r2", "text": ""}, [1]):
            assert httpx.post(url, json=wrong).status_code == 400
        workers.stop()
    with quire.open(store, "ada", create=False) as ctx:
        assert [message.role for message in ctx.messages()] == ["system", "user", "assistant", "tool", "assistant"]
