"""The demo of the gateway: a scripted client, a recorded conversation, a real gateway, and a stub of a provider."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import quire
from quire import Message
from quire.cli.commands.demo import DemoConversation, load_conversation
from quire.cli.replay.pricing import PromptCache, TokenCounts
from quire.cli.replay.recordings import measure_reach
from quire.cli.terminal import Narration, Output
from quire.gateway import start
from quire.model.messages import Provider
from quire.providers import format_messages, parse
from quire.testing import StubProvider

_PROVIDER: Provider = "anthropic"
_HEAD = "request   client sent   provider got   from its cache"
_BAR = 26


class Exchange(NamedTuple):
    """A request: the tokens of the client's transcript, of what the provider got, and of its cached part."""

    sent: int
    got: int
    cached: int


class _Wire:
    """A client with a growing transcript, and the stub that answers it as recorded."""

    def __init__(self, talk: DemoConversation, session: str) -> None:
        self._talk = talk
        self._session = session
        self._number = 0
        self._counts = TokenCounts()
        self._cache = PromptCache(self._counts)

    def answer(self, _: Sequence[Message]) -> Message:
        return self._talk.messages[self._number]

    def send(self, url: str, stub: StubProvider, number: int) -> Exchange:
        """Send the transcript before a reply, and return what both sides counted."""
        self._number = number
        messages = format_messages(self._talk.messages[:number], _PROVIDER)
        body: dict[str, Any] = {"model": "stub", "max_tokens": 1_000, "system": self._talk.system}
        body |= {"messages": messages, "tools": [_TOOL]}
        headers = {"content-type": "application/json", "x-quire-session": self._session}
        with urlopen(Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)) as response:
            response.read()
        sent, got = parse(messages, _PROVIDER), parse(stub.requests[-1]["messages"], _PROVIDER)
        return Exchange(self._counts.total(sent), self._counts.total(got), self._cache.send(got))


_TOOL = {"name": "shell", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}}


def play_gateway_demo(where: str | None, budget: int, out: Output, *, fast: bool) -> None:
    """Send the conversation of the demo through a gateway, and print what each side saw."""
    talk = load_conversation()
    path = where or str(Path(mkdtemp(prefix="quire-gateway-")) / "agent.db")
    narration, paint = Narration(out.paint, fast=fast or out.json), out.paint
    wire = _Wire(talk, _new_session(path))
    exchanges: list[Exchange] = []
    with (
        StubProvider(wire.answer) as stub,
        start(path, anthropic=stub.url, mode="fold", budget=budget, port=0) as running,
    ):
        if not out.json:
            narration.title(f"{talk.title}: a client sends its whole transcript, the gateway at most {budget:,} tokens")
            narration.line(paint.dim(_HEAD))
        for number in _replies(talk.messages):
            exchanges.append(wire.send(running.url, stub, number))
            if not out.json:
                narration.slow_line(_row(len(exchanges), exchanges, out))
        running.gateway.sessions.drain()
        (session,) = running.gateway.list_sessions()
    with quire.open(path, session.name, create=False) as context:
        stored = len(context.messages())
        asked = [(question.find, question.answer) for question in talk.questions]
        found = measure_reach(asked, (), context)
        problems = len(context.check())
    total, got = sum(one.sent for one in exchanges), sum(one.got for one in exchanges)
    if out.json:
        figures = {"requests": len(exchanges), "client_tokens": total, "provider_tokens": got, "folds": session.folds}
        values = {"store": path, "context": session.name, "budget": budget, "messages": stored, **figures}
        out.value({**values, "cached": sum(one.cached for one in exchanges), "answers": found._asdict()})
        return
    share = sum(one.cached for one in exchanges) / max(1, got)
    narration.title("Afterwards")
    narration.line(
        f"the client sent {total:,} tokens, the provider got {got:,}, {100 * share:.0f} % of them from its cache;"
        f" {session.folds} folds",
        f"{stored} of {len(talk.messages)} messages are in the store, check(): {problems} problems",
        f"{found.found} of {found.total} late questions: a search in the store finds the answer",
    )
    narration.title("Try next")
    narration.line(
        f"quire find {path} {talk.questions[0].find!r}",
        f"quire serve {path} --open",
        "quire gateway run agent.db --mcp -- claude    # or codex, opencode, aider: your own client",
    )


def _new_session(where: str) -> str:
    """Return the name of a session that the store does not have."""
    with quire.Library(where, create=True) as library:
        names = {name.rpartition("/")[2] for name in library.list(prefix="gateway/")}
    return next(name for number in count(1) if (name := f"demo-{number}") not in names)


def _replies(messages: Sequence[Message]) -> list[int]:
    """Return the places of replies. A reply can be two messages: a text, then a call."""
    roles = ["", *(message.role for message in messages)]
    return [place for place in range(len(messages)) if roles[place] != "assistant" == roles[place + 1]]


def _row(number: int, exchanges: Sequence[Exchange], out: Output) -> str:
    one = exchanges[-1]
    before = exchanges[-2] if len(exchanges) > 1 else one
    cells = max(1, round(_BAR * one.got / max(one.sent, one.got)))
    bar = out.paint.green("█" * cells) + out.paint.dim("░" * (_BAR - cells))
    folded = out.paint.blue(" folded") if one.got < before.got else ""
    return f"{number:>7} {one.sent:>13,} {one.got:>14,} {100 * one.cached // max(1, one.got):>14} %   {bar}{folded}"
