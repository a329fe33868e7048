"""Chaos: faults of the upstream, parallel agents, and a gateway that is killed. Clients finish; nothing is doubled."""

from pathlib import Path

import pytest

import quire
from proof.gateway_kills import APIS, Stubborn, faulty, kill_gateways, recorded_texts, run_all
from tests.gateway.conftest import Recorded, Start
from tests.gateway.test_folding import BUDGET
from tests.seeds import SEED
from tests.strict_provider import StrictProvider


@pytest.mark.parametrize("steps", [6, pytest.param(80, marks=pytest.mark.slow)])
def test_parallel_agents_with_a_faulty_upstream(
    start: Start, provider: StrictProvider, store: str, recorded: Recorded, steps: int
) -> None:
    provider.script = faulty(SEED, 0.3, slow=0.01)
    url = start(mode="fold", budget=BUDGET).url
    agents = [Stubborn(url, APIS[n % 3], {"x-quire-session": f"agent-{n}"}) for n in range(6)]
    run_all([lambda agent=agent: agent.work(steps) for agent in agents])  # type: ignore[misc]
    assert provider.refused == []
    assert len(recorded()) == len(agents)
    with quire.Library(store) as library:
        for agent in agents:
            upstream = "anthropic" if agent.api == "anthropic" else "openai"
            ctx = library.open(f"gateway/local/{upstream}/{agent.headers[-1][1]}")
            assert recorded_texts(ctx) == agent.texts()
            assert ctx.check() == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fold", "observe"])
def test_a_gateway_that_is_killed_at_any_moment(tmp_path: Path, mode: str) -> None:
    assert kill_gateways(str(tmp_path / "agent.db"), 40, SEED, mode=mode) == (40, [])
