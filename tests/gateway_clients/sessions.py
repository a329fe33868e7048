"""A session of several turns with a real client, first below the budget and then above it, and what came of it."""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.exclusions import excluded
from tests.gateway_clients.dialogues import open_dialogue
from tests.gateway_clients.gateways import start_gateway
from tests.gateway_clients.records import Record, read_record
from tests.gateway_clients.relay import Relay, check_wires
from tests.gateway_clients.runs import Client, api_of
from tests.gateway_clients.script import ToolScript, find_shell
from tests.strict_provider import Body, Problem, Request, State, StrictProvider
from tests.strict_provider.server import Exchange
from tests.strict_provider.tokens import count_request

TASKS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "omega")
PLACEMENT = "system message placement"


class Turn(NamedTuple):
    """One turn: its task, its steps, the words in each of its files, and what the person says beside it."""

    task: str
    steps: int
    words: int
    remark: str

    @property
    def prompt(self) -> str:
        return f"Do task {self.task} in {self.steps} steps. {self.remark}"

    @property
    def tokens(self) -> int:
        """About as many tokens has the turn."""
        return round(self.steps * (3.7 * self.words + 80))

    @property
    def calls(self) -> list[str]:
        return [f"call_{self.task}_{n}_of_{self.steps}" for n in range(self.steps)]


def plan_turns(seed: int, count: int) -> list[Turn]:
    """Return the turns of a session. The first one is short; the others have loops of 2 to 5 steps."""
    random = Random(seed)
    remarks = [f"Our word for {task} is pledge{random.randrange(16**6):06x}." for task in TASKS[:count]]
    sizes = [(2, 40), *((random.randint(2, 5), random.choice((200, 300, 400))) for _ in remarks[1:])]
    return [Turn(task, *size, remark) for task, size, remark in zip(TASKS, sizes, remarks, strict=False)]


class Sent(NamedTuple):
    """A request with tools: the body of the client, the body that arrived, and the tokens of both."""

    client: Body
    arrived: Body
    is_same: bool
    needed: int
    tokens: int


@dataclass
class Outcome:
    """What happened in a session."""

    turns: Sequence[Turn]
    budget: int = 0
    answers: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    tolerated: list[Problem] = field(default_factory=list)
    """What would have been refused if it were not known to fail."""
    compactions: int = 0
    below: list[Sent] = field(default_factory=list)
    """The requests of the first turn: the budget has room for all of them."""
    above: list[Sent] = field(default_factory=list)
    folds: int = 0
    records: dict[str, Record] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """The last request that arrived, as text."""
        return json.dumps(self.above[-1].arrived)

    def count_breaks(self) -> int:
        """Return how often the gateway sent another start of the conversation although the client kept its own."""
        count = 0
        for before, after in pairwise([*self.below, *self.above]):
            changed = len(_items(before.client)) - _shared(before.client, after.client)
            count += _shared(before.arrived, after.arrived) < len(_items(before.arrived)) - changed
        return count


def run_session(name: str, root: Path, turns: Sequence[Turn], *, share: float = 0.5) -> Outcome:
    """Run the first turn with a large budget, and the others with room for a share of all turns."""
    outcome, client, script = Outcome(turns), Client(name, root / "client"), ToolScript(thinking=name == "codex")
    for turn in turns:
        outcome.facts += client.write_facts(turn.task, turn.steps, words=turn.words)
    state = State(tolerated=frozenset({PLACEMENT} if excluded("system_after_fold") else ()))
    with StrictProvider(state, script) as upstream, Relay() as relay, open_dialogue(client, relay.url) as say:
        with _gateway(root, upstream, relay, 120_000):
            outcome.answers.append(say(turns[0].prompt))
        check_wires(relay, upstream)
        outcome.below = _pair(name, relay, upstream)
        outcome.budget = outcome.below[0].needed + round(share * sum(turn.tokens for turn in turns))
        with _gateway(root, upstream, relay, outcome.budget) as url:
            outcome.answers += [say(turn.prompt) for turn in turns[1:]]
            outcome.folds = sum(session["folds"] for session in _read_json(f"{url}/quire/sessions"))
        outcome.above = _pair(name, relay, upstream)
        outcome.refused, outcome.tolerated = upstream.refused, state.found
        outcome.compactions = script.summaries
    outcome.records = read_record(root / "agent.db")
    return outcome


@contextmanager
def _gateway(root: Path, upstream: StrictProvider, relay: Relay, budget: int) -> Iterator[str]:
    """Run a gateway behind the relay, and keep the exchanges from now on."""
    upstream.wire, relay.wire = [], []
    with start_gateway(upstream, root / "agent.db", budget) as gateway:
        relay.point_to(gateway.url)
        yield gateway.url


def _pair(name: str, relay: Relay, upstream: StrictProvider) -> list[Sent]:
    """Return the requests with tools, as the client sent them and as they arrived: one follows the other."""
    relay.settle()
    assert upstream.wire is not None
    ours, theirs = (list(_bodies(wire)) for wire in (relay.wire, upstream.wire))
    return [
        Sent(a, b, raw == arrived, _count(name, a), _count(name, b))
        for (raw, a), (arrived, b) in zip(ours, theirs, strict=True)
    ]


def _bodies(wire: Sequence[Exchange]) -> Iterator[tuple[bytes, Body]]:
    for exchange in wire:
        if exchange.method == "POST" and "count_tokens" not in exchange.path:
            body = json.loads(exchange.data)
            if find_shell(body) is not None:
                yield exchange.data, body


def _count(name: str, body: Body) -> int:
    return count_request(Request(api_of(name), body))


def _items(body: Body) -> list[Body]:
    found: list[Body] = body.get("messages") or body.get("input") or []
    return found


def _shared(before: Body, after: Body) -> int:
    """Return the number of equal items at the start of two bodies; cache marks do not count."""
    pairs = zip(map(_plain, _items(before)), map(_plain, _items(after)), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(_items(before)), len(_items(after))))


def _plain(item: Body) -> Body:
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return item
    blocks = [{key: value for key, value in block.items() if key != "cache_control"} for block in content]
    return {**item, "content": blocks}


def _read_json(url: str) -> Any:
    with urllib.request.urlopen(url) as response:
        return json.loads(response.read())
