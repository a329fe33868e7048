"""quire for asyncio: the same faces, awaited. Nothing is implemented twice.

    async with quire.aio.open("agent.db", "support-42", budget=8_000) as ctx:
        await ctx.user("I want to fly to Seattle on May 20.")
        view = await ctx.render()
        async for entry in ctx.history():
            ...

Every call is made by one of a few threads, a context's calls one after another, so the event loop never waits, not even
for the imports: whatever opens a context has a thread do them. A call
that is cancelled was made, or was not; nothing is ever half done. The types are in the stub beside this file, which is
made from the faces themselves.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quire.aio.entrance import Library, Opening, loads, open  # noqa: A004 - as quire.open
from quire.aio.faces import Block, Stream

if TYPE_CHECKING:
    from quire.aio.doors import AgentContext, Context, ContextSystem, Conversation, Tools, Windows

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


def _doors() -> Any:
    return import_module("quire.aio.doors")


loads(_doors)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'quire.aio' has no attribute {name!r}")
    return getattr(_doors(), name)
