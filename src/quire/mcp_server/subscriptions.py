"""Subscriptions: finds changes of a context and notifies clients.

A client of the older protocol subscribes to URIs and is always notified of changed lists. A client of the newer
protocol opens a stream and names the notifications it wants. The store is polled while there are subscriptions, so
changes by other processes are found too. Otherwise it is checked only after a call through this server.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from operator import methodcaller
from time import perf_counter
from typing import Any, NamedTuple

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

from quire.aio.calls import CallQueue
from quire.errors import Busy, QuireError
from quire.mcp_server.resources import ServedContext
from quire.model.pages import parse_index
from quire.system import Entry

_MAX_ENTRIES = 200
"""After more new entries than this, the list of resources is reported as changed without reading the entries."""
_REST = 20
"""After a check the task sleeps this many times as long as the check took, so that it takes at most 5 % of the time."""
_MIN_PAUSE = 0.02
_SEND_TIMEOUT = 5.0
"""A client that takes longer than this to receive a notification gets no more of them."""
_MAX_SUBSCRIPTIONS = 1_000
_log = logging.getLogger("quire.mcp")

# Finding changes


class Changes(NamedTuple):
    """Flags for a changed list of tools or resources, and the URIs of changed texts."""

    tools: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()


class ChangeDetector:
    """Remembers the last known state of a context and compares the current state with it.

    A resource has changed if its text is different now. So a client is never notified of something it cannot read.
    """

    def __init__(self, served: ServedContext) -> None:
        self._served = served
        self._texts: dict[str, int | None] = {}
        self._seq, self._tools, self._segments = self._served.state()

    def watch_uris(self, uris: Collection[str], *, reset: bool) -> None:
        """Remember the text at these URIs. `reset` forgets earlier changes, which had no listener."""
        if reset:
            self._seq, self._tools, self._segments = self._served.state()
        for uri in uris:
            if uri not in self._texts:
                self._texts[uri] = self._text_hash(uri)

    def find_changes(self, uris: Collection[str]) -> Changes:
        """Return the changes of these URIs and of the lists since the last call."""
        self._texts = {uri: text for uri, text in self._texts.items() if uri in uris}
        before, tools, segments = self._seq, self._tools, self._segments
        self._seq, self._tools, self._segments = self._served.state()
        if self._seq == before:
            return Changes(self._tools != tools)
        resources = self._segments != segments or self._list_has_changed(before)
        return Changes(self._tools != tools, resources, tuple(uri for uri in uris if self._text_has_changed(uri)))

    def _text_has_changed(self, uri: str) -> bool:
        text = self._text_hash(uri)
        has_changed = uri in self._texts and self._texts[uri] != text
        self._texts[uri] = text
        return has_changed

    def _text_hash(self, uri: str) -> int | None:
        """Return the hash of the text at a URI; None if it cannot be read."""
        try:
            return hash(self._served.read(uri))
        except QuireError:
            return None

    def _list_has_changed(self, before: int) -> bool:
        if self._seq < before or self._seq - before > _MAX_ENTRIES:
            return True
        entries = islice(self._served.context.history(before), _MAX_ENTRIES)
        return any(self._changes_list(entry) for entry in entries)

    def _changes_list(self, entry: Entry) -> bool:
        """Return whether an entry created, removed or renamed a page that the agent sees."""
        touched = ((change.index, change.before) for change in entry.changes if change.index)
        return any(
            before is None or (before["name"], before["description"]) != self._served.page_title(index)
            for index, before in touched
            if (parts := parse_index(index)) and parts.segment in self._segments
        )


# Notifying clients


class _Subscriber(NamedTuple):
    """A connection of the older protocol, and the URIs it subscribed to."""

    session: ServerSession
    uris: set[str]


class Subscriptions:
    """All subscriptions, and the task that finds changes and notifies clients."""

    def __init__(self, calls: CallQueue, detector: ChangeDetector, poll: float) -> None:
        self._calls = calls
        self._detector = detector
        self._poll = poll
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self._stream_uris: Counter[str] = Counter()
        self._open_streams = 0
        self._subscribers: dict[Connection, _Subscriber] = {}
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Wake the task, because a call through this server may have written something."""
        if self._has_clients():
            self._nudged.set()

    def close(self) -> None:
        """End the streams of the newer protocol and notify their clients."""
        self._streams.close()

    def _has_clients(self) -> bool:
        return bool(self._open_streams or self._subscribers)

    # The older protocol

    def add_client(self, session: ServerSession) -> None:
        """Notify a client of changed lists from now on."""
        self._subscriber(session)

    async def subscribe(self, session: ServerSession, uri: str) -> None:
        """Notify a client of changes at a URI from now on. Raise `Busy` if it has too many subscriptions."""
        is_first = not self._has_clients()
        uris = self._subscriber(session).uris
        if len(uris) >= _MAX_SUBSCRIPTIONS and uri not in uris:
            raise Busy(f"The limit of {_MAX_SUBSCRIPTIONS:,} subscriptions is reached: unsubscribe from others first.")
        uris.add(uri)  # before the call, so that a check in between does not drop the remembered text
        await self._calls.run(self._detector.watch_uris, [uri], reset=is_first)
        self._nudged.set()

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """End a subscription."""
        self._subscriber(session).uris.discard(uri)

    def _subscriber(self, session: ServerSession) -> _Subscriber:
        connection = session._connection  # the only object that lives exactly as long as the client is connected
        found = self._subscribers.get(connection)
        if found is None:
            found = self._subscribers[connection] = _Subscriber(session, set())
            connection.exit_stack.callback(self._subscribers.pop, connection, None)
        return found

    # The newer protocol

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of notifications until the client or the server ends it."""
        uris = set(params.notifications.resource_subscriptions or ())
        if len(uris) > _MAX_SUBSCRIPTIONS:
            raise Busy(f"{len(uris):,} subscriptions are too many; the limit is {_MAX_SUBSCRIPTIONS:,}.")
        is_first = not self._has_clients()
        self._stream_uris.update(uris)  # before the call, so that a check in between does not drop the remembered text
        self._open_streams += 1
        try:
            await self._calls.run(self._detector.watch_uris, uris, reset=is_first)
            self._nudged.set()
            return await self._streams(ctx, params)
        finally:
            self._open_streams -= 1
            self._stream_uris -= Counter(uris)

    # The task

    async def watch(self) -> None:
        """Find changes and notify clients, until cancelled."""
        while True:
            await self._wait()
            start = perf_counter()
            try:
                await self._notify(await self._calls.run(self._detector.find_changes, self._all_uris()))
            except QuireError as error:
                _log.warning("Cannot read changes: %s", error)
            except Exception:
                _log.exception("Reading changes failed")
            await asyncio.sleep(max(_MIN_PAUSE, (perf_counter() - start) * _REST))

    async def _wait(self) -> None:
        """Wait for the polling interval if there are subscriptions, else for the next nudge."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll if self._open_streams or self._all_uris() else None):
                await self._nudged.wait()
        self._nudged.clear()

    def _all_uris(self) -> set[str]:
        return set(self._stream_uris).union(*(one.uris for one in self._subscribers.values()))

    async def _notify(self, changes: Changes) -> None:
        if changes.tools:
            await self._send_all(ToolsListChanged(), methodcaller("send_tool_list_changed"))
        if changes.resources:
            await self._send_all(ResourcesListChanged(), methodcaller("send_resource_list_changed"))
        for uri in changes.uris:
            await self._send_all(ResourceUpdated(uri), methodcaller("send_resource_updated", uri), uri)

    async def _send_all(self, event: ServerEvent, send: Callable[[ServerSession], Any], uri: str | None = None) -> None:
        """Send a notification to all clients, or to those that subscribed to `uri`."""
        await self._bus.publish(event)
        for connection, one in list(self._subscribers.items()):
            if uri is not None and uri not in one.uris:
                continue
            try:
                async with asyncio.timeout(_SEND_TIMEOUT):
                    await send(one.session)
            except TimeoutError:
                _log.warning("A client does not read its notifications; it gets no more of them")
                self._subscribers.pop(connection, None)
