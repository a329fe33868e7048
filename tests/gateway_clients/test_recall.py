"""A client's model reads folded text through MCP in the same run, and a session goes on without the gateway."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway_clients.conftest import Open
from tests.gateway_clients.runs import Client, gateway_command
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import Body, Call, Reply, StrictProvider

pytestmark = pytest.mark.clients
FOUND = "The code of step 0 is"
ATTEMPTS = 8


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_the_model_finds_a_folded_fact_with_the_mcp_tool(
    name: str, upstream: StrictProvider, client: Callable[..., Client], store: Path
) -> None:
    """`quire gateway run --mcp` adds the server. After the last file, the model searches for the first fact."""
    pytest.importorskip("mcp")
    running = client(name)
    fact = running.write_facts("alpha", 6, words=1_200)[0]
    plain = ToolScript()
    asked: list[str] = []

    def script(body: Body) -> Reply:
        said = json.dumps(body.get("messages") or body.get("input"))
        if "call_find" in said and (FOUND in said[said.index("call_find") :] or len(asked) == ATTEMPTS):
            return Reply("I found it.")
        if "call_alpha_5_of_6" in said:
            asked.append(said)
            time.sleep(len(asked) - 1)  # on a busy machine the client may not have started the server yet
            return Reply("I search.", (_find_call(name, fact, len(asked)),))
        return plain(body)

    upstream.script = script
    words = running.command("Do task alpha in 6 steps")
    run = gateway_command(store, upstream.url, words, "--mcp", "--budget", "26k")
    done = subprocess.run(run, **running.surroundings(""), capture_output=True, text=True, timeout=300)
    assert (done.returncode, upstream.refused) == (0, []), done.stderr[-1500:]
    assert asked
    assert fact not in asked[0]  # it is folded
    last = json.dumps(upstream.requests[-1])
    assert FOUND in last[last.index("call_find") :]


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
    name: str, upstream: StrictProvider, client: Callable[..., Client], store: Path, start: Open
) -> None:
    running = client(name, model="gpt-5.1-codex" if name == "codex" else "")
    first = running.write_facts("alpha", 6, words=900)[0]
    running.write_facts("beta", 1)
    gateway = start("fold", 22_000)
    running.ask(gateway.url, "Do task alpha in 6 steps")
    gateway.stop()
    (session,) = json.loads(_quire(running, "sessions", str(store)))["name"].rpartition("/")[2:]
    done = json.loads(_quire(running, "handoff", str(store), session[:8]))
    upstream.forget()
    resume = ("--resume", done["session_id"]) if name == "claude" else ("resume", done["session_id"])
    running.ask(upstream.url, "Do task beta in 1 steps", *resume)
    assert upstream.refused == []
    said = json.dumps(upstream.requests[-1])
    assert first not in said  # it is folded
    assert "call_alpha_5_of_6" in said
    assert "call_beta_0_of_1" in said


def _quire(running: Client, *words: str) -> str:
    """Return what a command of the gateway prints in the working folder of the client."""
    command = [sys.executable, "-m", "quire", "gateway", *words, "--json"]
    done = subprocess.run(command, **running.surroundings(""), stdout=subprocess.PIPE, text=True, check=True)
    return str(done.stdout)
