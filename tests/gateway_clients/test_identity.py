"""What real clients do in a session, and how the gateway records it: nothing twice, nothing lost, sessions apart."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quire
import quire.gateway
from quire.gateway.gateway_server import RunningGateway
from tests.gateway_clients.records import answers_in, calls_in, record_of, results_in
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import Body, Call, Fault, Reply, StrictProvider

pytestmark = pytest.mark.node


@pytest.fixture
def gateway(upstream: StrictProvider, tmp_path: Path) -> Iterator[RunningGateway]:
    with quire.gateway.start(
        tmp_path / "agent.db", anthropic=upstream.url, openai=upstream.url, mode="observe", port=0
    ) as running:
        yield running


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_resumed_session_continues_and_a_fork_branches_off(
    name: str, gateway: RunningGateway, client: Callable[..., Client], tmp_path: Path
) -> None:
    running = client(name)
    for task in ("alpha", "beta", "gamma"):
        running.write_facts(task, 2)
    running.ask(gateway.url, "Do task alpha in 2 steps")
    again = ("-c",) if name == "claude" else ("resume", "--last")
    running.ask(gateway.url, "Do task beta in 2 steps", *again)
    if name == "claude":
        running.ask(gateway.url, "Do task gamma in 1 steps", "-c", "--fork-session")
    record = record_of(gateway, tmp_path)
    alpha, beta = (["call_alpha_0_of_2", "call_alpha_1_of_2"], ["call_beta_0_of_2", "call_beta_1_of_2"])
    lines = sorted(record.values(), key=len)
    assert calls_in(lines[0]) == results_in(lines[0]) == [*alpha, *beta]
    assert answers_in(lines[0]) == 6
    if name == "claude":  # a fork has another session id, and the whole history
        assert calls_in(lines[1]) == [*alpha, *beta, "call_gamma_0_of_1"]
    assert len(record) == (2 if name == "claude" else 1)


def test_sub_agents_of_claude_code_have_records_of_their_own(
    gateway: RunningGateway, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    plain = ToolScript()

    def script(body: Body) -> Reply:
        said = json.dumps(body["messages"])
        if "Ask two agents" in said and "call_agent" not in said:
            tasks = enumerate(("alpha", "beta"))
            arguments = {"description": "read", "subagent_type": "general-purpose"}
            calls = [
                Call(f"call_agent_{n}", "Agent", {**arguments, "prompt": f"Do task {task} in 2 steps"})
                for n, task in tasks
            ]
            return Reply("I ask two agents.", tuple(calls))
        return Reply("Both are done.") if "call_agent" in said else plain(body)

    upstream.script = script
    running = client("claude")
    for task in ("alpha", "beta"):
        running.write_facts(task, 2)
    running.ask(gateway.url, "Ask two agents")
    record = record_of(gateway, tmp_path)
    assert sorted(sorted(calls_in(messages)) for messages in record.values()) == [
        ["call_agent_0", "call_agent_1"],
        ["call_alpha_0_of_2", "call_alpha_1_of_2"],
        ["call_beta_0_of_2", "call_beta_1_of_2"],
    ]
    sessions = {name.partition(".")[0] for name in record}
    assert len(sessions) == 1  # a sub-agent has the id of its session and an id of its own


def test_the_own_compaction_of_claude_code_begins_an_epoch_and_loses_nothing(
    gateway: RunningGateway, client: Callable[..., Client], tmp_path: Path
) -> None:
    running = client("claude")
    facts = [*running.write_facts("alpha", 2), *running.write_facts("beta", 1)]
    running.ask(gateway.url, "Do task alpha in 2 steps")
    running.ask(gateway.url, "/compact", "-c")
    running.ask(gateway.url, "Do task beta in 1 steps", "-c")
    gateway.stop()
    with quire.Library(tmp_path / "agent.db") as library:
        (name,) = library.list(prefix="gateway/")
        with library.open(name) as context:
            shown = json.dumps(context.render().anthropic())
            assert "being continued from a previous conversation" in shown
            assert facts[0] not in shown
            assert facts[2] in shown
            for fact in facts:
                assert context.find(fact), fact


def test_retries_after_529_and_cut_streams_record_everything_once(
    gateway: RunningGateway, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    plain, number = ToolScript(), iter(range(1_000))

    def script(body: Body) -> Reply | Fault:
        here = next(number)
        reply = plain(body)
        return Fault(529) if here in (1, 2) else reply._replace(cut=5) if here in (4, 5) else reply

    upstream.script = script
    running = client("claude")
    running.write_facts("alpha", 4)
    running.ask(gateway.url, "Do task alpha in 4 steps")
    (messages,) = record_of(gateway, tmp_path).values()
    assert calls_in(messages) == results_in(messages) == [f"call_alpha_{n}_of_4" for n in range(4)]
    assert answers_in(messages) == 5
