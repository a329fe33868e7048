"""What a client says about its environment before the first reply stays in every folded view."""

import json
from typing import Any

import pytest

from tests.gateway.conftest import Start
from tests.gateway.scripted_client import Api
from tests.gateway.test_folding import BUDGET, FILLER, Worker, steps
from tests.strict_provider import StrictProvider
from tests.strict_provider.requests import Request
from tests.strict_provider.tokens import count_request

RULES = "<system-reminder>Rules of the project: HOUSE RULE.</system-reminder>"


def _work(client: Worker, rounds: int) -> None:
    for _ in range(rounds):
        reply = client.take(client.request())
        client.items += client._results(reply) or [{"role": "user", "content": "Go on."}]


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_the_rules_of_a_project_stay_and_the_view_fits(start: Start, provider: StrictProvider, api: Api) -> None:
    provider.script = steps(3)
    provider.state.limit = BUDGET + 500
    running = start(mode="fold", budget=BUDGET)
    client = Worker(running.url, api, {"x-quire-session": "one"})
    kind = "input_text" if api == "responses" else "text"
    first: dict[str, Any] = {
        "role": "user",
        "content": [{"type": kind, "text": RULES}, {"type": kind, "text": "Start."}],
    }
    client.items.append(first)
    _work(client, 30)
    sent = provider.requests[-1].get("messages") or provider.requests[-1]["input"]
    assert "Context key" in json.dumps(sent[:2])
    assert first in sent
    assert json.dumps(sent).count("HOUSE RULE") == 1
    assert provider.refused == []
    assert count_request(Request(api, provider.requests[-1])) <= BUDGET
    assert running.gateway.list_sessions()[0].errors == 0


def test_a_long_description_is_folded_like_the_rest(start: Start, provider: StrictProvider) -> None:
    provider.script = steps(3)
    running = start(mode="fold", budget=BUDGET)
    client = Worker(running.url, "anthropic", {"x-quire-session": "one"})
    client.items.append({"role": "user", "content": f"{RULES} {FILLER * 8}"})
    _work(client, 30)
    assert client.items[0] not in provider.requests[-1]["messages"]
    assert provider.refused == []
