"""Below the budget, a real client and its provider get the bytes that they would get without the gateway."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import quire.gateway
from tests.gateway_clients.records import answers_in, calls_in, record_of, results_in
from tests.gateway_clients.relay import Relay
from tests.gateway_clients.runs import Client
from tests.strict_provider import StrictProvider
from tests.strict_provider.server import Exchange

pytestmark = pytest.mark.node
HOP_BY_HOP = {"connection", "host", "keep-alive", "transfer-encoding", "upgrade", "content-length"}


@pytest.mark.parametrize(
    ("name", "model", "mode"),
    [
        ("claude", "", "fold"),
        ("codex", "", "observe"),
        ("codex", "gpt-5.1-codex", "fold"),
        ("opencode", "", "fold"),
        ("aider", "", "fold"),
        ("aider", "anthropic/claude-3-7-sonnet-20250219", "observe"),
    ],
)
def test_bytes_and_headers_are_equal_in_both_directions(
    name: str, model: str, mode: str, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    """A relay before the gateway records what the client sends and gets, the provider what it gets and sends."""
    running = client(name, model=model)
    running.write_facts("alpha", 2)
    settings = {"anthropic": upstream.url, "openai": upstream.url, "mode": mode, "port": 0}
    with quire.gateway.start(tmp_path / "agent.db", **settings) as gateway, Relay(gateway.url) as relay:  # type: ignore[arg-type]
        running.ask(relay.url, "Do task alpha in 2 steps")
    assert upstream.wire is not None
    sent = [exchange for exchange in relay.wire if exchange.status != 426]  # the gateway itself refuses WebSockets
    assert len(sent) >= (1 if name == "aider" else 3)  # Aider has no tools
    for ours, theirs in zip(_sorted(sent), _sorted(upstream.wire), strict=True):
        assert (ours.method, ours.path, ours.status) == (theirs.method, theirs.path, theirs.status)
        assert ours.data == theirs.data
        assert ours.answer == theirs.answer
        assert _kept(ours.headers) == _kept(theirs.headers)
        assert _kept(theirs.answer_headers.items()) <= _kept(ours.answer_headers.items())
    assert not upstream.refused
    (messages,) = record_of(gateway, tmp_path).values()  # title calls are not recorded
    calls = [] if name == "aider" else ["call_alpha_0_of_2", "call_alpha_1_of_2"]
    assert calls_in(messages) == results_in(messages) == calls
    assert answers_in(messages) == (2 if name == "aider" else 3)  # Aider begins with an example


def _sorted(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Return the exchanges in an order that does not depend on which of two parallel ones ended first."""
    return sorted(exchanges, key=lambda exchange: (exchange.method, exchange.path, exchange.data))


def _kept(headers: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(name.lower(), value) for name, value in headers if name.lower() not in HOP_BY_HOP}
