"""What real clients do in a session, and how the gateway records it: nothing twice, nothing lost, sessions apart."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import quire
import quire.gateway
from quire.gateway.gateway_server import RunningGateway
from tests.gateway_clients.records import answers_in, calls_in, record_of, results_in
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import AgentScript, ToolScript
from tests.strict_provider import Body, Fault, Reply, StrictProvider
from tests.strict_provider.requests import Request
from tests.strict_provider.tokens import count_request

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


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_sub_agents_have_records_of_their_own(
    name: str, gateway: RunningGateway, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    """Both run at the same time. Those of Codex begin with the history of their parent."""
    upstream.script = AgentScript()
    running = client(name)
    for task in ("alpha", "beta"):
        running.write_facts(task, 2)
    assert "Both are done." in running.ask(gateway.url, "Ask two agents")
    record = record_of(gateway, tmp_path)
    assert upstream.refused == []
    assert len(record) == 3
    tasks = [[call for call in calls_in(messages) if "_of_" in call] for messages in record.values()]
    assert sorted(tasks) == [
        [],
        ["call_alpha_0_of_2", "call_alpha_1_of_2"],
        ["call_beta_0_of_2", "call_beta_1_of_2"],
    ]
    for messages in record.values():
        calls = calls_in(messages)
        assert len(set(calls)) == len(calls)
        assert sorted(results_in(messages)) == sorted(calls)
    parent = next(messages for messages, calls in zip(record.values(), tasks, strict=True) if not calls)
    assert [call for call in calls_in(parent) if "agent" in call] == ["call_agent_alpha", "call_agent_beta"]
    if name == "claude":  # a sub-agent has the id of its session and an id of its own
        assert len({key.partition(".")[0] for key in record}) == 1


def test_the_own_compaction_of_codex_begins_an_epoch_and_loses_nothing(
    gateway: RunningGateway, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    """The API writes the summary: one item that nothing else can read."""
    script = upstream.script = ToolScript()
    running = client("codex")
    facts = [*running.write_facts("alpha", 4, words=600), *running.write_facts("beta", 1)]
    limit = ("-c", f"model_auto_compact_token_limit={_first_tokens(running, upstream) + 7_500}")
    running.ask(gateway.url, "Do task alpha in 4 steps", *limit)
    assert script.summaries == 1
    running.ask(gateway.url, "Do task beta in 1 steps", "resume", "--last")
    gateway.stop()
    assert upstream.refused == []
    with quire.Library(tmp_path / "agent.db") as library:
        (name,) = library.list(prefix="gateway/")
        with library.open(name) as context:
            messages = list(context.messages())
            shown = json.dumps(context.render().responses())
            assert '"compaction"' in shown
            assert "compaction_trigger" not in shown
            assert [fact in shown for fact in facts] == [False, False, False, False, True]
            assert all(context.find(fact) for fact in facts)
    assert (
        calls_in(messages) == results_in(messages) == [*(f"call_alpha_{n}_of_4" for n in range(4)), "call_beta_0_of_1"]
    )


def _first_tokens(running: Client, upstream: StrictProvider) -> int:
    """Return the tokens of the first request of Codex: its prompts and its tools."""
    running.ask(upstream.url, "Do nothing")
    tokens = max(count_request(Request("responses", body)) for body in upstream.requests)
    upstream.forget()
    return tokens


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_client_that_goes_away_in_a_stream_goes_on_later(
    name: str, gateway: RunningGateway, upstream: StrictProvider, client: Callable[..., Client], tmp_path: Path
) -> None:
    plain = ToolScript()
    asked: list[Reply] = []

    def script(body: Body) -> Reply:
        reply = plain(body)
        if reply.calls and reply.calls[0].id == "call_alpha_2_of_4" and not asked:
            asked.append(reply)
            return reply._replace(pause=0.5)
        return reply

    upstream.script = script
    running = client(name)
    running.write_facts("alpha", 4)
    running.write_facts("beta", 2)
    start: list[float] = []

    def is_streaming() -> bool:
        start.extend([time.monotonic()] if asked and not start else [])
        return bool(start) and time.monotonic() > start[0] + 1.2

    running.ask_and_leave(gateway.url, "Do task alpha in 4 steps", when=is_streaming)
    end = time.monotonic() + 20
    while not upstream.gone and time.monotonic() < end:
        time.sleep(0.05)
    assert upstream.gone == 1  # the gateway closed its connection
    again = ("-c",) if name == "claude" else ("resume", "--last")
    assert "done after 2 steps" in running.ask(gateway.url, "Do task beta in 2 steps", *again)
    (messages,) = record_of(gateway, tmp_path).values()
    calls = ["call_alpha_0_of_4", "call_alpha_1_of_4", "call_beta_0_of_2", "call_beta_1_of_2"]
    assert calls_in(messages) == results_in(messages) == calls


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
