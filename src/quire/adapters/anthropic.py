"""Anthropic SDK: a turn with a model in one call, and the memory tool with pages of a context as files.

    ctx.user("Which flights are there?")
    reply = complete(client, ctx, model="claude-sonnet-5", max_tokens=1_000, tools=[QuireMemoryTool(ctx)])

A turn sends the view with cache marks, adds the answer and reports its usage. It runs the calls of the context's tools
and of yours, and asks the model again until it answers. The functions with `a…` are for async clients; those with
`stream…` yield events as they arrive. `client` may be `client.beta`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from quire.adapters.anthropic_memory import QuireAsyncMemoryTool, QuireMemoryTool
from quire.adapters.context_pool import AnyContext, requires_extra
from quire.adapters.turns import Functions, OnError, ToolRuns, Turn, TurnOptions, Values
from quire.agent.tools import Tools
from quire.errors import short_repr
from quire.model import messages as quire_messages
from quire.providers import parse
from quire.providers.tool_schemas import list_tools
from quire.view.view import View

with requires_extra("anthropic"):
    from anthropic.lib.tools import ToolError
    from anthropic.types import Message
    from pydantic import ValidationError

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic


__all__ = ["QuireAsyncMemoryTool", "QuireMemoryTool", "TurnOptions", "acomplete", "astream", "complete", "stream"]


class _Messages(Turn[Message]):
    """A turn with Anthropic messages."""

    own_options = (*Turn.own_options, "cache")

    def __init__(
        self,
        ctx: AnyContext,
        model: str,
        tools: Iterable[Any],
        runs: ToolRuns,
        options: TurnOptions | None,
        cache: bool,
        more: Values,
        create: Callable[..., Any],
    ) -> None:
        listed = list_tools(tools)
        runnable = {tool.name: _runner(tool) for tool in listed if _is_runnable(tool)}
        schemas = [tool.to_dict() if _is_runnable(tool) else tool for tool in listed]
        runs = runs._replace(functions={**runnable, **(runs.functions or {})})
        super().__init__(ctx, model, schemas, runs, options, more, create)
        self._cache = cache

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        return tools.anthropic(beside)

    def format_view(self, view: View) -> Values:
        return view.anthropic(cache=self._cache, model=self.model)

    def is_empty(self, answer: Message) -> bool:
        return not answer.content

    def stored_answer(self, message: quire_messages.Message) -> Message:
        stored = {"id": "", "type": "message", "role": "assistant", "model": self.model, "stop_reason": "end_turn"}
        usage = {"input_tokens": 0, "output_tokens": 0}
        content = [{"type": "text", "text": message.text}]
        return Message.model_validate({**stored, "stop_sequence": None, "content": content, "usage": usage})

    def streamed_answer(self, stream: Any, events: list[Any]) -> Any:
        return stream.current_message_snapshot

    def error_content(self, error: Exception) -> Any:
        return error.content if isinstance(error, ToolError) else None

    def add_result(self, call_id: str, content: Any, failed: bool) -> None:
        if failed:
            block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": True}
            (result,) = parse({"role": "user", "content": [block]})
            self.ctx.add(replace(result, joined=self.ends_with_result()))  # Anthropic wants all results in one message
        else:
            super().add_result(call_id, content, failed)


def complete(
    client: "Anthropic",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> Message:
    """Ask the model until it answers; return the last answer. `more` goes to `client.messages.create`: `max_tokens=…`.

    `tools` are your functions, schemas that `functions` run by name, or tools that the SDK runs itself (`@beta_tool`, a
    memory tool). The schema of a function comes from its type hints and its docstring. With `on_error="tell"` the
    model gets the error of a function; otherwise it is raised. With `parallel` the calls of one answer run at the same
    time, in threads or as tasks. With `cache` the request has cache marks where caching pays. A call without a function
    ends the turn: add its result with `ctx.tool_result` and call this again.

    This is a turn of the context (see `Context.turn`) that keeps added messages. It joins an open turn. Raise the
    client's errors, `Busy` if another worker is in a turn, and `QuotaExceeded` after too many requests.
    """
    create = client.messages.create
    turn = _Messages(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, cache, more, create)
    return turn.run(lambda request: create(**request, **more))


def stream(
    client: "Anthropic",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> Iterator[Any]:
    """Run `complete` and yield every event as it arrives. An answer that is not read to its end is not added."""
    create = client.messages.stream
    turn = _Messages(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, cache, more, create)
    return turn.stream(lambda request: create(**request, **more))


async def acomplete(
    client: "AsyncAnthropic",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> Message:
    """Run `complete` with an async client; functions and tools may be async too."""
    create = client.messages.create
    turn = _Messages(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, cache, more, create)
    return await turn.arun(lambda request: create(**request, **more))


def astream(
    client: "AsyncAnthropic",
    ctx: AnyContext,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    on_error: OnError = "raise",
    parallel: bool = False,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> AsyncIterator[Any]:
    """Run `stream` with an async client; functions and tools may be async too."""
    create = client.messages.stream
    turn = _Messages(ctx, model, tools, ToolRuns(functions, on_error, parallel), options, cache, more, create)

    async def open_stream(request: Values) -> Any:
        return create(**request, **more)

    return turn.astream(open_stream)


def _is_runnable(tool: Any) -> bool:
    return not isinstance(tool, dict) and callable(getattr(tool, "to_dict", None)) and callable(tool.call)


def _runner(tool: Any) -> Callable[..., Any]:
    """Return a function that runs a tool of the SDK. Wrong arguments are an error for the model."""

    async def run_async(**arguments: Any) -> Any:
        result: Awaitable[Any] = tool.call(arguments)
        with _report_wrong_arguments():
            return await result

    def run_sync(**arguments: Any) -> Any:
        with _report_wrong_arguments():
            return tool.call(arguments)

    return run_async if iscoroutinefunction(tool.call) else run_sync


@contextmanager
def _report_wrong_arguments() -> Iterator[None]:
    """Turn the SDK's error for wrong arguments into a `ToolError` that names them."""
    try:
        yield
    except ValueError as error:
        wrong = error.__cause__
        if not isinstance(wrong, ValidationError) or not _is_raised_by_sdk(error):
            raise
        wrong_values = wrong.errors(include_url=False, include_context=False)
        problems = (
            f"{'.'.join(map(str, one['loc']))}: {one['msg']} (it is {short_repr(one['input'])})" for one in wrong_values
        )
        raise ToolError(f"InvalidValue: {error}: {'; '.join(problems)}.") from error


def _is_raised_by_sdk(error: Exception) -> bool:
    """Return whether the SDK itself raised the error, and not the tool that it ran."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] == "anthropic"
