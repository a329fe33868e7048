"""The memory of a gateway is bounded, whatever the number of sessions. The benchmark sends 10,000 requests."""

import pytest

from tests.gateway.conftest import Start
from tests.gateway.scripted_client import Client
from tests.strict_provider import StrictProvider


def test_what_a_gateway_knows_about_sessions_is_bounded(
    start: Start, provider: StrictProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.gateway.sessions._OPEN_LINES", 2)
    monkeypatch.setattr("quire.gateway.identity._SESSIONS", 2)
    running = start(mode="fold")
    sessions, keeper = running.gateway.sessions, running.gateway._figures
    for number in range(30):
        Client(running.url, "anthropic", {"x-quire-session": f"s{number}"}).say("Hello")
    sessions.drain()
    keeper.update()
    assert len(sessions._lines) == len(sessions._reader._last) == 2
    assert len(sessions.infos) == len(sessions._names) == 20
    assert {len(known) for known in (keeper._before, keeper._written, keeper._chosen)} <= set(range(21))
    assert sessions._waiting == 0
