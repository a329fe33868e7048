"""Anthropic SDK: turns of the client alone with quire's views, the quire calls alone, and `complete`."""

from pathlib import Path

from anthropic import Anthropic

import quire
from bench.adapters.scripted import Values, endpoint, look, measured
from quire.adapters.anthropic import complete

MODEL = "claude-sonnet-5"
SCHEMA: Values = {
    "name": "look",
    "description": "Look something up.",
    "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
}


class _Sdk:
    """Turns with Anthropic's messages."""

    def __init__(self, client: Anthropic) -> None:
        self._client = client

    def tools(self, ctx: quire.Context) -> list[Values]:
        return ctx.tools.anthropic([SCHEMA])

    def request(self, ctx: quire.Context, tools: list[Values], beside: int) -> Values:
        view = ctx.render(model=MODEL, reserve=beside).anthropic(cache=True, model=MODEL)
        return {"model": MODEL, "max_tokens": 500, "tools": tools, **view}

    def ask(self, request: Values) -> object:
        return self._client.messages.create(**request)

    def complete(self, ctx: quire.Context) -> object:
        return complete(self._client, ctx, model=MODEL, max_tokens=500, tools=[SCHEMA], functions={"look": look})


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for the turns: the client alone, quire by hand, and both in one call."""
    with endpoint(_answer) as url, Anthropic(base_url=url, api_key="none") as client:
        return measured(_Sdk(client), folder, count)


def _answer(body: Values) -> Values:
    last = body["messages"][-1]["content"][-1]
    block: Values = {"type": "text", "text": "So it is."}
    if last["type"] == "text":
        name = "c_" + last["text"].replace(" ", "_")
        block = {"type": "tool_use", "id": name, "name": "look", "input": {"what": last["text"]}}
    usage = {"input_tokens": 4_000, "output_tokens": 9}
    answer = {"id": "1", "type": "message", "role": "assistant", "model": MODEL, "content": [block]}
    return {**answer, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
