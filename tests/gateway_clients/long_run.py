"""One long task of a real client, with a context limit of a quarter of what the task needs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway_clients.gateways import start_gateway
from tests.gateway_clients.records import find_words
from tests.gateway_clients.runs import Client, api_of
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import Request, State, StrictProvider
from tests.strict_provider.server import Exchange
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
    refused: list[str] = field(default_factory=list)
    compactions: int = 0
    shared: float = 0.0
    answer: str = ""
    in_last_request: int = 0
    """The facts that the model still sees at the end."""
    found: int = 0
    """The facts that `find` finds afterwards."""
    has_environment: bool = False
    """Whether the model still sees the working folder at the end."""


def measure_start(name: str, root: Path) -> int:
    """Return the tokens of a client's first request with tools: its prompts and its tools."""
    with StrictProvider(script=ToolScript()) as upstream:
        Client(name, root).ask(upstream.url, "Do nothing")
        return max(count_request(Request(api_of(name), body)) for body in upstream.requests)


def run_steps(name: str, root: Path, steps: int, *, gateway: bool = True) -> Outcome:
    """Run a task of `steps` steps, with a gateway in the mode `fold` or without one."""
    start = measure_start(name, root / "start")
    outcome, script = Outcome(steps, 2 * start), ToolScript()
    client = Client(name, root / "run", context_limit=None if gateway else outcome.limit)
    words = round(((SHARE * outcome.limit - start) / steps - _PER_STEP) / _PER_WORD)
    facts = client.write_facts("alpha", steps, words=max(5, words))
    with StrictProvider(State(limit=outcome.limit), script) as upstream:
        upstream.wire = usage = _Usage()
        with _address(upstream, root, round(0.9 * outcome.limit) if gateway else 0) as address:
            try:
                outcome.answer = client.ask(address, f"Do task alpha in {steps} steps", seconds=60 + 10 * steps)
            except AssertionError as error:
                outcome.answer = str(error)
        last = json.dumps(upstream.requests[-1])
        outcome.refused = [problem.message for problem in upstream.refused]
    outcome.compactions, outcome.shared = script.summaries, usage.share
    outcome.in_last_request = sum(fact in last for fact in facts)
    outcome.has_environment = str(client.work) in last
    outcome.found = steps - len(find_words(root / "agent.db", facts)) if gateway else 0
    return outcome


@contextmanager
def _address(upstream: StrictProvider, root: Path, budget: int) -> Iterator[str]:
    """Yield the address for a client: that of a gateway, or of the provider without a budget."""
    if not budget:
        yield upstream.url
        return
    with start_gateway(upstream, root / "agent.db", budget) as gateway:
        yield gateway.url


class _Usage(list[Exchange]):
    """Adds up the usage of responses instead of keeping them."""

    total = cached = 0

    @property
    def share(self) -> float:
        return self.cached / max(1, self.total)

    def append(self, exchange: Exchange) -> None:
        for line in reversed(exchange.answer.split(b"\n")):
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
        self.total += total
        self.cached += cached
