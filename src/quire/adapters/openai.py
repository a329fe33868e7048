"""OpenAI SDK: a turn with a model in one call, by chat completions or the Responses API.

    ctx.user("Which flights are there?")
    reply = complete(client, ctx, model="gpt-5")

The view is sent, the answer added, its usage reported; calls of the context's tools and of yours are run, and the
model is asked again until it answers. `respond` is the same with the Responses API; `a…` are for async clients, and
`stream…` give what arrives as it arrives.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from quire.adapters.context_pool import installed
from quire.adapters.turns import Functions, Turn, TurnOptions, Values
from quire.agent.tools import Tools
from quire.context import Context
from quire.view.view import View

with installed("openai"):
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

__all__ = [
    "TurnOptions",
    "acomplete",
    "arespond",
    "astream",
    "astream_response",
    "complete",
    "respond",
    "stream",
    "stream_response",
]

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class _Chat(Turn[ChatCompletion]):
    """A turn by chat completions."""

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        return tools.openai(beside)

    def written(self, view: View) -> Values:
        return {"messages": view.openai()}

    def is_empty(self, answer: ChatCompletion) -> bool:
        return not answer.choices


class _Responses(Turn[Response]):
    """A turn by the Responses API."""

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        return tools.responses(beside)

    def written(self, view: View) -> Values:
        return {"input": view.responses(model=self.model)}

    def is_empty(self, answer: Response) -> bool:
        return not answer.output or answer.status == "failed"


# Chat completions


def complete(
    client: "OpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> ChatCompletion:
    """Ask the model until it answers; the last answer. `more` goes to `client.chat.completions.create`.

    `tools` are the schemas of your tools and `functions` what runs them, by name. A call that nobody here can run ends
    the turn: give its result with `ctx.tool_result` and call this again. Raises what the client raises, and
    `QuotaExceeded` if there are too many requests in one turn.
    """
    turn = _Chat(ctx, model, tools, functions, options, more)
    while turn.settle():
        turn.take(client.chat.completions.create(**turn.request(), **more))
    return turn.answered()


def stream(
    client: "OpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> Iterator[ChatCompletionChunk]:
    """`complete`, with every chunk as it arrives. An answer that was not read to its end is not added."""
    turn = _Chat(ctx, model, tools, functions, options, more)
    sent = {"stream": True, "stream_options": {"include_usage": True}, **more}
    while turn.settle():
        state = ChatCompletionStreamState[None]()
        with client.chat.completions.create(**turn.request(), **sent) as chunks:
            for chunk in chunks:
                state.handle_chunk(chunk)
                yield chunk
        turn.take(_assembled(state))


async def acomplete(
    client: "AsyncOpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> ChatCompletion:
    """`complete` with an async client; functions may be async too."""
    turn = _Chat(ctx, model, tools, functions, options, more)
    while await turn.asettle():
        request = await turn.lane.run(turn.request)
        answer = await client.chat.completions.create(**request, **more)
        await turn.lane.run(turn.take, answer)
    return turn.answered()


async def astream(
    client: "AsyncOpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> AsyncIterator[ChatCompletionChunk]:
    """`stream` with an async client; functions may be async too."""
    turn = _Chat(ctx, model, tools, functions, options, more)
    sent = {"stream": True, "stream_options": {"include_usage": True}, **more}
    while await turn.asettle():
        state = ChatCompletionStreamState[None]()
        request = await turn.lane.run(turn.request)
        async with await client.chat.completions.create(**request, **sent) as chunks:
            async for chunk in chunks:
                state.handle_chunk(chunk)
                yield chunk
        await turn.lane.run(turn.take, _assembled(state))


def _assembled(state: "ChatCompletionStreamState[None]") -> ChatCompletion:
    """The answer that the chunks are together, without the places that calls have in chunks alone.

    Some endpoints do not say whose answer it is: it is the assistant's.
    """
    answer = state.current_completion_snapshot.to_dict()
    for choice in cast(list[Values], answer["choices"]):
        choice["message"]["role"] = choice["message"].get("role") or "assistant"
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index", None)
    return ChatCompletion.model_validate(answer)


# Responses


def respond(
    client: "OpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> Response:
    """`complete` by the Responses API; `more` goes to `client.responses.create`. What failed is not added."""
    turn = _Responses(ctx, model, tools, functions, options, more)
    while turn.settle():
        turn.take(client.responses.create(**turn.request(), **more))
    return turn.answered()


def stream_response(
    client: "OpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> Iterator[ResponseStreamEvent]:
    """`respond`, with every event as it arrives. An answer that was not read to its end is not added."""
    turn = _Responses(ctx, model, tools, functions, options, more)
    while turn.settle():
        with client.responses.create(**turn.request(), stream=True, **more) as events:
            for event in events:
                if event.type in _ENDS:
                    turn.take(event.response)
                yield event
        turn.check_answered()


async def arespond(
    client: "AsyncOpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> Response:
    """`respond` with an async client; functions may be async too."""
    turn = _Responses(ctx, model, tools, functions, options, more)
    while await turn.asettle():
        request = await turn.lane.run(turn.request)
        answer = await client.responses.create(**request, **more)
        await turn.lane.run(turn.take, answer)
    return turn.answered()


async def astream_response(
    client: "AsyncOpenAI",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    **more: Any,
) -> AsyncIterator[ResponseStreamEvent]:
    """`stream_response` with an async client; functions may be async too."""
    turn = _Responses(ctx, model, tools, functions, options, more)
    while await turn.asettle():
        request = await turn.lane.run(turn.request)
        async with await client.responses.create(**request, stream=True, **more) as events:
            async for event in events:
                if event.type in _ENDS:
                    await turn.lane.run(turn.take, event.response)
                yield event
        turn.check_answered()
