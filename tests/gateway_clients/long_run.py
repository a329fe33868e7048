"""A scripted run of a real client with many tool steps and a context limit of a quarter of what the run needs."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quire
import quire.gateway
from quire.gateway.sessions import SessionInfo
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import State, StrictProvider
from tests.strict_provider.requests import Request
from tests.strict_provider.tokens import count_request

SHARE = 4
"""The run needs this many times the context limit."""
_PER_WORD = 4.1
"""Tokens of a random word in the files that the client reads."""
_PER_STEP = 110
"""Tokens of a step besides the file."""


@dataclass
class Outcome:
    """What happened in a run. `shared` is the share of input tokens that the provider read from its cache."""

    steps: int
    limit: int
    needed: int = 0
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
    sessions: list[SessionInfo] = field(default_factory=list)


def measure_start(name: str, root: Path) -> int:
    """Return the tokens of a client's first request with tools: its prompts and its tools."""
    with StrictProvider(script=ToolScript()) as upstream:
        Client(name, root).ask(upstream.url, "Do nothing")
        api = {"claude": "anthropic", "codex": "responses"}.get(name, "chat")
        return max(count_request(Request(api, body)) for body in upstream.requests)  # type: ignore[arg-type]


def run_steps(
    name: str, root: Path, steps: int, *, gateway: bool = True, thinking: bool = False, seed: int = 1
) -> Outcome:
    """Run a task of `steps` steps, with a gateway in the mode `fold` or without one."""
    start = measure_start(name, root / "start")
    limit = 2 * start
    per_step = (SHARE * limit - start) / steps
    words = max(5, round((per_step - _PER_STEP) / _PER_WORD))
    outcome = Outcome(steps, limit)
    client = Client(name, root / "run", context_limit=None if gateway else limit)
    outcome.facts = client.write_facts("alpha", steps, words=words, seed=seed)
    script = ToolScript(thinking=thinking)
    usage = _Usage()
    with ExitStack() as stack:
        upstream = stack.enter_context(StrictProvider(State(limit=limit), script))
        upstream.wire = usage
        address = upstream.url
        if gateway:
            running = stack.enter_context(
                quire.gateway.start(
                    root / "agent.db",
                    anthropic=upstream.url,
                    openai=upstream.url,
                    mode="fold",
                    budget=round(0.9 * limit),
                    port=0,
                )
            )
            address = running.url
        try:
            outcome.answer = client.ask(address, f"Do task alpha in {steps} steps", seconds=60 + 10 * steps)
        except AssertionError as error:
            outcome.answer = str(error)
        outcome.refused = [problem.message for problem in upstream.refused]
        outcome.compactions = script.summaries
        last = json.dumps(upstream.requests[-1])
        outcome.in_last_request = sum(fact in last for fact in outcome.facts)
        if gateway:
            running.gateway.sessions.drain()
            outcome.sessions = running.gateway.list_sessions()
    outcome.requests, outcome.input_tokens, outcome.shared = usage.requests, usage.total, usage.share
    outcome.needed = round(start + steps * per_step)
    if gateway:
        outcome.found = count_found(root / "agent.db", outcome.facts)
    return outcome


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
