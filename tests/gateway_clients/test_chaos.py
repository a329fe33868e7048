"""Real clients finish their work while things fail: a gateway that is killed with -9, a faulty and slow upstream.

Nothing is doubled in the record. `--long` kills the gateway more often, and runs a session of Claude Code through
everything at once. A run prints its seed; `CHAOS_SEED=n` repeats it.
"""

import os
import random
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import quire
from quire.gateway.supervisor import Supervisor
from tests.gateway_clients.records import calls_in, results_in
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import AgentScript, ToolScript
from tests.strict_provider import Body, Fault, Reply, StrictProvider

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


class FaultyModel:
    """A script with two 529 in a row, cut streams and slow ones, in a share of its answers. It counts the faults."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng, self.share = rng, share
        self.model = AgentScript(("eta", "theta"))
        self.overloads = self.cuts = self.left = 0

    def __call__(self, body: Body) -> Reply | Fault:
        luck = self.rng.random() / self.share
        if self.left or luck < 1 / 3:
            self.left = 0 if self.left else 1
            self.overloads += 1
            return Fault(529)
        reply = self.model(body)
        if luck < 2 / 3:
            self.cuts += 1
            return reply._replace(cut=self.rng.randint(1, 5))
        return reply._replace(pause=0.2 * self.rng.random()) if luck < 1 else reply


@pytest.mark.slow
def test_a_session_of_claude_code_goes_through_everything(
    upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    """Kills at any moment, 529 twice, cut and slow streams, a client that leaves, /compact, a fork, sub-agents."""
    sys.stdout.write(f"CHAOS_SEED={SEED}\n")
    rng = random.Random(SEED)
    script = upstream.script = FaultyModel(rng, 0.3)
    running, store, steps = client("claude"), tmp_path / "agent.db", 8
    for task in ("alpha", "beta", "gamma", "delta", "epsilon"):
        running.write_facts(task, steps, words=300)
    for task in ("eta", "theta"):
        running.write_facts(task, 2)
    settings = {"anthropic": upstream.url, "openai": upstream.url, "mode": "fold", "budget": 40_000, "port": 0}
    done = threading.Event()

    def disturb(gateway: Supervisor) -> None:
        while not done.wait(1 + 4 * rng.random()):
            os.kill(gateway.pid, signal.SIGKILL)
            with suppress(OSError), urllib.request.urlopen(f"{gateway.url}/quire/health", timeout=60):
                pass  # it works again: a machine that is busy starts it slowly

    with Supervisor(str(store), settings, tmp_path / "log") as gateway:
        thread = threading.Thread(target=disturb, args=(gateway,))
        thread.start()

        def work(task: str, *arguments: str) -> None:
            answer = running.ask(gateway.url, f"Do task {task} in {steps} steps", *arguments, seconds=300)
            assert f"done after {steps} steps" in answer

        try:
            work("alpha")
            before = script.model.plain.calls
            running.ask_and_leave(
                gateway.url,
                f"Do task beta in {steps} steps",
                "-c",
                when=lambda: script.model.plain.calls >= before + steps // 2,
            )
            work("gamma", "-c")
            running.ask(gateway.url, "/compact", "-c", seconds=300)
            work("delta", "-c")
            work("epsilon", "-c", "--fork-session")
            assert "Both are done." in running.ask(gateway.url, "Ask two agents", "-c", seconds=300)
        finally:
            done.set()
            thread.join()
        starts = gateway.starts
    assert upstream.refused == []
    assert min(starts - 1, script.overloads, script.cuts) >= 2
    seen: set[str] = set()
    with quire.Library(store) as library:
        for name in library.list(prefix="gateway/"):
            with library.open(name) as context:
                calls = [call for call in calls_in(list(context.messages())) if "_of_" in call]
                assert context.check() == []
            assert len(set(calls)) == len(calls), name
            seen.update(calls)
    whole = {f"call_{task}_{n}_of_{steps}" for task in ("alpha", "gamma", "delta", "epsilon") for n in range(steps)}
    assert seen >= whole | {f"call_{task}_{n}_of_2" for task in ("eta", "theta") for n in range(2)}
