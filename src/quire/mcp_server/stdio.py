"""The server over standard input and output, until the client closes the input or Ctrl-C.

Only protocol messages go to standard output: while the server runs, all other output goes to standard error.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server


def run_stdio(server: Server[None]) -> None:
    """Serve the client at the other end of the pipes."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server))


async def _serve(server: Server[None]) -> None:
    lines: Any = _Lines(_replace_descriptor(0))
    try:
        async with stdio_server(stdin=lines) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    except* ConnectionError:  # the client closed its pipe
        pass


def _replace_descriptor(number: int) -> int:
    """Return a private copy of a descriptor, and make the original empty, so that no other code reads the input."""
    own = os.dup(number)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, number)
    os.close(nothing)
    return own


class _Lines:
    """The lines of a descriptor, read in a daemon thread, because a blocking read cannot be interrupted."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._loop = asyncio.get_running_loop()

    async def __aiter__(self) -> AsyncIterator[str]:
        threading.Thread(target=self._read, name="quire-mcp-input", daemon=True).start()
        while (line := await self._queue.get()) is not None:
            yield line

    def _read(self) -> None:
        with suppress(OSError), open(self._descriptor, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:  # OSError: the terminal was closed
                self._put(line)
        self._put(None)

    def _put(self, line: str | None) -> None:
        with suppress(RuntimeError, CancelledError):  # the event loop ends or has ended
            asyncio.run_coroutine_threadsafe(self._queue.put(line), self._loop).result()
