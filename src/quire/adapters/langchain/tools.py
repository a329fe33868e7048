"""quire's tools as LangChain's."""

from collections.abc import Awaitable, Callable
from typing import Any

from quire.adapters.shared.opening import installed
from quire.agent.tools import Tools
from quire.aio import CallQueue
from quire.context import Context

with installed("langchain"):
    from langchain_core.tools import BaseTool, StructuredTool


def tools_of(ctx: Context, tools: Tools | None = None) -> list[BaseTool]:
    """The tools of a context's agent, or those given (`ctx.tools.only(…)`), for a LangChain agent or model."""
    chosen, lane = ctx.tools if tools is None else tools, CallQueue()

    async def in_lane() -> tuple[Tools, CallQueue]:
        return chosen, lane

    return [structured(schema, lambda: chosen, in_lane) for schema in chosen.openai()]


def structured(
    schema: dict[str, Any], found: Callable[[], Tools], in_lane: Callable[[], Awaitable[tuple[Tools, CallQueue]]]
) -> BaseTool:
    """A tool with this schema that runs the one of its name among the tools found when it is called.

    Async code calls them in the lane that `in_lane` tells with them.
    """
    function = schema["function"]
    name: str = function["name"]

    def run(**arguments: Any) -> str:
        return found().call(name, arguments)

    async def arun(**arguments: Any) -> str:
        tools, lane = await in_lane()
        return await lane.run(tools.call, name, arguments)

    return StructuredTool(
        name=name, description=function["description"], args_schema=function["parameters"], func=run, coroutine=arun
    )
