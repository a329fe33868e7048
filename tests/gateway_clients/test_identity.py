"""What real clients do in a session, and how the gateway records it: nothing twice, nothing lost, sessions apart."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quire
from tests.gateway_clients.conftest import Open
from tests.gateway_clients.records import find_words, read_record
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import AgentScript, ToolScript
from tests.strict_provider import Body, Fault, Reply, Request, StrictProvider
from tests.strict_provider.tokens import count_request

pytestmark = pytest.mark.clients


def _steps(task: str, count: int) -> list[str]:
    return [f"call_{task}_{n}_of_{count}" for n in range(count)]


def test_a_fork_of_claude_code_branches_off_and_its_own_compaction_loses_nothing(
    start: Open, client: Callable[..., Client], store: Path
) -> None:
    """A fork has another session id, and the whole history. A compaction begins an epoch of the same session."""
    gateway, running = start(), client("claude")
    facts = [fact for task in ("alpha", "beta", "gamma") for fact in running.write_facts(task, 2)]
    running.ask(gateway.url, "Do task alpha in 2 steps")
    running.ask(gateway.url, "/compact", "-c")
    running.ask(gateway.url, "Do task beta in 2 steps", "-c")
    running.ask(gateway.url, "Do task gamma in 2 steps", "-c", "--fork-session")
    gateway.stop()
    short, fork = sorted(read_record(store).values(), key=lambda record: record.calls[-1])
    assert short.calls == short.results == [*_steps("alpha", 2), *_steps("beta", 2)]
    assert fork.calls[-4:] == [*_steps("beta", 2), *_steps("gamma", 2)]
    assert find_words(store, facts) == []
    with quire.Library(store) as library:
        for name in library.list(prefix="gateway/"):
            with library.open(name) as context:
                shown = json.dumps(context.render().anthropic())
                assert "being continued from a previous conversation" in shown
                assert (facts[0] in shown, facts[2] in shown) == (False, True)


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_sub_agents_have_records_of_their_own(
    name: str, start: Open, upstream: StrictProvider, client: Callable[..., Client], store: Path
) -> None:
    """Both run at the same time. Those of Codex begin with the history of their parent."""
    upstream.script = AgentScript()
    gateway, running = start(), client(name)
    for task in ("alpha", "beta"):
        running.write_facts(task, 2)
    assert "Both are done." in running.ask(gateway.url, "Ask two agents")
    gateway.stop()
    assert upstream.refused == []
    records = read_record(store)
    tasks = [[call for call in record.calls if "_of_" in call] for record in records.values()]
    assert sorted(tasks) == [[], _steps("alpha", 2), _steps("beta", 2)]
    for record in records.values():
        assert len(set(record.calls)) == len(record.calls)
        assert sorted(record.results) == sorted(record.calls)
    parent = next(record for record, calls in zip(records.values(), tasks, strict=True) if not calls)
    assert [call for call in parent.calls if "agent" in call] == ["call_agent_alpha", "call_agent_beta"]
    if name == "claude":  # a sub-agent has the id of its session and an id of its own
        assert len({key.partition(".")[0] for key in records}) == 1


def test_the_own_compaction_of_codex_begins_an_epoch_and_loses_nothing(
    start: Open, upstream: StrictProvider, client: Callable[..., Client], store: Path
) -> None:
    """The API writes the summary: one item that nothing else can read."""
    script = upstream.script = ToolScript()
    gateway, running = start(), client("codex")
    facts = [*running.write_facts("alpha", 4, words=600), *running.write_facts("beta", 1)]
    limit = ("-c", f"model_auto_compact_token_limit={_first_tokens(running, upstream) + 7_500}")
    running.ask(gateway.url, "Do task alpha in 4 steps", *limit)
    assert script.summaries == 1
    running.ask(gateway.url, "Do task beta in 1 steps", "resume", "--last")
    gateway.stop()
    assert upstream.refused == []
    (record,) = read_record(store).values()
    assert record.calls == record.results == [*_steps("alpha", 4), *_steps("beta", 1)]
    assert find_words(store, facts) == []
    with quire.Library(store) as library, library.open(*library.list(prefix="gateway/")) as context:
        shown = json.dumps(context.render().responses())
    assert '"compaction"' in shown
    assert "compaction_trigger" not in shown
    assert [fact in shown for fact in facts] == [False, False, False, False, True]


def _first_tokens(running: Client, upstream: StrictProvider) -> int:
    """Return the tokens of the first request of Codex: its prompts and its tools."""
    running.ask(upstream.url, "Do nothing")
    tokens = max(count_request(Request("responses", body)) for body in upstream.requests)
    upstream.forget()
    return tokens


def test_claude_code_leaves_in_a_stream_and_goes_on_through_faults(
    start: Open, upstream: StrictProvider, client: Callable[..., Client], store: Path
) -> None:
    """It repeats a request after 529 and after a cut stream; everything is recorded once."""
    plain, asked, later = ToolScript(), list[float](), iter(range(1_000))

    def script(body: Body) -> Reply | Fault:
        reply = plain(body)
        if reply.calls and reply.calls[0].id == "call_alpha_2_of_4" and not asked:
            asked.append(time.monotonic())
            return reply._replace(pause=0.5)
        here = next(later) if "task beta" in json.dumps(body) else 0
        return Fault(529) if here in (1, 2) else reply._replace(cut=5) if here in (4, 5) else reply

    upstream.script = script
    gateway, running = start(), client("claude")
    running.write_facts("alpha", 4)
    running.write_facts("beta", 2)
    running.ask_and_leave(
        gateway.url, "Do task alpha in 4 steps", when=lambda: bool(asked) and time.monotonic() > asked[0] + 1.2
    )
    end = time.monotonic() + 20
    while not upstream.gone and time.monotonic() < end:
        time.sleep(0.05)
    assert upstream.gone == 1  # the gateway closed its connection
    assert "done after 2 steps" in running.ask(gateway.url, "Do task beta in 2 steps", "-c")
    gateway.stop()
    (record,) = read_record(store).values()
    assert record.calls == record.results == [*_steps("alpha", 4)[:2], *_steps("beta", 2)]
    assert record.problems == []
