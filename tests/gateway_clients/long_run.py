"""A scripted run of a real client with many tool steps and a context limit of a quarter of what the run needs."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quire
import quire.gateway
from quire.gateway.gateway_server import RunningGateway
from quire.gateway.sessions import Call, SessionInfo, Sessions
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript, find_shell
from tests.strict_provider import Body, Reply, State, StrictProvider
from tests.strict_provider.requests import Request
from tests.strict_provider.tokens import count_request

SHARE = 4
"""The run needs this many times the context limit."""
_PER_WORD = 3.7
"""At least as many tokens has a random word in the files that the client reads."""
_PER_STEP = 50
"""At least as many tokens has a step besides the file."""


@dataclass
class Outcome:
    """What happened in a run. `shared` is the share of input tokens that the provider read from its cache."""

    steps: int
    limit: int
    needed: int = 0
    """The tokens of the longest request of the client, before the gateway rewrote it."""
    requests: int = 0
    refused: list[str] = field(default_factory=list)
    compactions: int = 0
    shared: float = 0.0
    input_tokens: int = 0
    answer: str = ""
    facts: list[str] = field(default_factory=list)
    in_last_request: int = 0
    """The facts that the model still sees at the end."""
    found: int = 0
    """The facts that `find` finds afterwards."""
    has_environment: bool = False
    """Whether the model still sees the working folder at the end."""
    sessions: list[SessionInfo] = field(default_factory=list)


def measure_start(name: str, root: Path) -> int:
    """Return the tokens of a client's first request with tools: its prompts and its tools."""
    with StrictProvider(script=ToolScript()) as upstream:
        Client(name, root).ask(upstream.url, "Do nothing")
        return max(_count(name, body) for body in upstream.requests)


def _count(name: str, body: Body) -> int:
    api: Any = {"claude": "anthropic", "codex": "responses"}.get(name, "chat")
    return count_request(Request(api, body))


class _Task:
    """The task of a run. Its files are written, and the limit of the provider is set, at the first request."""

    def __init__(self, client: Client, steps: int, seed: int, start: int | None) -> None:
        self.client, self.steps, self.seed = client, steps, seed
        self.limit = 0
        self.facts: list[str] = []
        self.state = State()
        self.script = ToolScript()
        self.gateway: RunningGateway | None = None
        if start is not None:
            self._prepare(start)

    def __call__(self, body: Body) -> Reply:
        if not self.limit and find_shell(body) is not None:
            self._prepare(_count(self.client.name, body))
        return self.script(body)

    def _prepare(self, start: int) -> None:
        self.limit = self.state.limit = 2 * start
        per_step = (SHARE * self.limit - start) / self.steps
        words = max(5, round((per_step - _PER_STEP) / _PER_WORD))
        self.facts = self.client.write_facts("alpha", self.steps, words=words, seed=self.seed)
        if self.gateway is not None:
            sessions = self.gateway.gateway.sessions
            sessions.budget = round(0.9 * self.limit)
            for line in sessions._lines.values():  # the line of the first request is open already
                line.ctx.budget = sessions.budget


def run_steps(name: str, root: Path, steps: int, *, gateway: bool = True, seed: int = 1) -> Outcome:
    """Run a task of `steps` steps, with a gateway in the mode `fold` or without one."""
    start = None if gateway else measure_start(name, root / "start")
    client = Client(name, root / "run", context_limit=None if start is None else 2 * start)
    task = _Task(client, steps, seed, start)
    usage, sessions, answer, longest = _Usage(), [], "", _Longest()
    with ExitStack() as stack:
        upstream = stack.enter_context(StrictProvider(task.state, task))
        upstream.wire = usage
        address = upstream.url
        if gateway:
            where = {"anthropic": upstream.url, "openai": upstream.url, "port": 0}
            running = quire.gateway.start(root / "agent.db", mode="fold", **where)  # type: ignore[arg-type]
            task.gateway = stack.enter_context(running)
            longest.watch(running.gateway.sessions)
            address = running.url
        try:
            answer = client.ask(address, f"Do task alpha in {steps} steps", seconds=60 + 10 * steps)
        except AssertionError as error:
            answer = str(error)
        last = json.dumps(upstream.requests[-1])
        if gateway:
            running.gateway.sessions.drain()
            sessions = running.gateway.list_sessions()
    return Outcome(
        steps,
        task.limit,
        needed=_count(name, json.loads(longest.body)) if longest.body else 0,
        requests=usage.requests,
        refused=[problem.message for problem in upstream.refused],
        compactions=task.script.summaries,
        shared=usage.share,
        input_tokens=usage.total,
        answer=answer,
        facts=task.facts,
        in_last_request=sum(fact in last for fact in task.facts),
        has_environment=str(client.work) in last,
        found=count_found(root / "agent.db", task.facts) if gateway else 0,
        sessions=sessions,
    )


class _Longest:
    """Keeps the longest body that a client sends to a gateway."""

    body = b""

    def watch(self, sessions: Sessions) -> None:
        read = sessions.read

        def read_and_keep(call: Call) -> bool:
            found = read(call)
            self.body = max(self.body, call.plain, key=len)
            return found

        sessions.read = read_and_keep  # type: ignore[method-assign]


def count_found(path: Path, facts: list[str]) -> int:
    """Return how many facts `find` finds in the recorded conversations."""
    with quire.Library(path) as library:
        contexts = [library.open(name) for name in library.list(prefix="gateway/")]
        return sum(any(context.find(fact) for context in contexts) for fact in facts)


class _Usage(list):  # type: ignore[type-arg]
    """Adds up the usage of responses instead of keeping them."""

    requests = total = cached = 0

    @property
    def share(self) -> float:
        return self.cached / max(1, self.total)

    def append(self, exchange: object) -> None:
        answer: bytes = exchange.answer  # type: ignore[attr-defined]
        for line in reversed(answer.split(b"\n")):
            if b'"usage"' in line and line.startswith((b"data: {", b"{")):
                self._add(json.loads(line.removeprefix(b"data: ")))
                return

    def _add(self, event: dict[str, Any]) -> None:
        used = (event.get("response") or event).get("usage") or {}
        details = used.get("prompt_tokens_details") or used.get("input_tokens_details") or {}
        total, cached = used.get("prompt_tokens") or used.get("input_tokens") or 0, details.get("cached_tokens", 0)
        if "cache_read_input_tokens" in used:
            cached = used["cache_read_input_tokens"]
            total += cached + used["cache_creation_input_tokens"]
        self.requests += 1
        self.total += total
        self.cached += cached
