"""Anthropic SDK: turns of the client alone with the views that quire made, the quire calls alone, and `complete`."""

import json
from pathlib import Path

from anthropic import Anthropic
from anthropic.types import Message

import quire
from bench.adapters.scripted import Values, endpoint, look, timed
from quire.adapters.anthropic import complete

BUDGET = 8_000
MODEL = "claude-sonnet-5"
SCHEMA: Values = {
    "name": "look",
    "description": "Look something up.",
    "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
}


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Seconds for so many turns: the client alone, quire by hand, and both in one call."""
    sent: list[Values] = []
    answers: list[Message] = []
    with endpoint(_answer) as url, Anthropic(base_url=url, api_key="none") as client:
        with quire.open(folder / "both.db", budget=BUDGET) as ctx:
            both = timed(lambda: _through(client, ctx, count))
        with quire.open(folder / "hand.db", budget=BUDGET) as ctx:
            _by_hand(ctx, count, client, sent, answers)
        alone = timed(lambda: [client.messages.create(**request) for request in sent])
    with quire.open(folder / "again.db", budget=BUDGET) as ctx:
        hand = timed(lambda: _by_hand(ctx, count, None, [], answers))
    return alone, hand, both


def _through(client: Anthropic, ctx: quire.Context, count: int) -> None:
    for n in range(count):
        ctx.user(f"question {n}")
        complete(client, ctx, model=MODEL, max_tokens=500, tools=[SCHEMA], functions={"look": look})


def _by_hand(
    ctx: quire.Context, count: int, client: Anthropic | None, sent: list[Values], answers: list[Message]
) -> None:
    """The same calls: with a client it asks, else it has the answers already."""
    known = iter(list(answers))
    tools = ctx.tools.anthropic([SCHEMA])
    beside = quire.count_tools(tools)
    for n in range(count):
        ctx.user(f"question {n}")
        while True:
            view = ctx.render(model=MODEL, reserve=beside).anthropic(cache=True, model=MODEL)
            request: Values = {"model": MODEL, "max_tokens": 500, "tools": tools, **view}
            answer = next(known) if client is None else client.messages.create(**request)
            sent.append(request)
            answers.append(answer)
            ctx.add(answer)
            ctx.report_usage(answer, tools=beside)
            calls = ctx.pending_calls()
            if not calls:
                break
            for call in calls:
                ctx.tool_result(call.id, look(**json.loads(call.arguments)))


def _answer(body: Values) -> Values:
    last = body["messages"][-1]["content"][-1]
    block: Values = {"type": "text", "text": "So it is."}
    if last["type"] == "text":
        name = "c_" + last["text"].replace(" ", "_")
        block = {"type": "tool_use", "id": name, "name": "look", "input": {"what": last["text"]}}
    usage = {"input_tokens": 4_000, "output_tokens": 9}
    answer = {"id": "1", "type": "message", "role": "assistant", "model": MODEL, "content": [block]}
    return {**answer, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
