"""Real clients through runs that need four times the context limit. They run 20 steps, and 300 with `--long`.

With 20 steps, at least (4 L - F) of at most 20 L input tokens are new (L: the limit, F: the first request), so that no
gateway can reach a cached share of 0.93. The short form asks for the share that folds leave; the long one for 0.93.
"""

import asyncio
from pathlib import Path

import pytest

import quire
from tests.gateway_clients.long_run import Outcome, run_steps

pytestmark = pytest.mark.node


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_a_run_above_the_limit_has_no_error_and_no_compaction_and_loses_nothing(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    steps = 300 if is_long else 20
    outcome = run_steps(name, tmp_path, steps)
    assert outcome.needed >= 4 * outcome.limit
    assert f"done after {steps} steps" in outcome.answer
    assert (outcome.refused, outcome.compactions) == ([], 0)
    assert outcome.shared >= (0.93 if is_long else 0.6)
    assert outcome.found == steps
    assert outcome.has_environment
    assert sum(info.folds for info in outcome.sessions) >= 1
    assert outcome.in_last_request < steps  # most facts are folded at the end
    assert asyncio.run(_find_with_mcp(tmp_path / "agent.db", outcome)) == steps


async def _find_with_mcp(path: Path, outcome: Outcome) -> int:
    """Return how many facts the tools of the MCP server find, and read in the page that they name."""
    mcp = pytest.importorskip("mcp")
    from quire.mcp_server import server

    with quire.Library(path) as library:
        (name,) = [info.name for info in outcome.sessions]
        with library.open(name) as context:
            async with mcp.Client(server(context, tools=["find", "read_page"])) as client:
                answers = [await client.call_tool("find", {"query": fact}) for fact in outcome.facts]
    return sum(fact in answer.content[0].text for fact, answer in zip(outcome.facts, answers, strict=True))
