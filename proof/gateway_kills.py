"""Agents that talk through a gateway that is killed again and again."""

import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import quire
from tests.gateway.scripted_client import Api, Client
from tests.gateway.test_folding import BUDGET, FILLER
from tests.strict_provider import Body, Call, Fault, Reply, StrictProvider

PATIENCE = 120.0
"""The longest time without an answer, in seconds: a gateway starts slowly on a busy machine."""
APIS: tuple[Api, ...] = ("anthropic", "chat", "responses")


class Stubborn(Client):
    """A client that repeats a request until it gets a whole answer, first streamed and then plain."""

    last: dict[str, Any]

    def use(self, arguments: dict[str, Any]) -> str:
        return f"Value of {arguments['query']}. {FILLER}"

    def answer(self) -> dict[str, Any]:
        """Send the transcript until there is a whole answer, and add it."""
        deadline, attempt = time.monotonic() + PATIENCE, 0
        while time.monotonic() < deadline:
            attempt += 1
            self.stream = attempt % 3 != 2
            with suppress(OSError, HTTPException):
                got = self.request()
                assert got.status in (200, 429, 500, 502, 529), (got.status, got.body)
                if got.complete and got.status == 200:
                    return self.take(got)
            time.sleep(0.02 if attempt < 5 else 0.1)
        raise AssertionError(f"no answer to {attempt} requests; the last one was {self.received[-1:]}")

    def work(self, steps: int) -> None:
        """Run steps: tools, and a message of the user when the model calls none."""
        self.items.append({"role": "user", "content": f"Start {self.headers[-1][1]}."})
        for step in range(steps):
            results = self.results(self.answer())
            self.items += results or [{"role": "user", "content": f"Go on after {step}."}]
        self.last = self.answer()

    def work_until(self, ended: threading.Event) -> None:
        """Run steps until the event is set."""
        self.items.append({"role": "user", "content": f"Start {self.headers[-1][1]}."})
        while not ended.is_set():
            results = self.results(self.answer())
            self.items += results or [{"role": "user", "content": f"Go on after {len(self.items)}."}]
        self.last = self.answer()

    def texts(self) -> list[str]:
        """Return the texts of the transcript, as `recorded_texts` returns them."""
        return [text for item in self.items for text in _texts(item)]


def _texts(item: dict[str, Any]) -> list[str]:
    kind = item.get("type")
    if kind == "reasoning":
        return []
    if kind == "function_call":
        return [f"call {item['call_id']}"]
    if kind == "function_call_output":
        return [str(item["output"])[:40]]
    content = item.get("content") or []
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    found = [str(block.get("text") or block.get("content"))[:40] for block in blocks if block["type"] != "thinking"]
    found = [text for text in found if text != "None"]
    found += [f"call {block['id']}" for block in blocks if block["type"] == "tool_use"]
    return found + [f"call {call['id']}" for call in item.get("tool_calls", ())]


def recorded_texts(ctx: quire.Context) -> list[str]:
    found = []
    for message in ctx.messages():
        found += [message.text[:40]] if message.text else []
        found += [f"call {call.id}" for call in message.tool_calls]
    return found


def faulty(seed: int, share: float, slow: float = 0.0) -> Callable[[Body], Reply | Fault]:
    """Return a script with faults: two 529 in a row, cut streams, slow answers."""
    rng, lock, state = random.Random(seed), threading.Lock(), {"calls": 0, "left": 0}

    def answer(body: Body) -> Reply | Fault:
        with lock:
            if state["left"]:
                state["left"] -= 1
                return Fault(529)
            luck = rng.random()
            if luck < share / 2:
                state["left"] = 1
                return Fault(529, retry_after="1")
            cut = rng.randint(1, 5) if luck < share else None
            state["calls"] += 1
            number = state["calls"]
            time.sleep(slow * rng.random())
            thinking = (f"Thought {number}.",)
            if rng.random() < 0.25:
                return Reply(f"Answer {number}. {FILLER}", thinking=thinking, cut=cut)
            calls = [
                Call(f"call_{number}_{n}", "look", {"query": f"fact {number}.{n}"}) for n in range(rng.randint(1, 2))
            ]
            return Reply(f"Step {number}.", tuple(calls), thinking, cut=cut)

    return answer


def run_all(jobs: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def guard(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [], f"an agent failed: {errors!r}"


class MortalGateway:
    """A gateway in a process that is killed and started again on the same port."""

    def __init__(self, store: str, provider: StrictProvider, mode: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        urls = ["--anthropic", provider.url, "--openai", provider.url]
        self._command = [sys.executable, "-m", "quire", "gateway", store, *urls, "--mode", mode]
        self._command += ["--budget", str(BUDGET), "--port", str(self.port), "--json"]
        self.process = self._start()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kills = 0

    def _start(self) -> "subprocess.Popen[bytes]":
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors)
            assert process.stdout is not None
            if not process.stdout.readline():
                errors.seek(0)
                raise AssertionError(f"the gateway did not start: {errors.read()[-500:]!r}")
        return process

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.close()
        self.process = self._start()
        self.kills += 1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def kill_gateways(
    store: str, kills: int, seed: int, seconds: float | None = None, mode: str = "fold"
) -> tuple[int, list[str]]:
    """Kill a gateway while three agents work through it. Return how often, and what is wrong afterwards."""
    rng = random.Random(seed)
    deadline = None if seconds is None else time.monotonic() + seconds
    with StrictProvider() as provider:
        provider.script = faulty(seed, 0.1, slow=0.01)
        gateway = MortalGateway(store, provider, mode)
        agents = [Stubborn(gateway.url, api, {"x-quire-session": f"agent-{seed}-{n}"}) for n, api in enumerate(APIS)]
        ended = threading.Event()
        jobs: list[Callable[[], None]] = [lambda agent=agent: agent.work_until(ended) for agent in agents]  # type: ignore[misc]

        def disturb() -> None:
            try:
                while gateway.kills < kills and (deadline is None or not gateway.kills or time.monotonic() < deadline):
                    time.sleep(0.3 + 0.5 * rng.random())
                    gateway.kill()
            finally:
                ended.set()

        try:
            run_all([*jobs, disturb])
            for agent in agents:  # the last answer is recorded when the client goes on
                agent.items += agent.results(agent.last) or [{"role": "user", "content": "End."}]
                agent.answer()
            time.sleep(0.5)
        except AssertionError as error:
            return gateway.kills, [f"seed {seed}: {error}"]
        finally:
            gateway.close()
        findings = [f"seed {seed}: the provider refused: {problem.message}" for problem in provider.refused]
    return gateway.kills, [*findings, *(f"seed {seed}: {text}" for text in _compare(store, agents))]


def _compare(store: str, agents: list[Stubborn]) -> list[str]:
    """Return where the recorded conversations differ from those of the agents. The last answer can be missing."""
    findings = []
    with quire.Library(store) as library:
        ours = f"/{agents[0].headers[-1][1].rpartition('-')[0]}-"
        if sum(ours in name for name in library.list(prefix="gateway/")) != len(agents):
            findings.append("there are more or fewer contexts than agents")
        for agent in agents:
            upstream = "anthropic" if agent.api == "anthropic" else "openai"
            name = f"gateway/local/{upstream}/{agent.headers[-1][1]}"
            ctx = library.open(name)
            recorded, sent = recorded_texts(ctx), agent.texts()
            if recorded != sent[: len(recorded)] or len(recorded) < len(sent) - 1:
                findings.append(f"{name}: {len(recorded)} messages are not the {len(sent)} of the agent")
            findings += [f"{name}: {problem}" for problem in ctx.check()]
    return findings
