"""Two gateways in a row: the second one only passes on. A gateway that is its own upstream refuses."""

import json
import socket
from collections.abc import Callable

import quire.gateway
from quire.gateway.gateway_server import RunningGateway
from tests.gateway.conftest import Start
from tests.gateway.scripted_client import Client
from tests.strict_provider import StrictProvider

Recorded = Callable[[RunningGateway], dict[str, list[str]]]


def _header(client: Client) -> str | None:
    return {name.lower(): value for name, value in client.received[-1].headers}.get("x-quire")


def test_the_second_gateway_passes_on_and_records_nothing(
    start: Start, provider: StrictProvider, recorded: Recorded
) -> None:
    for mode in ("observe", "fold"):
        with quire.gateway.start("memory:", anthropic=provider.url, mode=mode, port=0) as second:
            first = start(anthropic=second.url)
            client = Client(first.url, "anthropic", {"x-quire-session": mode})
            client.say("One")
            client.say("Two")
            assert _header(client) == "second"
            second.gateway.sessions.drain()
            assert second.gateway.list_sessions() == []
        assert recorded(first)[f"local/anthropic/{mode}"] == ["u:One", "a:ok", "u:Two", "a:ok"]
    assert len(provider.requests) == 4
    assert not any("x-quire-gateway" in name for headers in provider.headers for name in headers)


def test_a_loop_is_refused(start: Start, provider: StrictProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = start(anthropic=f"http://127.0.0.1:{port}")
    two = start(anthropic=one.url, port=port)
    for running in (one, two):
        client = Client(running.url, "anthropic")
        client.items = [{"role": "user", "content": "Hello"}]
        got = client.request()
        assert (got.status, json.loads(got.body)["error"]["code"]) == (508, "gateway_loop")
    assert provider.requests == []
