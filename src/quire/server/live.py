"""Live changes: the store is asked where its contexts stand, so that what other processes write is seen too."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import NamedTuple, TypeVar

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter

from quire.errors import Busy, NoSuchContext, QuireError, short_repr
from quire.library import Library
from quire.system import ContextSystem

_MOST = 200
"""Changes of one context that are told one by one; of more, the last ones."""
_WAITING = 1_000
"""Changes that wait for a reader; one that is further behind has to come again."""
_SHARE = 20
"""The part of its time that asking may take is one in so many."""
T = TypeVar("T")
_PAUSE = 0.02
_log = logging.getLogger("quire.server")


class Change(NamedTuple):
    """An entry that somebody committed. A context that is gone is at seq 0."""

    context: str
    seq: int
    operation: str
    actor: str


class Listener:
    """Somebody who listens to one context, or to all."""

    def __init__(self, context: str | None, seen: dict[str, int]) -> None:
        self.context = context
        self.seen = seen
        self.queue: asyncio.Queue[Change | None] = asyncio.Queue(_WAITING + 1)

    def tell(self, changes: Iterable[Change]) -> None:
        """Put changes before the listener; one who does not read is let go."""
        for change in changes:
            if self.queue.qsize() >= _WAITING:
                self.end()
                return
            self.queue.put_nowait(change)

    def end(self) -> None:
        """Let the listener go after what it has."""
        if not self.queue.full():
            self.queue.put_nowait(None)


class Hub:
    """Everybody who listens, and the one task that looks for changes."""

    def __init__(self, library: Library, *, poll: float, heartbeat: float, most: int) -> None:
        self._library = library
        self._poll = poll
        self._heartbeat = heartbeat
        self._most = most
        self._listeners: set[Listener] = set()
        self._coming = 0
        self._limiter: CapacityLimiter | None = None
        self._task: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._listeners)

    def nudge(self) -> None:
        """Look at once: something was written here."""
        self._nudged.set()

    async def listen(self, context: str | None, after: int | None) -> Listener:
        """Begin to listen, after an entry or from now on. Raises `NoSuchContext`, or `Busy` if too many do."""
        if self._closed or len(self._listeners) + self._coming >= self._most:
            raise Busy(f"{self._most} listen already: retry later.")
        self._coming += 1
        try:
            seen = await self._in_thread(partial(_heads, self._library, context))
        finally:
            self._coming -= 1
        if self._closed:
            raise Busy("The server is about to end: retry later.")
        if context is not None and context not in seen:
            raise NoSuchContext(f"No context {short_repr(context)} here; GET /api/contexts lists what is there.")
        if context is not None and after is not None:
            seen[context] = min(after, seen[context])  # beyond the last entry is from now on
        listener = Listener(context, seen)
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        self.nudge()
        return listener

    async def stream(self, listener: Listener) -> AsyncIterator[bytes]:
        """The changes as server-sent events, and a sign of life when there are none."""
        try:
            yield b": listening\n\n"
            while True:
                try:
                    async with asyncio.timeout(self._heartbeat):
                        change = await listener.queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if change is None:
                    return
                yield b"event: change\nid: %d\ndata: %s\n\n" % (change.seq, msgspec.json.encode(change._asdict()))
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Let everybody go and stop looking."""
        self._closed = True
        for listener in list(self._listeners):
            listener.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _watch(self) -> None:
        """Look again and again while anybody listens; asking takes a small part of the time at most."""
        while self._listeners:
            start = perf_counter()
            self._nudged.clear()
            try:
                for listener, changes in await self._in_thread(partial(_look, self._library, [*self._listeners])):
                    listener.tell(changes)
            except QuireError as error:
                _log.warning("Cannot look for changes: %s", error)
            except Exception:
                _log.exception("Looking for changes failed")
            pause = max(_PAUSE, (perf_counter() - start) * _SHARE)
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._poll - pause)):
                    await self._nudged.wait()
        self._task = None

    async def _in_thread(self, look: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = CapacityLimiter(2)  # never in the way of requests
        return await anyio.to_thread.run_sync(look, limiter=self._limiter)


def _heads(library: Library, context: str | None) -> dict[str, int]:
    """Where contexts stand."""
    names = library.list() if context is None else [context]
    heads = ((name, library.storage.head(name)) for name in names)
    return {name: head.version for name, head in heads if head is not None and head.version >= 0}


def _look(library: Library, listeners: Sequence[Listener]) -> list[tuple[Listener, list[Change]]]:
    """What listeners have not heard of yet; each context is asked for once."""
    watched = dict.fromkeys(listener.context for listener in listeners)
    heads = {context: _heads(library, context) for context in watched}
    return [(listener, _news(library, listener.seen, heads[listener.context])) for listener in listeners]


def _news(library: Library, seen: dict[str, int], heads: dict[str, int]) -> list[Change]:
    """What happened since something was seen, which is brought up to date."""
    changes: list[Change] = []
    for name in seen.keys() - heads.keys():
        changes.append(Change(name, 0, "delete", ""))
        del seen[name]
    for name, version in heads.items():
        before = seen.get(name, 0)
        if version != before:
            system = ContextSystem(library.storage, name)
            first = before if before < version else 0  # it was made anew
            entries = system.history(max(first, system.seq - _MOST))
            changes += [Change(name, entry.seq, entry.operation, entry.actor) for entry in entries]
            seen[name] = system.seq
    return changes
