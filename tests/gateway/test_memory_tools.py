"""The tools of `quire mcp` on the store of a gateway: everything that was folded is found and read in the session."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.errors import NoSuchContext
from quire.gateway.handoff import find_session, write_handoff
from quire.server.gateway_ledger import Ledger
from tests.gateway.conftest import Start
from tests.gateway.scripted_client import Client
from tests.gateway.test_failures import folded_client, is_folded
from tests.gateway.test_folding import BUDGET
from tests.strict_provider import StrictProvider


def test_folded_facts_are_found_and_read(start: Start, provider: StrictProvider, store: str) -> None:
    running = start(mode="fold", budget=BUDGET)
    client = folded_client(running, provider)
    running.gateway.sessions.drain()
    with quire.Library(store) as library:
        ctx = library.open("gateway/local/anthropic/one")
        tools = ctx.tools_of(ctx.agent, beside=True)
        for number in (1, 2, 3, 5):
            assert f"V{number:04}X" not in json.dumps(provider.requests[-1]["messages"][1:])
            hits = tools.call("find", {"query": f"fact-{number:04}"})
            page = ctx.find(f"fact-{number:04}")[0].index
            assert page in hits
            assert f"V{number:04}X" in tools.call("read_page", {"page": page})
        assert is_folded(provider.requests[-1])
        client.request()
        assert provider.refused == []


def test_a_page_that_a_tool_opens_and_an_undone_fold_are_sent(
    start: Start, provider: StrictProvider, store: str
) -> None:
    """Another process changes the context between two requests."""
    running = start(mode="fold", budget=BUDGET)
    client = folded_client(running, provider)
    running.gateway.sessions.drain()
    with quire.Library(store) as library:
        ctx = library.open("gateway/local/anthropic/one")
        page = ctx.find("fact-0002")[0].index
        ctx.tools_of(ctx.agent, beside=True).call("expand_details", {"page": page})
        _go_on(client)
        assert "V0002X" in json.dumps(provider.requests[-1]["messages"])
        running.gateway.sessions.drain()
        ctx.refresh()
        fold = next(iter(ctx.history(operation="fold", reverse=True)))
        ctx.undo(fold)
        before = len(provider.requests[-1]["messages"])
        _go_on(client)
        assert len(provider.requests[-1]["messages"]) != before
        _go_on(client)
        running.gateway.sessions.drain()
        ctx.refresh()
        assert ctx.check() == []
    assert provider.refused == []
    assert running.gateway.list_sessions()[0].errors == 0


def _go_on(client: Any) -> None:
    reply = client.take(client.request())
    client.items += client._results(reply) or [{"role": "user", "content": "Go on."}]


def test_the_tools_say_that_the_gateway_does_not_answer(store: str) -> None:
    server = pytest.importorskip("quire.gateway.recall_server")
    with quire.Library(store, create=True) as library:
        text, failed = server.RecallServer(library, "http://127.0.0.1:9/k/secret")._answer("find", {"query": "x"})
    assert failed
    assert "The gateway of this session does not answer" in text
    assert "secret" not in text


def test_a_chosen_mode_holds_from_the_first_request_of_a_later_gateway(start: Start, store: str) -> None:
    name = "gateway/local/anthropic/one"
    first = start(mode="fold")
    Client(first.url, "anthropic", {"x-quire-session": "one"}).say("One")
    first.stop()
    with quire.Library(store) as library:
        Ledger(library).choose_mode(name, "observe")
    assert start(mode="fold").gateway.sessions.mode_of(name) == "observe"


def test_a_handoff_has_the_times_of_its_messages(tmp_path: Path) -> None:
    with quire.Library("memory:") as library:
        with library.open("gateway/local/openai/one", budget=1_000) as context:
            for number in range(30):
                context.user(f"How is part {number}? " + "Look at it. " * 10)
                context.assistant("It is well. " * 10, view=context.render())
        for client in ("claude", "codex"):
            done = write_handoff(library, "gateway/local/openai/one", client=client, file=tmp_path / client)
            times = re.findall(r'"timestamp":"([^"]+)"', done.path.read_text())
            assert times
            assert all(datetime.now(UTC) - datetime.fromisoformat(time) < timedelta(minutes=1) for time in times)


def test_a_session_is_found_by_the_start_or_the_end_of_its_id() -> None:
    with quire.Library("memory:") as library:
        for number in range(12):
            library.open(f"gateway/local/openai/{number:04}-5e-{number:04}f")
        name = "gateway/local/openai/0007-5e-0007f"
        assert [find_session(library, given) for given in ("0007-5e", "7f", "0007-5e-0007f", name)] == [name] * 4
        with pytest.raises(NoSuchContext, match=r"matches 12 sessions, not one. Sessions: .* and 2 more"):
            find_session(library, "f")
        with pytest.raises(NoSuchContext, match="matches 0 sessions"):
            find_session(library, "other")
