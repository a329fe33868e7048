"""quire's tools as a toolset of pydantic-ai's."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from quire.adapters.shared.opening import installed
from quire.adapters.shared.shelf import Followed
from quire.agent.tools import Tools
from quire.aio import CallQueue
from quire.context import Context

with installed("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema


class _Anything:
    """Takes whatever a model sent: the tools look at it themselves, and tell the model what is wrong with it."""

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Any:  # noqa: A002 - the framework's word
        """What the text says as JSON; the text if it is none, or null, which the framework does not expect."""
        with suppress(ValueError):
            if (said := _ANY.validate_json(input, **options)) is not None:
                return said
        return input if isinstance(input, str) else bytes(input).decode(errors="replace")

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002
        """What was sent."""
        return input


_ANY = SchemaValidator(core_schema.any_schema())
_ANYTHING = _Anything()


class QuireToolset(AbstractToolset[Any]):
    """The tools of a context's agent: all of them, or those named."""

    def __init__(
        self,
        ctx: Context | Callable[[RunContext[Any]], Awaitable[Followed[Any]]],
        *,
        tools: bool | Sequence[str] = True,
        id: str | None = "quire",  # noqa: A002 - the word the framework has
    ) -> None:
        self._where = ctx
        self._chosen = tools
        self._id = id
        self._lane = CallQueue()

    @property
    def id(self) -> str | None:
        """The name of the toolset."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools that the context of the run has."""
        tools, lane = await self._tools(ctx)
        found: dict[str, ToolsetTool[Any]] = {}
        for schema in await lane.run(tools.openai):
            function = schema["function"]
            definition = ToolDefinition(
                name=function["name"],
                description=function["description"],
                parameters_json_schema=function["parameters"],
            )
            found[definition.name] = ToolsetTool(
                toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING
            )
        return found

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run a tool; whatever the model sent, this answers it."""
        tools, lane = await self._tools(ctx)
        return await lane.run(tools.call, name, tool_args)

    async def _tools(self, ctx: RunContext[Any]) -> tuple[Tools, CallQueue]:
        if isinstance(self._where, Context):
            context, lane = self._where, self._lane
        else:
            followed = await self._where(ctx)
            context, lane = followed.ctx, followed.lane
        return context.tools if isinstance(self._chosen, bool) else context.tools.only(*self._chosen), lane
