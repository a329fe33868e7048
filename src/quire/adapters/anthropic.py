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
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from quire.adapters.memories import Memories, Refused
from quire.adapters.opening import installed
from quire.adapters.turns import Functions, Turn, TurnOptions, Values
from quire.agent.facade import AgentContext
from quire.agent.tools import Tools
from quire.aio.lanes import Lane
from quire.context import Context
from quire.errors import shown
from quire.pages import PageIndex
from quire.providers import parse
from quire.rendering import View

with installed("anthropic"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types import Message
    from pydantic import ValidationError

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818Command,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

__all__ = ["QuireAsyncMemoryTool", "QuireMemoryTool", "TurnOptions", "acomplete", "astream", "complete", "stream"]

Result = TypeVar("Result")


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


# The memory tool


class QuireMemoryTool(BetaAbstractMemoryTool):
    """The memory tool with pages of a context for files.

    `/memories` is the folder `memories` of the agent's notes, or the one whose index is given. `agent` is who the
    model acts as there, with its rights and quota. Everything it does is in the journal, and `ctx.undo` undoes it.
    """

    def __init__(
        self,
        ctx: Context,
        folder: PageIndex | None = None,
        *,
        agent: AgentContext | None = None,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self.memories = Memories(ctx, folder, agent)

    def execute(self, command: "BetaMemoryTool20250818Command") -> Any:
        """Carry out a command. Raises `ToolError` with what the model is to be told."""
        return _told(lambda: super(QuireMemoryTool, self).execute(command))

    def view(self, command: "BetaMemoryTool20250818ViewCommand") -> str:
        """A directory two levels deep, or a file with its lines numbered."""
        return self.memories.view(command.path, command.view_range)

    def create(self, command: "BetaMemoryTool20250818CreateCommand") -> str:
        """A new file."""
        return self.memories.create(command.path, command.file_text)

    def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> str:
        """Another text in the place of one."""
        return self.memories.str_replace(command.path, command.old_str, command.new_str)

    def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> str:
        """A text after a line."""
        return self.memories.insert(command.path, command.insert_line, command.insert_text)

    def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> str:
        """A file or a directory away."""
        return self.memories.delete(command.path)

    def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> str:
        """A file or a directory by another name, or in another place."""
        return self.memories.rename(command.old_path, command.new_path)

    def clear_all_memory(self) -> str:
        """All files away."""
        return _told(self.memories.clear)


class QuireAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """`QuireMemoryTool` for async clients: the work is done in a thread, one command after the other."""

    def __init__(
        self,
        ctx: Context,
        folder: PageIndex | None = None,
        *,
        agent: AgentContext | None = None,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = QuireMemoryTool(ctx, folder, agent=agent)
        self._lane = Lane()

    @property
    def memories(self) -> Memories:
        """The files."""
        return self._tool.memories

    async def execute(self, command: "BetaMemoryTool20250818Command") -> Any:
        """Carry out a command. Raises `ToolError` with what the model is to be told."""
        return await self._lane.run(self._tool.execute, command)

    async def view(self, command: "BetaMemoryTool20250818ViewCommand") -> Any:
        """A directory two levels deep, or a file with its lines numbered."""
        return await self.execute(command)

    async def create(self, command: "BetaMemoryTool20250818CreateCommand") -> Any:
        """A new file."""
        return await self.execute(command)

    async def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> Any:
        """Another text in the place of one."""
        return await self.execute(command)

    async def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> Any:
        """A text after a line."""
        return await self.execute(command)

    async def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> Any:
        """A file or a directory away."""
        return await self.execute(command)

    async def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> Any:
        """A file or a directory by another name, or in another place."""
        return await self.execute(command)

    async def clear_all_memory(self) -> str:
        """All files away."""
        return await self._lane.run(self._tool.clear_all_memory)


def _told(command: Callable[[], Result]) -> Result:
    """Carry out a command; what was wrong with it is told to the model."""
    try:
        return command()
    except Refused as error:
        raise ToolError(str(error)) from None
    except (AttributeError, NotImplementedError, TypeError) as error:  # a field is missing, or of another type
        raise ToolError(f"Invalid memory command: {error}") from error


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
        told = (f"{'.'.join(map(str, one['loc']))}: {one['msg']} (it is {shown(one['input'])})" for one in found)
        raise ToolError(f"InvalidValue: {error}: {'; '.join(told)}.") from error
