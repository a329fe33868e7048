"""Who is told of changes, and the one task that looks for them.

Clients of the older protocol subscribe to addresses and hear of changed lists unasked; those of the newer one open a
stream and say what they want to hear. While anybody subscribes the store is asked again and again, so that what other
processes write is heard of too; else a look follows what is done through this server.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from time import perf_counter
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from quire.aio import CallQueue
from quire.errors import Busy, QuireError
from quire.mcp_server.changes import Changes, Found

_SHARE = 20
"""The part of its time that looking may take is one in so many."""
_PAUSE = 0.02
_PATIENCE = 5.0
"""Seconds that a client may take to hear something, before it is no longer told."""
_MOST = 1_000
"""Addresses that one client may subscribe to."""
_log = logging.getLogger("quire.mcp")


class _Subscriber:
    """A connection of the older protocol, and the addresses it wants to hear of."""

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.uris: set[str] = set()


class Listeners:
    """Everybody who is told of changes."""

    def __init__(self, lane: CallQueue, changes: Changes, poll: float) -> None:
        self._lane = lane
        self._changes = changes
        self._poll = poll
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self._listened: Counter[str] = Counter()
        self._open = 0
        self._subscribers: dict[Connection, _Subscriber] = {}
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Look at once: something may have been written here."""
        if self._is_heard():
            self._nudged.set()

    def close(self) -> None:
        """End the streams of the newer protocol; each is told so."""
        self._streams.close()

    def _is_heard(self) -> bool:
        return bool(self._open or self._subscribers)

    # The older protocol

    def connected(self, session: ServerSession) -> None:
        """Take note of a client that hears of changed lists."""
        self._subscriber(session)

    async def subscribe(self, session: ServerSession, uri: str) -> None:
        """Tell a client from now on when what stands at an address changes. Raises `Busy` for too many of them."""
        is_first = not self._is_heard()
        uris = self._subscriber(session).uris
        if len(uris) >= _MOST and uri not in uris:
            raise Busy(f"{_MOST:,} subscriptions are the limit: unsubscribe from others first.")
        uris.add(uri)  # first, so that no look in between forgets what stood there
        await self._lane.run(self._changes.begin, [uri], anew=is_first)
        self._nudged.set()

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """Tell a client no longer."""
        self._subscriber(session).uris.discard(uri)

    def _subscriber(self, session: ServerSession) -> _Subscriber:
        connection = session._connection  # the only thing that lives as long as the client stays
        found = self._subscribers.get(connection)
        if found is None:
            found = self._subscribers[connection] = _Subscriber(session)
            connection.exit_stack.callback(self._subscribers.pop, connection, None)
        return found

    # The newer protocol

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of changes until the client or the server ends it."""
        uris = set(params.notifications.resource_subscriptions or ())
        if len(uris) > _MOST:
            raise Busy(f"{len(uris):,} subscriptions are too many; {_MOST:,} are the limit.")
        is_first = not self._is_heard()
        self._listened.update(uris)  # first, so that no look in between forgets what stood there
        self._open += 1
        try:
            await self._lane.run(self._changes.begin, uris, anew=is_first)
            self._nudged.set()
            return await self._streams(ctx, params)
        finally:
            self._open -= 1
            self._listened -= Counter(uris)

    # Looking

    async def watch(self) -> None:
        """Look for changes and tell of them, until cancelled."""
        while True:
            await self._next()
            start = perf_counter()
            try:
                await self._tell(await self._lane.run(self._changes.look, self._wanted()))
            except QuireError as error:
                _log.warning("Cannot look for changes: %s", error)
            except Exception:
                _log.exception("Looking for changes failed")
            await asyncio.sleep(max(_PAUSE, (perf_counter() - start) * _SHARE))

    async def _next(self) -> None:
        """Wait until it is time to look: soon if anybody subscribes, else when something is done here."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll if self._open or self._wanted() else None):
                await self._nudged.wait()
        self._nudged.clear()

    def _wanted(self) -> set[str]:
        return set(self._listened).union(*(one.uris for one in self._subscribers.values()))

    async def _tell(self, found: Found) -> None:
        if found.tools:
            await self._tell_all(ToolsListChanged(), lambda session: session.send_tool_list_changed())
        if found.resources:
            await self._tell_all(ResourcesListChanged(), lambda session: session.send_resource_list_changed())
        for uri in found.uris:
            wanting = [one for one in self._subscribers.values() if uri in one.uris]
            await self._tell_all(ResourceUpdated(uri), _updating(uri), wanting)

    async def _tell_all(
        self,
        event: ServerEvent,
        send: Callable[[ServerSession], Any],
        subscribers: Collection[_Subscriber] | None = None,
    ) -> None:
        await self._bus.publish(event)
        for one in list(self._subscribers.values()) if subscribers is None else subscribers:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await send(one.session)
            except TimeoutError:
                _log.warning("A client does not read what it is told; it is told no more")
                self._forget(one)

    def _forget(self, subscriber: _Subscriber) -> None:
        for connection, one in list(self._subscribers.items()):
            if one is subscriber:
                del self._subscribers[connection]


def _updating(uri: str) -> Callable[[ServerSession], Any]:
    return lambda session: session.send_resource_updated(uri)
