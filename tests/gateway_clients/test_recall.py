"""A client's model reads folded text through MCP in the same run, and a session goes on without the gateway."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quire
import quire.gateway
from quire.cli import main
from quire.gateway.handoff import find_session, write_handoff
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import Body, Call, Reply, StrictProvider

pytestmark = pytest.mark.node
FOUND = "The code of step 0 is"
ATTEMPTS = 8


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_the_model_finds_a_folded_fact_with_the_mcp_tool(
    name: str, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    """`quire gateway run --mcp` adds the server. After the last file, the model searches for the first fact."""
    pytest.importorskip("mcp")
    running = client(name)
    fact = running.write_facts("alpha", 8, words=900)[0]
    plain = ToolScript()
    asked: list[str] = []

    def script(body: Body) -> Reply:
        said = json.dumps(body.get("messages") or body.get("input"))
        if "call_find" in said and (FOUND in said[said.index("call_find") :] or len(asked) == ATTEMPTS):
            return Reply("I found it.")
        if "call_alpha_7_of_8" in said:
            asked.append(said)
            time.sleep(len(asked) - 1)  # on a busy machine the client may not have started the server yet
            return Reply("I search.", (_find_call(name, fact, len(asked)),))
        return plain(body)

    upstream.script = script
    arguments = ["gateway", "run", str(tmp_path / "agent.db"), "--mcp", "--budget", "26k"]
    arguments += ["--anthropic", upstream.url, "--openai", upstream.url, "--log", str(tmp_path / "log"), "--"]
    before = dict(os.environ)
    os.environ.update(running.environment | {"PYTHONPATH": os.pathsep.join(sys.path), "PWD": str(running.work)})
    here = Path.cwd()
    try:
        os.chdir(running.work)
        code = main([*arguments, *running.command("Do task alpha in 8 steps")])
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
    assert (code, upstream.refused) == (0, [])
    assert asked
    assert fact not in asked[0]  # it is folded
    last = json.dumps(upstream.requests[-1])
    assert FOUND in last[last.index("call_find") :]
    assert main(["gateway", "sessions", str(tmp_path / "agent.db"), "--json"]) == 0


def _find_call(name: str, fact: str, number: int) -> Call:
    """Return the call of the tool: Codex runs JavaScript that calls it."""
    if name == "claude":
        return Call(f"call_find_{number}", "mcp__quire__find", {"query": fact})
    if name == "opencode":
        return Call(f"call_find_{number}", "quire_find", {"query": fact})
    code = f'const r = await tools.mcp__quire__find({{query: "{fact}"}}); text(JSON.stringify(r));'
    return Call(f"call_find_{number}", "exec", code)


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_session_is_handed_over_and_resumed_without_the_gateway(
    name: str, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    running = client(name, model="gpt-5.1-codex" if name == "codex" else "")
    running.write_facts("alpha", 6, words=900)
    running.write_facts("beta", 1)
    store = tmp_path / "agent.db"
    settings = {"anthropic": upstream.url, "openai": upstream.url, "mode": "fold", "budget": 22_000, "port": 0}
    with quire.gateway.start(store, **settings) as gateway:  # type: ignore[arg-type]
        running.ask(gateway.url, "Do task alpha in 6 steps")
    with quire.Library(store) as library:
        (session,) = library.list(prefix="gateway/")
        assert find_session(library, session.rpartition("/")[2][:8]) == session
        assert find_session(library, session.rpartition("/")[2][-8:]) == session
        done = write_handoff(library, session, folder=running.work, environment=running.environment)
    upstream.forget()
    resume = ("--resume", done.session_id) if name == "claude" else ("resume", done.session_id)
    running.ask(upstream.url, "Do task beta in 1 steps", *resume)
    assert upstream.refused == []
    said = json.dumps(upstream.requests[-1])
    assert "are folded to save space" in said
    assert "call_alpha_5_of_6" in said
    assert "call_beta_0_of_1" in said
