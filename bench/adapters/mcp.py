"""The MCP server: a tool that does nothing, the same calls of quire's tools by hand, and both over stdio."""

import asyncio
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import quire

_EMPTY = """
import asyncio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

async def listed(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="nothing", input_schema={"type": "object"})])

async def called(ctx, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text="nothing")])

async def main():
    server = Server("empty", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

asyncio.run(main())
"""
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("find", {"query": "seat 7"}),
    ("read_page", {"page": "mem-7"}),
    ("write_page", {"page": "mem-8", "text": "an aisle seat"}),
)
"""The calls of one turn."""
_WARM = 20


def turns(folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for turns of three calls: the protocol alone, quire by hand, and quire over the protocol."""
    paths = folder / "hand.db", folder / "served.db"
    for path in paths:
        _fill(path)
    return asyncio.run(_measured(*paths, count))


async def _measured(hand: Path, served: Path, count: int) -> tuple[float, float, float]:
    """Return the median turn of each, times `count`. Turns alternate, so that other load of the machine affects all."""
    taken: list[tuple[float, float, float]] = []
    with quire.open(hand) as ctx:
        tools = ctx.tools_of(ctx.as_agent(quota=quire.Quota(calls=1 << 30)))
        async with _client("-c", _EMPTY) as empty, _client("-m", "quire", "mcp", str(served)) as client:
            for _ in range(_WARM + count):
                start = time.perf_counter()
                for _ in _CALLS:
                    await empty.call_tool("nothing", {})
                told = time.perf_counter()
                for name, arguments in _CALLS:
                    ctx.refresh()
                    tools.call(name, arguments)
                done = time.perf_counter()
                for name, arguments in _CALLS:
                    await client.call_tool(name, arguments)
                taken.append((told - start, done - told, time.perf_counter() - done))
    alone, by_hand, over = (count * median(times) for times in zip(*taken[_WARM:], strict=True))
    return alone, by_hand, over


def _client(*words: str) -> Client:
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=list(words))))


def _fill(path: Path) -> None:
    with quire.open(path) as ctx:
        for number in range(200):
            ctx.pages.create_detail_page(f"seat {number}", "", f"a window seat, number {number}", "mem-0")
