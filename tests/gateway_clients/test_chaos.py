"""Real clients finish their work while things fail: a gateway that is killed with -9, a faulty and slow upstream.

Nothing is doubled in the record. `--long` kills the gateway more often, and runs a session of Claude Code through
everything else at once.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway_clients.conftest import Open
from tests.gateway_clients.records import read_record
from tests.gateway_clients.runs import Client, gateway_command
from tests.gateway_clients.script import AgentScript, ToolScript
from tests.seeds import SEED
from tests.strict_provider import Body, Fault, Reply, StrictProvider

pytestmark = pytest.mark.clients
STEPS_PER_KILL = 6


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_claude_code_finishes_while_its_gateway_is_killed(
    upstream: StrictProvider, client: Callable[..., Client], store: Path, request: pytest.FixtureRequest
) -> None:
    rng, plain, asked = random.Random(SEED), ToolScript(), threading.Semaphore(0)
    kills = 20 if request.config.getoption("--long") else 1
    steps, killed = STEPS_PER_KILL * kills, set[int]()

    def script(body: Body) -> Reply:
        asked.release()
        time.sleep(0.3 * rng.random())  # a slow upstream, so that most kills hit a request that waits
        return plain(body)

    upstream.script = script
    running = client("claude")
    running.write_facts("alpha", steps)
    run = gateway_command(store, upstream.url, running.command(f"Do task alpha in {steps} steps"))
    with subprocess.Popen(run, **running.surroundings(""), stdout=subprocess.PIPE, text=True) as process:
        for _ in range(kills):
            for _ in range(STEPS_PER_KILL - 2):
                asked.acquire(timeout=60)
            time.sleep(0.3 * rng.random())
            killed |= kill_gateway(process.pid)
        answer, _ = process.communicate(timeout=60 + 30 * kills)
    assert f"done after {steps} steps" in answer
    assert upstream.refused == []
    assert len(killed) == kills
    (record,) = read_record(store).values()
    assert record.problems == []
    assert record.calls == record.results == [f"call_alpha_{n}_of_{steps}" for n in range(steps)]


def kill_gateway(parent: int) -> set[int]:
    """Kill the gateway that `quire gateway run` has started: the child that runs Python. Return its id."""
    listed = Path("/proc", str(parent), "task").glob("*/children")
    children = [int(word) for part in listed for word in part.read_text().split()]
    found = {pid for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(sys.executable.encode())}
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


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
    upstream: StrictProvider, client: Callable[..., Client], store: Path, start: Open
) -> None:
    """529 twice, cut and slow streams, a client that leaves, a new gateway, /compact, a fork, sub-agents."""
    script = upstream.script = FaultyModel(random.Random(SEED), 0.3)
    running, steps = client("claude"), 8
    for task in ("alpha", "beta", "gamma", "delta", "epsilon"):
        running.write_facts(task, steps, words=300)
    for task in ("eta", "theta"):
        running.write_facts(task, 2)
    gateway = start("observe")

    def work(task: str, *arguments: str) -> None:
        answer = running.ask(gateway.url, f"Do task {task} in {steps} steps", *arguments, seconds=300)
        assert f"done after {steps} steps" in answer

    work("alpha")
    before = script.model.plain.calls
    beta = f"Do task beta in {steps} steps"
    running.ask_and_leave(gateway.url, beta, "-c", when=lambda: script.model.plain.calls >= before + steps // 2)
    gateway.stop()
    gateway = start("observe")
    work("gamma", "-c")
    running.ask(gateway.url, "/compact", "-c", seconds=300)
    work("delta", "-c")
    work("epsilon", "-c", "--fork-session")
    assert "Both are done." in running.ask(gateway.url, "Ask two agents", "-c", seconds=300)
    gateway.stop()
    assert upstream.refused == []
    assert min(script.overloads, script.cuts) >= 2
    seen: set[str] = set()
    for record in read_record(store).values():
        calls = [call for call in record.calls if "_of_" in call]
        assert record.problems == []
        assert len(set(calls)) == len(calls)
        seen.update(calls)
    whole = {f"call_{task}_{n}_of_{steps}" for task in ("alpha", "gamma", "delta", "epsilon") for n in range(steps)}
    assert seen >= whole | {f"call_{task}_{n}_of_2" for task in ("eta", "theta") for n in range(2)}
