"""quire for asyncio: the same faces, awaited. Nothing is implemented twice.

    async with quire.aio.open("agent.db", "support-42", budget=8_000) as ctx:
        await ctx.user("I want to fly to Seattle on May 20.")
        view = await ctx.render()
        async for entry in ctx.history():
            ...

Every call is made by one of a few threads, a context's calls one after another, so the event loop never waits. A call
that is cancelled was made, or was not; nothing is ever half done. The types are in the stub beside this file, which is
made from the faces themselves.
"""

from quire.aio.doors import (
    AgentContext,
    Context,
    ContextSystem,
    Conversation,
    Library,
    Opening,
    Tools,
    Windows,
    open,  # noqa: A004 - as quire.open
)
from quire.aio.faces import Block, Stream

__all__ = [
    "AgentContext",
    "Block",
    "Context",
    "ContextSystem",
    "Conversation",
    "Library",
    "Opening",
    "Stream",
    "Tools",
    "Windows",
    "open",
]
