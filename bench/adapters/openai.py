"""OpenAI SDK: turns of the client alone with the views that quire made, the quire calls alone, and `complete`."""

import json
from pathlib import Path
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletion

import quire
from bench.adapters.scripted import Values, endpoint, look, timed
from quire.adapters.openai import complete

BUDGET = 8_000
MODEL = "gpt-5"
SCHEMA: Values = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Seconds for so many turns: the client alone, quire by hand, and both in one call."""
    sent: list[Values] = []
    answers: list[ChatCompletion] = []
    with endpoint(_answer) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        with quire.open(folder / "both.db", budget=BUDGET) as ctx:
            both = timed(lambda: _through(client, ctx, count))
        with quire.open(folder / "hand.db", budget=BUDGET) as ctx:
            _by_hand(ctx, count, client, sent, answers)
        alone = timed(lambda: [client.chat.completions.create(**request) for request in sent])
    with quire.open(folder / "again.db", budget=BUDGET) as ctx:
        hand = timed(lambda: _by_hand(ctx, count, None, [], answers))
    return alone, hand, both


def _through(client: OpenAI, ctx: quire.Context, count: int) -> None:
    for n in range(count):
        ctx.user(f"question {n}")
        complete(client, ctx, model=MODEL, tools=[SCHEMA], functions={"look": look})


def _by_hand(
    ctx: quire.Context, count: int, client: OpenAI | None, sent: list[Values], answers: list[ChatCompletion]
) -> None:
    """The loop of the first page of the documentation: with a client it asks, else it has the answers already."""
    known = iter(list(answers))
    tools = ctx.tools.openai([SCHEMA])
    beside = quire.count_tools(tools)
    for n in range(count):
        ctx.user(f"question {n}")
        while True:
            request: Values = {
                "model": MODEL,
                "messages": ctx.render(model=MODEL, reserve=beside).openai(),
                "tools": tools,
            }
            answer = next(known) if client is None else client.chat.completions.create(**request)
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
    last = body["messages"][-1]
    message: Values = {"role": "assistant", "content": "So it is."}
    if last["role"] == "user":
        call: Any = {"name": "look", "arguments": json.dumps({"what": last["content"]})}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"id": f"c {last['content']}", "type": "function", "function": call}]
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 4_000, "completion_tokens": 9, "total_tokens": 4_009}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    return {**answer, "usage": usage}
