"""Live changes as server-sent events. The store is polled, so changes by other processes are seen too."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple

import msgspec
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from quire.core.codec import decode_head
from quire.errors import Busy, QuireError
from quire.library import Library
from quire.server.context_pool import no_such_context
from quire.system import ContextSystem

_MAX_CHANGES = 200
"""If a context has more new entries than this, only the last ones are sent."""
_MAX_QUEUE = 1_000
"""A listener with more unread changes than this is disconnected."""
_SLEEP_FACTOR = 20
"""After a check the task sleeps this many times as long as the check took, so that it takes at most 5 % of the time."""
_MIN_PAUSE = 0.02
_log = logging.getLogger("quire.server")


class Change(NamedTuple):
    """A committed entry. A deleted context has seq 0."""

    context: str
    seq: int
    operation: str
    actor: str


class Listener:
    """A client that listens to one context, or to all. `seen` has the last entry that it knows of each context."""

    def __init__(self, context: str | None, seen: dict[str, "_Newest"]) -> None:
        self.context = context
        self.seen = seen
        self.queue: asyncio.Queue[Change | None] = asyncio.Queue(_MAX_QUEUE + 1)

    def send(self, changes: Iterable[Change]) -> None:
        """Queue changes; disconnect a listener that does not read."""
        for change in changes:
            if self.queue.qsize() >= _MAX_QUEUE:
                self.end()
                return
            self.queue.put_nowait(change)

    def end(self) -> None:
        """End the stream after the queued changes."""
        if not self.queue.full():
            self.queue.put_nowait(None)


class ChangeStream:
    """All listeners, and the task that polls the store for changes."""

    def __init__(self, library: Library, *, poll: float, heartbeat: float, max_listeners: int) -> None:
        self._library = library
        self._poll = poll
        self._heartbeat = heartbeat
        self._max_listeners = max_listeners
        self._listeners: set[Listener] = set()
        self._starting = 0
        self._limiter = CapacityLimiter(2)  # separate from the threads of requests
        self._task: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._listeners)

    def nudge(self) -> None:
        """Wake the polling task, because this server wrote something."""
        self._nudged.set()

    async def listen(self, context: str | None, after: int | None) -> Listener:
        """Start to listen, after an entry or from now on.

        Raise `NoSuchContext`, or `Busy` if there are too many listeners or the server stops.
        """
        if self._closed or len(self._listeners) + self._starting >= self._max_listeners:
            raise Busy(f"The limit of {self._max_listeners} listeners is reached: retry later.")
        self._starting += 1
        try:
            seen = await run_sync(_read_newest, self._library, context, limiter=self._limiter)
        finally:
            self._starting -= 1
        if self._closed:
            raise Busy("The server is stopping: retry later.")
        if context is not None and context not in seen:
            raise no_such_context(context)
        if context is not None and after is not None:
            seq, identity = seen[context]
            seen[context] = _Newest(min(after, seq), identity)  # beyond the last entry means from now on
        listener = Listener(context, seen)
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        self.nudge()
        return listener

    async def stream(self, listener: Listener) -> AsyncIterator[bytes]:
        """Yield the changes as server-sent events, and a comment after each idle interval."""
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
        """End all streams and stop polling."""
        self._closed = True
        for listener in list(self._listeners):
            listener.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _watch(self) -> None:
        """Poll while there are listeners."""
        while self._listeners:
            start = perf_counter()
            self._nudged.clear()
            try:
                found = await run_sync(_read_changes, self._library, [*self._listeners], limiter=self._limiter)
                for listener, changes in found:
                    listener.send(changes)
            except QuireError as error:
                _log.warning("Cannot read changes: %s", error)
            except Exception:
                _log.exception("Reading changes failed")
            pause = max(_MIN_PAUSE, (perf_counter() - start) * _SLEEP_FACTOR)
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._poll - pause)):
                    await self._nudged.wait()
        self._task = None


class _Newest(NamedTuple):
    """The newest entry of a context. The identity changes if the context is deleted and created again."""

    seq: int = 0
    identity: bytes = b""


def _read_newest(library: Library, context: str | None) -> dict[str, _Newest]:
    """Return the newest entry of a context, or of all contexts."""
    names = library.list() if context is None else [context]
    found = ((name, library.storage.load(name)) for name in names)
    return {name: _Newest(each.seq, _identity(each.seq, each.head)) for name, each in found if each is not None}


def _identity(seq: int, head: bytes) -> bytes:
    try:
        return decode_head(seq, head).identity
    except QuireError:  # a damaged head must not end the streams of other contexts
        return b""


def _read_changes(library: Library, listeners: Sequence[Listener]) -> list[tuple[Listener, list[Change]]]:
    """Return the new changes of each listener. Reads the newest entry of each context once."""
    contexts = dict.fromkeys(listener.context for listener in listeners)
    newest = {context: _read_newest(library, context) for context in contexts}
    return [(listener, _changes_since(library, listener.seen, newest[listener.context])) for listener in listeners]


def _changes_since(library: Library, seen: dict[str, _Newest], newest: dict[str, _Newest]) -> list[Change]:
    """Return the changes after `seen`, and update `seen`. A context that cannot be read is logged and left out."""
    changes: list[Change] = []
    for name in [name for name, known in seen.items() if name not in newest or _is_another(known, newest[name])]:
        changes.append(Change(name, 0, "delete", ""))
        del seen[name]
    for name, (seq, identity) in newest.items():
        before = seen.get(name, _Newest()).seq
        if seq == before:
            continue
        try:
            system = ContextSystem(library.storage, name)
            first = before if before < seq else 0  # an older state was restored
            entries = list(system.history(max(first, system.seq - _MAX_CHANGES)))
        except QuireError as error:
            _log.warning("Cannot read the changes of a context: %s", error)
            continue
        changes += [Change(name, entry.seq, entry.operation, entry.actor) for entry in entries]
        seen[name] = _Newest(system.seq, identity)
    return changes


def _is_another(known: _Newest, newest: _Newest) -> bool:
    return bool(known.identity and newest.identity) and known.identity != newest.identity
