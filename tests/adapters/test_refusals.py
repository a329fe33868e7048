"""What an adapter refuses at once: wrong arguments, functions that no model can call, wrong clients."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

import quire
from quire import aio
from quire.adapters import anthropic, openai
from quire.adapters.openai import TurnOptions
from tests.strict_provider import Body, Call, Reply, StrictProvider

NAME = "mcp.server/tool name"
SCHEMA: Body = {"type": "object", "properties": {"a": {"type": "integer"}}}
Ask = Callable[..., Any]


@pytest.fixture
def ctx() -> quire.Context:
    made = quire.open("memory:", budget=4_000)
    made.user("Hello?")
    return made


def open_socket(name: str, connection: threading.Thread) -> None: ...


def unknown_type(name: "Nmae") -> None: ...  # type: ignore[name-defined] # noqa: F821


def any_number(*names: str) -> None: ...


def any_names(**names: str) -> None: ...


def by_place(name: str, /) -> None: ...


WRONG: list[dict[str, Any]] = [
    *({"tools": [each]} for each in (open_socket, unknown_type, any_number, any_names, by_place)),
    {"tools": [lambda name: name]},
    {"tools": [len, len]},
    {"tools": 5},
    {"tools": "xy"},
    {"tools": [5]},
    {"options": {"a": 1}},
    {"options": ()},
    {"on_error": "show"},
    {"stream": True},
    {"messages": []},
    {"system": "Be brief."},
    {"input": "你好"},
]


@pytest.mark.parametrize("given", WRONG, ids="".join)
def test_a_wrong_argument_of_a_turn_is_refused_before_the_turn(
    given: dict[str, Any], ctx: quire.Context, client: OpenAI, claude: Anthropic, endpoint: StrictProvider
) -> None:
    name = next(iter(given))
    asks: list[Callable[[], Any]] = [
        lambda: openai.complete(client, ctx, model="m", **given),
        lambda: openai.respond(client, ctx, model="m", **given),
        lambda: list(openai.stream(client, ctx, model="m", **given)),
        lambda: anthropic.complete(claude, ctx, model="m", max_tokens=10, **given),
    ]
    for ask in asks:
        with pytest.raises(quire.InvalidValue) as error:
            ask()
        assert error.value.argument is None or name in error.value.argument
    assert endpoint.requests == []
    assert len(ctx.messages()) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("requests", "x"),
        ("requests", 0),
        ("requests", True),
        ("wait", "x"),
        ("wait", -1),
        ("tools", "find"),
        ("render", 5),
        ("render", {"reserve": "x"}),
        ("render", {"recal": True}),
    ],
)
def test_a_wrong_option_of_a_turn_is_refused_before_the_turn(field: str, value: Any) -> None:
    with pytest.raises(quire.InvalidValue):
        TurnOptions(**{field: value})


@pytest.mark.asyncio
async def test_a_client_or_a_context_of_the_other_kind_is_refused(
    ctx: quire.Context, client: OpenAI, claude: Anthropic, endpoint: StrictProvider
) -> None:
    async with (
        AsyncOpenAI(base_url=endpoint.url, api_key="none") as other,
        AsyncAnthropic(base_url=endpoint.url, api_key="none") as other_claude,
    ):
        asks: list[Ask] = [
            lambda: openai.complete(other, ctx, model="m"),  # type: ignore[arg-type]
            lambda: openai.respond(other, ctx, model="m"),  # type: ignore[arg-type]
            lambda: next(openai.stream(other, ctx, model="m")),  # type: ignore[arg-type]
            lambda: anthropic.complete(other_claude, ctx, model="m", max_tokens=9),  # type: ignore[arg-type]
            lambda: openai.complete(client, aio.open("memory:"), model="m"),  # type: ignore[arg-type]
        ]
        for ask in asks:
            with pytest.raises(quire.InvalidValue):
                ask()
    with pytest.raises(quire.InvalidValue):
        await openai.acomplete(client, ctx, model="m")  # type: ignore[arg-type]
    with pytest.raises(quire.InvalidValue):
        await anext(openai.astream(client, ctx, model="m"))  # type: ignore[arg-type]
    assert len(ctx.messages()) == 1


@pytest.fixture(params=["chat", "responses", "anthropic"])
def ask(request: pytest.FixtureRequest, endpoint: StrictProvider, client: OpenAI, claude: Anthropic) -> Iterator[Ask]:
    """Ask with a tool whose name every provider refuses."""
    functions = {NAME: lambda a: a + 1}
    endpoint.forget()
    if request.param == "anthropic":
        tool: Body = {"name": NAME, "input_schema": SCHEMA}
        yield lambda ctx, options: anthropic.complete(
            claude, ctx, model="m", max_tokens=99, tools=[tool], functions=functions, options=options
        )
    elif request.param == "chat":
        tool = {"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}
        yield lambda ctx, options: openai.complete(
            client, ctx, model="m", tools=[tool], functions=functions, options=options
        )
    else:
        tool = {"type": "function", "name": NAME, "parameters": SCHEMA, "strict": False}
        yield lambda ctx, options: openai.respond(
            client, ctx, model="m", tools=[tool], functions=functions, options=options
        )


@pytest.mark.parametrize("own", [True, False])
def test_a_tool_with_a_name_that_providers_refuse_is_called_and_run(
    ask: Ask, endpoint: StrictProvider, ctx: quire.Context, own: bool
) -> None:
    def name_sent(body: Body) -> str:
        tool = body["tools"][-1]
        return str(tool.get("function", tool)["name"])

    answers = iter([True, False])
    endpoint.script = lambda body: (
        Reply(calls=(Call("c1", name_sent(body), {"a": 1}),)) if next(answers) else Reply("Two.")
    )
    ask(ctx, TurnOptions(tools=own))
    assert endpoint.refused == []
    assert [call.name for message in ctx.messages() for call in message.tool_calls] == [NAME]
    assert [message.content for message in ctx.messages() if message.role == "tool"] == ["2"]


def test_a_reply_of_thinking_alone_is_not_sent(ask: Ask, endpoint: StrictProvider, ctx: quire.Context) -> None:
    endpoint.script = lambda _: Reply(thinking=("Hm.",), truncated=True)
    ask(ctx, TurnOptions(tools=False))
    ask(ctx, TurnOptions(tools=False))
    endpoint.script = lambda _: Reply("Well.", thinking=("Hm.",))
    ask(ctx, TurnOptions(tools=False))
    ctx.user("And?")
    ask(ctx, TurnOptions(tools=False))
    assert endpoint.refused == []
