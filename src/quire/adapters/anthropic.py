"""Anthropic SDK: a turn with a model in one call, and the memory tool with a context behind it.

    ctx.user("Which flights are there?")
    reply = complete(client, ctx, model="claude-sonnet-5", max_tokens=1_000, tools=[QuireMemoryTool(ctx)])

The view is sent with cache marks, the answer added, its usage reported; calls of the context's tools and of yours are
run, and the model is asked again until it answers. `a…` are for async clients, `stream…` give what arrives as it
arrives. `client` can be `client.beta` too.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from quire.adapters.anthropic_memory import QuireAsyncMemoryTool, QuireMemoryTool
from quire.adapters.context_pool import installed
from quire.adapters.turns import Functions, Turn, TurnOptions, Values
from quire.agent.tools import Tools
from quire.context import Context
from quire.errors import short_repr
from quire.providers import parse
from quire.view.view import View

with installed("anthropic"):
    from anthropic.lib.tools import ToolError
    from anthropic.types import Message
    from pydantic import ValidationError

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic


__all__ = ["QuireAsyncMemoryTool", "QuireMemoryTool", "TurnOptions", "acomplete", "astream", "complete", "stream"]


class _Messages(Turn[Message]):
    """A turn by Anthropic's messages."""

    def __init__(
        self,
        ctx: Context,
        model: str,
        tools: Iterable[Any],
        functions: Functions | None,
        options: TurnOptions | None,
        cache: bool,
        more: Values,
    ) -> None:
        listed = list(tools)
        runnable = {tool.name: _by_name(tool) for tool in listed if _is_runnable(tool)}
        schemas = [tool.to_dict() if _is_runnable(tool) else tool for tool in listed]
        super().__init__(ctx, model, schemas, {**runnable, **(functions or {})}, options, more)
        self._cache = cache

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        return tools.anthropic(beside)

    def written(self, view: View) -> Values:
        return {**view.anthropic(cache=self._cache, model=self.model)}

    def is_empty(self, answer: Message) -> bool:
        return not answer.content

    def refusal(self, error: Exception) -> Any:
        return error.content if isinstance(error, ToolError) else None

    def give(self, call_id: str, content: Any, failed: bool) -> None:
        if failed:
            block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": True}
            (result,) = parse({"role": "user", "content": [block]})
            self.ctx.add(replace(result, joined=self.ends_with_result()))  # all results go in one message there
        else:
            super().give(call_id, content, failed)


def complete(
    client: "Anthropic",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> Message:
    """Ask the model until it answers; the last answer. `more` goes to `client.messages.create`: `max_tokens=…`.

    `tools` are schemas of your tools, with `functions` that run them by name, or tools that the SDK can run itself
    (`@beta_tool`, a memory tool). With `cache` the request is marked where caching pays. A call that nobody here can
    run ends the turn: give its result with `ctx.tool_result` and call this again. Raises what the client raises, and
    `QuotaExceeded` if there are too many requests in one turn.
    """
    turn = _Messages(ctx, model, tools, functions, options, cache, more)
    while turn.settle():
        turn.take(client.messages.create(**turn.request(), **more))
    return turn.answered()


def stream(
    client: "Anthropic",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> Iterator[Any]:
    """`complete`, with every event as it arrives. An answer that was not read to its end is not added."""
    turn = _Messages(ctx, model, tools, functions, options, cache, more)
    while turn.settle():
        with client.messages.stream(**turn.request(), **more) as events:
            yield from events
            turn.take(events.get_final_message())


async def acomplete(
    client: "AsyncAnthropic",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> Message:
    """`complete` with an async client; functions and tools may be async too."""
    turn = _Messages(ctx, model, tools, functions, options, cache, more)
    while await turn.asettle():
        request = await turn.lane.run(turn.request)
        answer = await client.messages.create(**request, **more)
        await turn.lane.run(turn.take, answer)
    return turn.answered()


async def astream(
    client: "AsyncAnthropic",
    ctx: Context,
    *,
    model: str,
    tools: Iterable[Any] = (),
    functions: Functions | None = None,
    options: TurnOptions | None = None,
    cache: bool = True,
    **more: Any,
) -> AsyncIterator[Any]:
    """`stream` with an async client; functions and tools may be async too."""
    turn = _Messages(ctx, model, tools, functions, options, cache, more)
    while await turn.asettle():
        request = await turn.lane.run(turn.request)
        async with client.messages.stream(**request, **more) as events:
            async for event in events:
                yield event
            await turn.lane.run(turn.take, await events.get_final_message())


def _is_runnable(tool: Any) -> bool:
    return not isinstance(tool, dict) and callable(getattr(tool, "to_dict", None)) and callable(tool.call)


def _by_name(tool: Any) -> Callable[..., Any]:
    """What runs a tool of the SDK: it wants its arguments in one piece, and wrong ones are the model's to mend."""

    async def awaited(**arguments: Any) -> Any:
        found: Awaitable[Any] = tool.call(arguments)
        with _wrong_arguments_told():
            return await found

    def called(**arguments: Any) -> Any:
        with _wrong_arguments_told():
            return tool.call(arguments)

    return awaited if iscoroutinefunction(tool.call) else called


@contextmanager
def _wrong_arguments_told() -> Iterator[None]:
    """A block where the SDK checks arguments: it says that some are wrong, and the model is told which."""
    try:
        yield
    except ValueError as error:
        wrong = error.__cause__
        if not isinstance(wrong, ValidationError) or not str(error).startswith("Invalid arguments for function "):
            raise
        found = wrong.errors(include_url=False, include_context=False)
        told = (f"{'.'.join(map(str, one['loc']))}: {one['msg']} (it is {short_repr(one['input'])})" for one in found)
        raise ToolError(f"InvalidValue: {error}: {'; '.join(told)}.") from error
