"""A real client whose gateway is killed with -9 while it works, in front of a slow upstream. Nothing is doubled.

`--long` kills it twenty times. A run prints its seed; `CHAOS_SEED=n` repeats it.
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quire
from quire.gateway.supervisor import Supervisor
from tests.gateway_clients.records import calls_in, results_in
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import Body, Reply, StrictProvider

pytestmark = pytest.mark.node
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
STEPS_PER_KILL = 6


def test_claude_code_finishes_while_its_gateway_is_killed(
    upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sys.stdout.write(f"CHAOS_SEED={SEED}\n")
    rng, plain = random.Random(SEED), ToolScript()
    kills = 20 if request.config.getoption("--long") else 1
    steps = STEPS_PER_KILL * kills
    asked = threading.Semaphore(0)

    def script(body: Body) -> Reply:
        asked.release()
        time.sleep(0.3 * rng.random())  # a slow upstream, so that most kills hit a request that waits
        return plain(body)

    upstream.script = script
    running = client("claude")
    running.write_facts("alpha", steps)
    store = tmp_path / "agent.db"
    settings = {"anthropic": upstream.url, "openai": upstream.url, "mode": "fold", "budget": 60_000, "port": 0}
    done = threading.Event()

    def disturb(gateway: Supervisor) -> None:
        for _ in range(kills):
            for _ in range(STEPS_PER_KILL - 2):
                asked.acquire(timeout=60)
            time.sleep(0.3 * rng.random())
            if not done.is_set():
                os.kill(gateway.pid, signal.SIGKILL)

    with Supervisor(str(store), settings, tmp_path / "log") as gateway:
        thread = threading.Thread(target=disturb, args=(gateway,))
        thread.start()
        answer = running.ask(gateway.url, f"Do task alpha in {steps} steps", seconds=60 + 30 * kills)
        done.set()
        thread.join()
        starts = gateway.starts
    assert f"done after {steps} steps" in answer
    assert upstream.refused == []
    assert starts == kills + 1
    calls = [f"call_alpha_{n}_of_{steps}" for n in range(steps)]
    with quire.Library(store) as library:
        (name,) = library.list(prefix="gateway/")
        with library.open(name) as context:
            messages = list(context.messages())
            assert context.check() == []
    assert calls_in(messages) == results_in(messages) == calls
