"""The members of the week: a coding agent behind the gateway, a support bot, and sub-agents; and what they count."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

import quire
from parts.ledger import CACHED, Ledger
from quire import Message, ToolCall
from quire.model.messages import count_message_tokens
from quire.providers import parse
from quire.testing import StubProvider
from quire.testing.stub_provider import quote_answer

SESSION = "coder"
CONTEXT = f"gateway/local/anthropic/{SESSION}"
_TOOL = {"name": "build", "description": "Build a ticket.", "input_schema": {"type": "object", "properties": {}}}


@dataclass
class Tally:
    """The figures of the week."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    plain_tokens: int = 0
    plain_cost: float = 0.0
    asked: int = 0
    answered: int = 0
    repeated: int = 0
    refused: int = 0
    incidents: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add(self, ledger: Ledger) -> None:
        """Add the calls of one context."""
        ours, everything = ledger.quire, ledger.everything
        self.count(ours.tokens, ours.cached, everything.tokens, everything.cached, calls=ours.calls)
        self.broken += ledger.broken

    def count(self, tokens: int, cached: int, plain: int, plain_cached: int, *, calls: int = 1) -> None:
        """Add calls: the tokens with quire and without management, each with its cached part."""
        self.calls += calls
        self.tokens += tokens
        self.cost += tokens - cached + CACHED * cached
        self.plain_tokens += plain
        self.plain_cost += plain - plain_cached + CACHED * plain_cached

    def ask(self, text: str, answer: str) -> None:
        """Count a question, and whether a text answers it."""
        self.asked += 1
        self.answered += answer in text


def artifact(day: int, step: int) -> str:
    """Return the name of what a step built."""
    return f"artifact-{day}{step:02}-{(day * 7919 + step * 104_729) % 99_991:05}"


def model(messages: list[Message]) -> Message:
    """Answer a question from the request, and call the tool for everything else, unless the result is the last."""
    last = messages[-1]
    if last.role == "user" and "Build" in last.text:
        return Message(role="assistant", tool_calls=(ToolCall(f"call_{last.text[-5:-1]}", "build", "{}"),))
    return quote_answer(messages)


class Coder:
    """A client of a provider: it keeps its transcript and sends all of it with each request, for a whole week."""

    def __init__(self, tally: Tally) -> None:
        self.items: list[dict[str, Any]] = []
        self._tally = tally
        self._count = quire.VocabularyCounter().count
        self._sent, self._got = 0, list[Message]()

    def work(self, url: str, stub: StubProvider, day: int, steps: int) -> None:
        """Build tickets: each is a request, a call, its result and an answer."""
        for step in range(steps):
            self.items.append({"role": "user", "content": f"Build ticket T-{day}{step:02}."})
            (call,) = [block for block in self._request(url, stub) if block["type"] == "tool_use"]
            log = f"{artifact(day, step)} is built from ticket T-{day}{step:02}.\n" + "".join(
                f"unit {n} compiled in {day * step + n} ms\n" for n in range(40)
            )
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": log}
            self.items.append({"role": "user", "content": [result]})
            self._request(url, stub)

    def ask(self, url: str, stub: StubProvider, question: str) -> str:
        """Return the answer to a question."""
        self.items.append({"role": "user", "content": question})
        return "\n".join(str(block.get("text")) for block in self._request(url, stub))

    def _request(self, url: str, stub: StubProvider) -> list[dict[str, Any]]:
        body = {"model": "stub", "max_tokens": 500, "messages": self.items, "tools": [_TOOL]}
        headers = {"content-type": "application/json", "x-quire-session": SESSION}
        with urlopen(Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)) as response:
            content: list[dict[str, Any]] = json.load(response)["content"]
        sent = self._total(parse(self.items, "anthropic"))
        got = parse(stub.requests[-1]["messages"], "anthropic")
        self._tally.broken += [
            problem.text for problem in quire.check_legal(stub.requests[-1]["messages"], "anthropic")
        ]
        same = next(
            (n for n, pair in enumerate(zip(self._got, got, strict=False)) if pair[0] != pair[1]), len(self._got)
        )
        self._tally.count(self._total(got), self._total(got[:same]), sent, self._sent)
        self._sent, self._got = sent, got
        self.items.append({"role": "assistant", "content": content})
        return content

    def _total(self, messages: Sequence[Message]) -> int:
        return sum(count_message_tokens(message, self._count) for message in messages)


def serve(
    library: quire.Library, ledgers: dict[str, Ledger], user: str, key: str, text: str, budget: int
) -> tuple[str, bool]:
    """Answer one request as a turn. Return the answer, and whether the request was answered before."""
    with library.turn(user, key=key, keep=True, budget=budget) as ctx:
        asked = ctx.user(text)
        if ctx.turn_state == "finished":
            return next(message.text for message in ctx.messages() if message.index > asked), True
        view = ctx.render(recall=text.endswith("?"))
        ledgers.setdefault(user, Ledger(budget)).sent(ctx, view)
        reply = quote_answer(parse(view.openai()))
        ctx.assistant(reply.text)
        return reply.text, False
