"""Use a context from any MCP client: it starts `quire mcp` over stdio, searches, writes, and is notified of changes."""

import asyncio
import sys
from tempfile import TemporaryDirectory

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import quire


async def main(store: str) -> None:
    served = StdioServerParameters(command=sys.executable, args=["-m", "quire", "mcp", store])
    async with Client(stdio_client(served)) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        found = await client.call_tool("find", {"query": "西雅图"})
        print("find:", found.content[0].text)
        written = await client.call_tool("write_page", {"name": "Seat", "text": "She wants a window seat."})
        print("write_page:", written.content[0].text)
        refused = await client.call_tool("read_page", {"page": "mem-99"})
        print("refused:", refused.is_error, refused.content[0].text)

        note = "quire://support-42/mem-1"
        async with client.listen(resource_subscriptions=[note]) as changes:
            with quire.open(store, "support-42") as ctx:  # this can be the agent or any other process
                ctx.pages.set_detail("mem-1", "She wants an aisle seat now.")
            print("changed:", (await anext(aiter(changes))).uri)
        print("read:", (await client.read_resource(note)).contents[0].text)


with TemporaryDirectory() as folder:
    with quire.open(f"{folder}/agent.db", "support-42") as ctx:
        ctx.user("我想在 5 月 20 日飞往西雅图。")
    asyncio.run(main(f"{folder}/agent.db"))
