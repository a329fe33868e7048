"""Subscriptions: a client is notified of changes by any writer, and of nothing that it cannot see."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client, MCPError
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged

import quire
from quire import Context, MemoryStorage, Permission
from quire.mcp_server import server, subscriptions
from quire.mcp_server.subscriptions import ChangeDetector, Changes
from quire.windows.apps import Todo
from tests.mcp_server.clients import run, until
from tests.mcp_server.conftest import NAME, URI, fill

pytestmark = pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")  # in the newer protocol only
QUICK = 0.02
Heard = list[object]


@asynccontextmanager
async def hearing(at: Any, mode: str, uris: list[str]) -> AsyncIterator[tuple[Client, Heard]]:
    """Connect a client that subscribes to URIs and lists, in either protocol; return it and its notifications."""
    heard: Heard = []

    async def take(message: Any) -> None:
        uri = getattr(getattr(message, "params", None), "uri", None)
        heard.append(uri or getattr(message, "method", message))

    # A stream delivers its events in the newer protocol; the handler would add each of them a second time, later.
    async with Client(at, mode=mode, message_handler=take if mode == "legacy" else None) as client:
        if mode == "legacy":
            for uri in uris:
                await client.subscribe_resource(uri)
            yield client, heard
            return
        wanted: dict[str, Any] = {"tools_list_changed": True, "resources_list_changed": True}
        async with client.listen(**wanted, resource_subscriptions=uris) as stream:

            async def listen() -> None:
                async for event in stream:
                    heard.append(_named(event))

            listening = asyncio.create_task(listen())
            yield client, heard
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def _named(event: object) -> object:
    match event:
        case ResourceUpdated(uri=uri):
            return uri
        case ToolsListChanged():
            return "notifications/tools/list_changed"
        case ResourcesListChanged():
            return "notifications/resources/list_changed"
    return event


LIST, TOOLS = "notifications/resources/list_changed", "notifications/tools/list_changed"
MODES = ("legacy", "auto")


def two_handles() -> tuple[Context, Context]:
    """Return a context to serve, and another handle on it."""
    storage = MemoryStorage()
    return fill(quire.open(storage, NAME)), quire.open(storage, NAME)


@pytest.mark.parametrize("mode", MODES)
def test_a_subscriber_hears_of_changes_by_others_and_by_itself(mode: str) -> None:
    ctx, other = two_handles()
    watched = [f"{URI}{name}" for name in ("mem-1", "mem-0", "view", "contents", "usr-1")]

    async def main() -> None:
        async with hearing(server(ctx, poll=QUICK), mode, watched) as (client, heard):
            other.pages.set_detail("mem-1", "An aisle seat now.")
            await until(lambda: set(heard) >= {f"{URI}mem-1", f"{URI}mem-0", f"{URI}view", f"{URI}contents"})
            assert f"{URI}usr-1" not in heard
            assert LIST not in heard  # the list did not change
            heard.clear()
            await client.call_tool("write_page", {"name": "new", "text": "x"})
            await until(lambda: LIST in heard and f"{URI}mem-0" in heard)
            assert f"{URI}mem-1" not in heard
            heard.clear()
            other.refresh()
            other.pages.update_page("mem-1", name="Place")
            await until(lambda: LIST in heard)
            heard.clear()
            other.pages.remove_page("mem-1")
            await until(lambda: f"{URI}mem-1" in heard and LIST in heard)
            assert TOOLS not in heard

    run(main)


@pytest.mark.parametrize("mode", MODES)
def test_clients_are_not_notified_of_invisible_changes(mode: str) -> None:
    ctx, other = two_handles()
    watched = [f"{URI}{name}" for name in ("mem-0", "view", "contents")]

    async def main() -> None:
        async with hearing(server(ctx, poll=QUICK), mode, watched) as (_, heard):
            other.pages.set_detail("vault-1", "another secret")
            other.pages.create_detail_page("more", "", "secrets", "vault-0")
            other.pages.update_page("vault-1", name="renamed")
            other.pages.remove_page("vault-1")
            await asyncio.sleep(QUICK * 10)
            assert heard == []
            other.pages.set_segment_permission("vault", Permission.READ_ONLY)
            await until(lambda: LIST in heard)

    run(main)


@pytest.mark.parametrize("mode", MODES)
def test_a_window_that_can_be_opened_changes_the_list_of_tools(ctx: Context, mode: str) -> None:
    async def main() -> None:
        async with hearing(server(ctx, poll=QUICK), mode, [f"{URI}mem-1"]) as (_, heard):
            ctx.windows.register(Todo)
            await until(lambda: TOOLS in heard)

    run(main)


def test_unsubscribe_ends_notifications_and_unreadable_uris_are_refused() -> None:
    ctx, other = two_handles()
    made = server(ctx, poll=QUICK)

    async def main() -> None:
        async with hearing(made, "legacy", [f"{URI}mem-1", f"{URI}usr-1"]) as (client, heard):
            await client.unsubscribe_resource(f"{URI}mem-1")
            other.pages.set_detail("mem-1", "changed")
            other.conversation.delete(1)
            await until(lambda: f"{URI}usr-1" in heard and LIST in heard)
            assert f"{URI}mem-1" not in heard
            for name in ("vault-1", "mem-99"):
                with pytest.raises(MCPError) as caught:
                    await client.subscribe_resource(URI + name)
                assert caught.value.code == -32002
        assert not made.subscriptions._subscribers  # a client that disconnects is removed

    run(main)


def test_the_subscriptions_of_one_client_are_limited(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_MAX_SUBSCRIPTIONS", 2)

    async def main() -> None:
        async with Client(server(ctx), mode="legacy") as client:
            for name in ("mem-0", "mem-1", "mem-1"):
                await client.subscribe_resource(URI + name)
            with pytest.raises(MCPError, match="limit of 2 subscriptions"):
                await client.subscribe_resource(f"{URI}usr-0")

    run(main)


def test_after_many_entries_the_list_is_reported_as_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, other = two_handles()
    monkeypatch.setattr(subscriptions, "_MAX_ENTRIES", 3)
    detector = ChangeDetector(server(ctx)._served)
    for _ in range(3):
        other.pages.set_detail("mem-1", f"{other.seq}")
    assert detector.find_changes(()) == Changes()
    for _ in range(4):
        other.pages.set_detail("mem-1", f"{other.seq}")
    assert detector.find_changes(()) == Changes(resources=True)


def test_changes_are_not_read_while_there_are_no_subscriptions(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    find_changes = ChangeDetector.find_changes

    def noted(self: ChangeDetector, uris: Collection[str]) -> Changes:
        looks.append(uris)
        return find_changes(self, uris)

    monkeypatch.setattr(ChangeDetector, "find_changes", noted)

    async def main() -> None:
        async with Client(server(ctx, poll=QUICK)) as client:
            await client.call_tool("write_page", {"name": "x"})
            await asyncio.sleep(QUICK * 5)
        assert looks == []
        async with Client(server(ctx, poll=QUICK), mode="legacy") as client:
            await client.call_tool("write_page", {"name": "x"})
            await until(lambda: len(looks) == 1)
            await asyncio.sleep(QUICK * 5)
        assert len(looks) == 1

    run(main)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_over_http_is_notified_of_changes_by_another_process(http: tuple[Path, str], mode: str) -> None:
    path, url = http

    async def main() -> None:
        async with hearing(url, mode, [f"{URI}mem-1"]) as (client, heard):
            with quire.open(path, NAME) as other:
                other.pages.set_detail("mem-1", f"changed by {mode}")
                await until(lambda: f"{URI}mem-1" in heard)
                heard.clear()
                other.pages.create_detail_page(mode, "", "", "mem-0")
                await until(lambda: LIST in heard)
            assert client.server_capabilities.resources is not None
            assert client.server_capabilities.resources.subscribe

    run(main)


def test_a_check_during_a_subscribe_loses_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, other = two_handles()
    made = server(ctx, poll=60)
    subscribed, detector = made.subscriptions, made.subscriptions._detector
    watch_uris = detector.watch_uris

    def watch_and_check(uris: Collection[str], *, reset: bool) -> None:
        watch_uris(uris, reset=reset)
        detector.find_changes(subscribed._all_uris())

    class Client:
        """The part of a session that is used."""

        def __init__(self) -> None:
            self._connection, self.exit_stack = self, ExitStack()

    monkeypatch.setattr(detector, "watch_uris", watch_and_check)
    asyncio.run(subscribed.subscribe(cast(Any, Client()), f"{URI}mem-1"))
    other.pages.set_detail("mem-1", "An aisle seat now.")
    assert detector.find_changes(subscribed._all_uris()).uris == (f"{URI}mem-1",)
