"""OpenAI SDK: turns of the client alone with quire's views, the quire calls alone, and `complete`."""

import json
from pathlib import Path
from typing import Any

from openai import OpenAI

import quire
from bench.adapters.scripted import Values, endpoint, look, measured
from quire.adapters.openai import complete

MODEL = "gpt-5"
SCHEMA: Values = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}


class _Sdk:
    """Turns with chat completions."""

    def __init__(self, client: OpenAI) -> None:
        self._client = client

    def tools(self, ctx: quire.Context) -> list[Values]:
        return ctx.tools.openai([SCHEMA])

    def request(self, ctx: quire.Context, tools: list[Values], beside: int) -> Values:
        return {"model": MODEL, "messages": ctx.render(model=MODEL, reserve=beside).openai(), "tools": tools}

    def ask(self, request: Values) -> object:
        return self._client.chat.completions.create(**request)

    def complete(self, ctx: quire.Context) -> object:
        return complete(self._client, ctx, model=MODEL, tools=[SCHEMA], functions={"look": look})


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for the turns: the client alone, quire by hand, and both in one call."""
    with endpoint(_answer) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        return measured(_Sdk(client), folder, count)


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
