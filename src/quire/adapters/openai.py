"""OpenAI SDK: a turn with a model in one call, with chat completions or the Responses API.

    ctx.user("Which flights are there?")
    reply = complete(client, ctx, model="gpt-5")

A turn sends the view, adds the answer and reports its usage. It runs the calls of the context's tools and of yours, and
asks the model again until it answers. `respond` does the same with the Responses API. The functions with `a…` are for
async clients; those with `stream…` yield events as they arrive.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from quire.adapters.context_pool import AnyContext, requires_extra
from quire.adapters.turns import Functions, OnError, ToolRuns, Turn, TurnOptions, Values
from quire.agent.tools import Tools
from quire.model.messages import Message
from quire.view.view import View

with requires_extra("openai"):
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
    """A turn with chat completions."""

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        return tools.openai(beside)

    def format_view(self, view: View) -> Values:
        return {"messages": view.openai()}

    def is_empty(self, answer: ChatCompletion) -> bool:
        return not answer.choices

    def stored_answer(self, message: Message) -> ChatCompletion:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": message.text}}
        stored = {"id": "", "object": "chat.completion", "created": 0, "model": self.model, "choices": [choice]}
        return ChatCompletion.model_validate(stored)

    def streamed_answer(self, stream: Any, events: list[ChatCompletionChunk]) -> ChatCompletion:
        """Return the whole answer. Some endpoints send no role: then it is the assistant's."""
        state = ChatCompletionStreamState[None]()
        for chunk in events:
            state.handle_chunk(chunk)
        answer = state.current_completion_snapshot.to_dict()
        for choice in cast(list[Values], answer["choices"]):
            choice["message"]["role"] = choice["message"].get("role") or "assistant"
            for call in choice["message"].get("tool_calls") or ():
                call.pop("index", None)  # only chunks have it
        return ChatCompletion.model_validate(answer)


class _Responses(Turn[Response]):
    """A turn with the Responses API."""

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        return tools.responses(beside)

    def format_view(self, view: View) -> Values:
        return {"input": view.responses(model=self.model)}

    def is_empty(self, answer: Response) -> bool:
        return not answer.output or answer.status == "failed"

    def stored_answer(self, message: Message) -> Response:
        text = {"type": "output_text", "text": message.text, "annotations": []}
        output = {"type": "message", "id": "", "role": "assistant", "status": "completed", "content": [text]}
        stored = {"id": "", "object": "response", "created_at": 0, "model": self.model, "status": "completed"}
        return Response.model_validate(
            {**stored, "output": [output], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        )

    def completed_answer(self, event: Any) -> Response | None:
        return event.response if event.type in _ENDS else None


# Chat completions


def complete(
    client: "OpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> ChatCompletion:
    """Ask the model until it answers; return the last answer. `more` goes to `client.chat.completions.create`.

    `tools` are your functions, or schemas that `functions` run by name. The schema of a function comes from its type
    hints and its docstring. With `on_error="tell"` the model gets the error of a function; otherwise it is raised. With
    `parallel` the calls of one answer run at the same time, in threads or as tasks. A call without a function ends the
    turn: add its result with `ctx.tool_result` and call this again.

    This is a turn of the context (see `Context.turn`) that keeps added messages. It joins an open turn. Raise the
    client's errors, `Busy` if another worker is in a turn, and `QuotaExceeded` after too many requests.
    """
    create = client.chat.completions.create
    turn = _Chat(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    return turn.run(lambda request: create(**request, **more))


def stream(
    client: "OpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> Iterator[ChatCompletionChunk]:
    """Run `complete` and yield every chunk as it arrives. An answer that is not read to its end is not added."""
    create = client.chat.completions.create
    turn = _Chat(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    sent = {"stream": True, "stream_options": {"include_usage": True}, **more}
    return turn.stream(lambda request: create(**request, **sent))


async def acomplete(
    client: "AsyncOpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> ChatCompletion:
    """Run `complete` with an async client; functions may be async too."""
    create = client.chat.completions.create
    turn = _Chat(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    return await turn.arun(lambda request: create(**request, **more))


def astream(
    client: "AsyncOpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> AsyncIterator[ChatCompletionChunk]:
    """Run `stream` with an async client; functions may be async too."""
    create = client.chat.completions.create
    turn = _Chat(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    sent = {"stream": True, "stream_options": {"include_usage": True}, **more}
    return turn.astream(lambda request: create(**request, **sent))


# Responses


def respond(
    client: "OpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> Response:
    """Run `complete` with the Responses API; `more` goes to `client.responses.create`. A failed answer is not added."""
    create = client.responses.create
    turn = _Responses(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    return turn.run(lambda request: create(**request, **more))


def stream_response(
    client: "OpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> Iterator[ResponseStreamEvent]:
    """Run `respond` and yield every event as it arrives. An answer that is not read to its end is not added."""
    create = client.responses.create
    turn = _Responses(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    return turn.stream(lambda request: create(**request, stream=True, **more))


async def arespond(
    client: "AsyncOpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> Response:
    """Run `respond` with an async client; functions may be async too."""
    create = client.responses.create
    turn = _Responses(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    return await turn.arun(lambda request: create(**request, **more))


def astream_response(
    client: "AsyncOpenAI",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    **more: Any,
) -> AsyncIterator[ResponseStreamEvent]:
    """Run `stream_response` with an async client; functions may be async too."""
    create = client.responses.create
    turn = _Responses(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, more, create)
    return turn.astream(lambda request: create(**request, stream=True, **more))
