"""Each strategy is checked by hand on a few messages with round sizes."""

from collections.abc import Sequence
from typing import Any

import pytest

from quire import Message, ToolCall
from quire.cli.commands.demo import load_conversation
from quire.cli.replay.pricing import TokenCounts
from quire.cli.replay.simulation import RefusalCache, refusing_providers
from quire.cli.replay.strategies import STRATEGIES, StrategySetup, SummaryCall, select_strategies
from quire.errors import InvalidValue

DEMO_TALK = load_conversation()


class Words:
    """Counts words: a message of six words has ten tokens."""

    name = "words"
    exact = True

    def count(self, text: str) -> int:
        return len(text.split())


COUNTS = TokenCounts(Words())


def said(role: str, size: int = 10, **more: Any) -> Message:
    return Message(role=role, content=" ".join(["字"] * (size - 4)), **more)  # type: ignore[arg-type]


def called(number: int) -> Message:
    """Return a message of ten tokens that calls a tool."""
    return Message(role="assistant", content="", tool_calls=(ToolCall(f"c{number}", "look", '{"a": 1}'),))


def result(number: int, size: int = 10) -> Message:
    return said("tool", size, tool_call_id=f"c{number}")


PROMPT = said("system")
TALK = [said(role) for role in ("user", "assistant") * 4][:7]
"""Three exchanges and a question; with the prompt 80 tokens."""
TOOLS = [said("user"), called(1), result(1), called(2), result(2), called(3), result(3), called(4), result(4)]
"""A question and four calls: 10, 11, 10, 11, 10 …"""


def sent(name: str, messages: Sequence[Message], budget: int = 50, *, every: bool = False) -> list[int]:
    """Return the positions of the messages that a strategy sends; -1 is the prompt, -2 a message of its own.

    With `every`, a request is also made before every message of the assistant.
    """
    strategy = STRATEGIES[name].make(StrategySetup(PROMPT, budget, 10, COUNTS))
    for message in messages:
        if every and message.role == "assistant":
            strategy.render()
        strategy.add(message)
    places = {id(message): place for place, message in enumerate(messages)} | {id(PROMPT): -1}
    return [places.get(id(message), -2) for message in strategy.render()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("unmanaged", [0, 1, 2, 3, 4, 5, 6]),
        ("newest", [3, 4, 5, 6]),  # 40 tokens without the prompt
        ("trim", [4, 5, 6]),  # from a user message on
        ("last-n", [3, 4, 5, 6]),  # 40 / 10
        ("session-limit", [2, 3, 4, 5, 6]),  # the last four before the question, and the question
        ("sliding", [2, 3, 4, 5, 6]),  # cut to four after the last answer
        ("reducer", [4, 5, 6]),  # 3 with the prompt, back to a user message within one more
        ("truncation", [6]),  # 80 > 50: down to 25 at most
        ("flush", [6]),  # 70 % of 40 is 28: two messages
        ("clear-tools", [0, 1, 2, 3, 4, 5, 6]),  # there are no results
    ],
)
def test_the_messages_sent_of_a_conversation(name: str, expected: list[int]) -> None:
    assert sent(name, TALK) == [-1, *expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("newest", [7, 8]),  # a call and its result are 21; two would be 42
        ("trim", []),  # the only user message does not fit
        ("last-n", [5, 6, 7, 8]),
        ("session-limit", [0, 1, 2, 3, 4, 5, 6, 7, 8]),  # nothing is cut within a turn
        ("sliding", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("reducer", [1, 2, 3, 4, 5, 6, 7, 8]),  # back through all calls, but not to the question
        ("truncation", []),  # the last group alone is 21, with the prompt above 25
        ("flush", [0, 1, 2, 3, 4, 5, 6, 7, 8]),  # the last turn stays whole
        ("clear-tools", [0, 1, -2, 3, 4, 5, 6, 7, 8]),  # all but the last three results
    ],
)
def test_the_messages_sent_of_calls_and_results(name: str, expected: list[int]) -> None:
    assert sent(name, TOOLS) == [-1, *expected]


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "quire"])
def test_a_conversation_that_fits_is_sent_whole(name: str) -> None:
    assert sent(name, TALK, 1_000, every=True) == [-1, 0, 1, 2, 3, 4, 5, 6]


def test_a_prompt_is_optional() -> None:
    for kind in select_strategies(None):
        strategy = kind.make(StrategySetup(None, 2_000, 10, TokenCounts()))
        strategy.add(TALK[0])
        assert strategy.render()[-1].text == TALK[0].text


def test_a_window_of_messages_follows_from_the_mean_and_is_never_tiny() -> None:
    assert StrategySetup(PROMPT, 110, 20, COUNTS).window == 5
    assert StrategySetup(PROMPT, 110, 90, COUNTS).window == 4
    assert StrategySetup(PROMPT, 5, 20, COUNTS).room == 0


def test_truncation_waits_until_the_budget_is_passed_again() -> None:
    strategy = STRATEGIES["truncation"].make(StrategySetup(PROMPT, 50, 10, COUNTS))
    sizes = []
    for message in [said("user") for _ in range(12)]:
        strategy.add(message)
        sizes.append(len(strategy.render()))
    assert sizes == [2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5]


def test_a_cleared_result_stays_the_same_message_and_keeps_its_call() -> None:
    strategy = STRATEGIES["clear-tools"].make(StrategySetup(PROMPT, 50, 10, COUNTS))
    for message in TOOLS:
        strategy.add(message)
    first, again = strategy.render()[3], strategy.render()[3]
    assert first is again
    assert (first.role, first.content, first.tool_call_id) == ("tool", "[cleared]", "c1")


def made(name: str, count: int, budget: int = 1_000) -> tuple[list[Message], list[SummaryCall], list[Message]]:
    """Return the request after `count` messages of 100 tokens, the summary calls, and the messages."""
    messages = [said("user", 100) for _ in range(count)]
    strategy = STRATEGIES[name].make(StrategySetup(PROMPT, budget, 100, COUNTS))
    for message in messages:
        strategy.add(message)
    shown = list(strategy.render())
    return shown, list(strategy.take_summary_calls()), messages


def test_a_summariser_reads_all_but_the_newest_tenth_from_85_percent_on() -> None:
    shown, calls, messages = made("summarise", 8)  # 810
    assert (len(shown), calls) == (9, [])
    shown, calls, messages = made("summarise", 9)  # 910
    assert shown[0] is PROMPT
    assert shown[1].text.startswith("Here is a summary")
    assert shown[2:] == messages[8:]
    assert calls == [SummaryCall(tuple(messages[:8]), 491, 400, follows=False)]


def test_a_summary_cuts_no_result_from_its_call() -> None:
    messages = [*(said("user", 100) for _ in range(8)), called(1), result(1, 95)]
    strategy = STRATEGIES["summarise"].make(StrategySetup(PROMPT, 1_000, 100, COUNTS))
    for message in messages:
        strategy.add(message)
    assert strategy.render()[2:] == (*messages[8:],)


def test_compaction_reads_everything_from_75_percent_on() -> None:
    shown, calls, messages = made("compact", 7)  # 710
    assert (len(shown), calls) == (8, [])
    shown, calls, messages = made("compact", 8)  # 810
    assert [message.role for message in shown] == ["system", "user"]
    assert calls == [SummaryCall((PROMPT, *messages), 0, 400, follows=True)]


def test_a_summary_call_is_returned_once_and_the_next_differs() -> None:
    strategy = STRATEGIES["compact"].make(StrategySetup(PROMPT, 1_000, 100, COUNTS))
    summaries = []
    for message in [said("user", 100) for _ in range(30)]:
        strategy.add(message)
        shown = strategy.render()
        if strategy.take_summary_calls():
            summaries.append(shown[1].text)
            assert strategy.take_summary_calls() == []
    assert len(summaries) == len(set(summaries)) > 3


def test_strategies_are_selected_by_name() -> None:
    assert [kind.name for kind in select_strategies("compact, newest")] == ["quire", "newest", "compact"]
    assert [kind.name for kind in select_strategies(None)] == [*STRATEGIES]
    for words in ("newest,oldest", ",", ""):
        with pytest.raises(InvalidValue, match="quire, unmanaged, newest, trim, last-n") as caught:
            select_strategies(words)
        assert caught.value.argument == "strategies"


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_request_checked_turn_by_turn_is_checked_as_a_whole(name: str) -> None:
    judge, counted = RefusalCache(), TokenCounts()
    found: set[str] = set()
    for budget in (600, 1_500):
        strategy = STRATEGIES[name].make(StrategySetup(DEMO_TALK.prompt, budget, 150, counted))
        for message in DEMO_TALK.messages:
            if message.role == "assistant":
                request = tuple(strategy.render())
                counted.total(request)
                found |= refusing_providers(request)
                assert judge.check(request) == refusing_providers(request)
            strategy.add(message)
    assert bool(found) == (name in ("newest", "trim", "last-n", "session-limit", "sliding", "reducer", "truncation"))


def test_refusals_of_unusual_lists() -> None:
    lists = [
        [PROMPT],
        [PROMPT, PROMPT, TALK[0]],
        [TALK[1], TALK[0]],
        [TALK[0], called(1), TALK[0], result(1)],
        [TALK[0], called(1), result(1), TALK[0], result(1)],
        [result(1), TALK[0]],
        [PROMPT, TALK[0], TALK[0], called(1)],
    ]
    judge = RefusalCache()
    assert [judge.check(one) for one in lists] == [refusing_providers(one) for one in lists]
    assert judge.check([]) == refusing_providers([]) == {"openai", "anthropic"}
