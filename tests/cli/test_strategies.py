"""What quire is compared with: each strategy by hand on a few messages whose sizes are round."""

from collections.abc import Sequence
from typing import Any

import pytest

from quire import Message, ToolCall
from quire.cli.demo.talk import MESSAGES, SYSTEM
from quire.cli.replaying.counting import Counted
from quire.cli.replaying.refusals import Refusals, refusing
from quire.cli.replaying.strategies import KINDS, Aside, Setting, chosen
from quire.errors import InvalidValue


class Words:
    """Counts words: a message of six costs ten."""

    name = "words"
    exact = True

    def count(self, text: str) -> int:
        return len(text.split())


COUNTED = Counted(Words())


def said(role: str, size: int = 10, **more: Any) -> Message:
    return Message(role=role, content=" ".join(["字"] * (size - 4)), **more)  # type: ignore[arg-type]


def called(number: int) -> Message:
    """A message of ten tokens that calls a tool."""
    return Message(role="assistant", content="", tool_calls=(ToolCall(f"c{number}", "look", '{"a": 1}'),))


def result(number: int, size: int = 10) -> Message:
    return said("tool", size, tool_call_id=f"c{number}")


PROMPT = said("system")
TALK = [said(role) for role in ("user", "assistant") * 4][:7]
"""Three exchanges and a question; with the prompt 80 tokens."""
TOOLS = [said("user"), called(1), result(1), called(2), result(2), called(3), result(3), called(4), result(4)]
"""A question and four calls: 10, 11, 10, 11, 10 …"""


def sent(name: str, messages: Sequence[Message], budget: int = 50, *, every: bool = False) -> list[int]:
    """What a strategy sends after all messages, as their places; -1 is the prompt and -2 what it made itself.

    `every`: a request was made before every message of the assistant's too.
    """
    strategy = KINDS[name].make(Setting(PROMPT, budget, 10, COUNTED))
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
        ("newest", [3, 4, 5, 6]),  # 40 tokens beside the prompt
        ("trim", [4, 5, 6]),  # from a user message on
        ("last-n", [3, 4, 5, 6]),  # 40 / 10
        ("session-limit", [2, 3, 4, 5, 6]),  # the last four before the question, and the question
        ("sliding", [2, 3, 4, 5, 6]),  # cut to four after the last answer
        ("reducer", [4, 5, 6]),  # 3 with the prompt, back to a user message within one more
        ("truncation", [6]),  # 80 > 50: down to 25 at most
        ("flush", [6]),  # 70 % of 40 is 28: two messages
        ("clear-tools", [0, 1, 2, 3, 4, 5, 6]),  # there are none to clear
    ],
)
def test_what_is_sent_of_a_talk(name: str, expected: list[int]) -> None:
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
def test_what_is_sent_of_calls_and_results(name: str, expected: list[int]) -> None:
    assert sent(name, TOOLS) == [-1, *expected]


@pytest.mark.parametrize("name", [name for name in KINDS if name != "quire"])
def test_what_fits_is_sent_whole(name: str) -> None:
    assert sent(name, TALK, 1_000, every=True) == [-1, 0, 1, 2, 3, 4, 5, 6]


def test_a_prompt_is_not_needed() -> None:
    for kind in chosen(None):
        strategy = kind.make(Setting(None, 2_000, 10, Counted()))
        strategy.add(TALK[0])
        assert strategy.render()[-1].text == TALK[0].text


def test_a_window_of_messages_follows_from_the_mean_and_is_never_tiny() -> None:
    assert Setting(PROMPT, 110, 20, COUNTED).window == 5
    assert Setting(PROMPT, 110, 90, COUNTED).window == 4
    assert Setting(PROMPT, 5, 20, COUNTED).room == 0


def test_truncation_waits_until_the_budget_is_passed_again() -> None:
    strategy = KINDS["truncation"].make(Setting(PROMPT, 50, 10, COUNTED))
    sizes = []
    for message in [said("user") for _ in range(12)]:
        strategy.add(message)
        sizes.append(len(strategy.render()))
    assert sizes == [2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5]


def test_a_cleared_result_stays_the_same_message_and_keeps_its_call() -> None:
    strategy = KINDS["clear-tools"].make(Setting(PROMPT, 50, 10, COUNTED))
    for message in TOOLS:
        strategy.add(message)
    first, again = strategy.render()[3], strategy.render()[3]
    assert first is again
    assert (first.role, first.content, first.tool_call_id) == ("tool", "[cleared]", "c1")


def made(name: str, count: int, budget: int = 1_000) -> tuple[list[Message], list[Aside], list[Message]]:
    """Messages of a hundred tokens, what is sent after them, and the model calls of the strategy's own."""
    messages = [said("user", 100) for _ in range(count)]
    strategy = KINDS[name].make(Setting(PROMPT, budget, 100, COUNTED))
    for message in messages:
        strategy.add(message)
    shown = list(strategy.render())
    return shown, list(strategy.asides()), messages


def test_a_summariser_reads_all_but_the_newest_tenth_from_85_percent_on() -> None:
    shown, asides, messages = made("summarise", 8)  # 810
    assert (len(shown), asides) == (9, [])
    shown, asides, messages = made("summarise", 9)  # 910
    assert shown[0] is PROMPT
    assert shown[1].text.startswith("Here is a summary")
    assert shown[2:] == messages[8:]
    assert asides == [Aside(tuple(messages[:8]), 491, 400, follows=False)]


def test_a_summary_cuts_no_result_from_its_call() -> None:
    messages = [*(said("user", 100) for _ in range(8)), called(1), result(1, 95)]
    strategy = KINDS["summarise"].make(Setting(PROMPT, 1_000, 100, COUNTED))
    for message in messages:
        strategy.add(message)
    assert strategy.render()[2:] == (*messages[8:],)


def test_compaction_reads_everything_where_it_stands_from_75_percent_on() -> None:
    shown, asides, messages = made("compact", 7)  # 710
    assert (len(shown), asides) == (8, [])
    shown, asides, messages = made("compact", 8)  # 810
    assert [message.role for message in shown] == ["system", "user"]
    assert asides == [Aside((PROMPT, *messages), 0, 400, follows=True)]


def test_a_summary_is_told_of_once_and_the_next_differs() -> None:
    strategy = KINDS["compact"].make(Setting(PROMPT, 1_000, 100, COUNTED))
    summaries = []
    for message in [said("user", 100) for _ in range(30)]:
        strategy.add(message)
        shown = strategy.render()
        if strategy.asides():
            summaries.append(shown[1].text)
            assert strategy.asides() == []
    assert len(summaries) == len(set(summaries)) > 3


def test_what_a_strategy_is_made_of_is_known_by_name() -> None:
    assert [kind.name for kind in chosen("compact, newest")] == ["quire", "newest", "compact"]
    assert [kind.name for kind in chosen(None)] == [*KINDS]
    for words in ("newest,oldest", ",", ""):
        with pytest.raises(InvalidValue, match="there are quire, unmanaged, newest, trim, last-n"):
            chosen(words)


@pytest.mark.parametrize("name", KINDS)
def test_a_request_judged_turn_by_turn_is_judged_as_a_whole(name: str) -> None:
    judge, counted = Refusals(), Counted()
    found: set[str] = set()
    for budget in (600, 1_500):
        strategy = KINDS[name].make(Setting(Message(role="system", content=SYSTEM), budget, 150, counted))
        for message in MESSAGES:
            if message.role == "assistant":
                request = tuple(strategy.render())
                counted.total(request)
                found |= refusing(request)
                assert judge.of(request) == refusing(request)
            strategy.add(message)
    assert bool(found) == (name in ("newest", "trim", "last-n", "session-limit", "sliding", "reducer", "truncation"))


def test_refusals_of_lists_that_nobody_makes() -> None:
    lists = [
        [PROMPT],
        [PROMPT, PROMPT, TALK[0]],
        [TALK[1], TALK[0]],
        [TALK[0], called(1), TALK[0], result(1)],
        [TALK[0], called(1), result(1), TALK[0], result(1)],
        [result(1), TALK[0]],
        [PROMPT, TALK[0], TALK[0], called(1)],
    ]
    judge = Refusals()
    assert [judge.of(one) for one in lists] == [refusing(one) for one in lists]
    assert judge.of([]) == refusing([]) == {"openai", "anthropic"}
