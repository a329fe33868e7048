"""Tools with names that providers refuse, and replies of thinking alone, with the real SDKs and the strict provider."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

import quire
from quire.adapters import anthropic, openai
from quire.adapters.turns import TurnOptions
from tests.strict_provider import Body, Call, Reply, StrictProvider

NAME = "mcp.server/tool name"
SCHEMA: Body = {"type": "object", "properties": {"a": {"type": "integer"}}}
Ask = Callable[[quire.Context, TurnOptions], Any]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[StrictProvider]:
    with StrictProvider() as made:
        yield made


@pytest.fixture(params=["chat", "responses", "anthropic"])
def ask(request: pytest.FixtureRequest, endpoint: StrictProvider) -> Iterator[Ask]:
    endpoint.forget()
    functions = {NAME: lambda a: a + 1}
    if request.param == "anthropic":
        tool: Body = {"name": NAME, "input_schema": SCHEMA}
        with Anthropic(base_url=endpoint.url, api_key="none", max_retries=0) as claude:
            yield lambda ctx, options: anthropic.complete(
                claude, ctx, model="m", max_tokens=99, tools=[tool], functions=functions, options=options
            )
        return
    with OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0) as client:
        if request.param == "chat":
            tool = {"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}
            yield lambda ctx, options: openai.complete(
                client, ctx, model="m", tools=[tool], functions=functions, options=options
            )
        else:
            tool = {"type": "function", "name": NAME, "parameters": SCHEMA, "strict": False}
            yield lambda ctx, options: openai.respond(
                client, ctx, model="m", tools=[tool], functions=functions, options=options
            )


def name_sent(body: Body) -> str:
    tool = body["tools"][-1]
    return str(tool.get("function", tool)["name"])


@pytest.mark.parametrize("own", [True, False])
def test_a_tool_with_a_refused_name_is_called_and_run(ask: Ask, endpoint: StrictProvider, own: bool) -> None:
    ctx = quire.open("memory:")
    answers = iter([True, False])

    def script(body: Body) -> Reply:
        return Reply(calls=(Call("c1", name_sent(body), {"a": 1}),)) if next(answers) else Reply("Two.")

    endpoint.script = script
    ctx.user("Add one to 1.")
    ask(ctx, TurnOptions(tools=own))
    assert endpoint.refused == []
    calls = [call for message in ctx.messages() for call in message.tool_calls]
    assert [call.name for call in calls] == [NAME]
    assert [message.content for message in ctx.messages() if message.role == "tool"] == ["2"]
    assert name_sent(endpoint.requests[-1]) in str(
        endpoint.requests[-1].get("messages") or endpoint.requests[-1]["input"]
    )


def test_a_reply_of_thinking_alone_is_not_sent(ask: Ask, endpoint: StrictProvider) -> None:
    ctx = quire.open("memory:")
    endpoint.script = lambda _: Reply(thinking=("Hm.",), truncated=True)
    ctx.user("Think.")
    ask(ctx, TurnOptions(tools=False))
    ask(ctx, TurnOptions(tools=False))
    endpoint.script = lambda _: Reply("Well.", thinking=("Hm.",))
    ask(ctx, TurnOptions(tools=False))
    ctx.user("And?")
    ask(ctx, TurnOptions(tools=False))
    assert endpoint.refused == []
