"""Below the budget, a real client and its provider get the bytes that they would get without the gateway."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway_clients.conftest import Open
from tests.gateway_clients.records import read_record
from tests.gateway_clients.relay import Relay, check_wires
from tests.gateway_clients.runs import Client
from tests.strict_provider import StrictProvider

pytestmark = pytest.mark.clients


@pytest.mark.parametrize(("name", "model", "mode"), [("codex", "gpt-5.1-codex", "observe"), ("aider", "", "fold")])
def test_bytes_and_headers_are_equal_in_both_directions(
    name: str, model: str, mode: str, upstream: StrictProvider, client: Callable[..., Client], store: Path, start: Open
) -> None:
    """An older model of Codex, and a client without tools; `test_sessions` has the others."""
    running = client(name, model=model)
    running.write_facts("alpha", 2)
    gateway = start(mode)
    with Relay(gateway.url) as relay:
        running.ask(relay.url, "Do task alpha in 2 steps")
        gateway.stop()
        check_wires(relay, upstream)
    assert upstream.wire
    assert not upstream.refused
    (record,) = read_record(store).values()
    assert record.calls == record.results == ([] if name == "aider" else ["call_alpha_0_of_2", "call_alpha_1_of_2"])
    assert record.answers == (2 if name == "aider" else 3)  # Aider begins with an example
