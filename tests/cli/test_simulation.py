"""The sliding window that quire is compared with is fair and legal, and facts are counted as a whole."""

from itertools import pairwise

import quire
from quire.cli.commands.demo import Question, Side, load_conversation
from quire.cli.replay.recordings import Reach, extract_facts
from quire.cli.replay.simulation import WindowRequest, play_calls
from quire.model.messages import count_message_tokens
from quire.model.tokens import VocabularyCounter
from quire.providers import format_messages

DEMO_TALK = load_conversation()

PROMPT = DEMO_TALK.prompt
COUNT = VocabularyCounter().count


def windows(budget: int) -> list[WindowRequest]:
    with quire.open("memory:", budget=budget) as context:
        return [call.window for call in play_calls(context, PROMPT, DEMO_TALK.messages)]


def said(role: str, text: str) -> quire.Message:
    return quire.Message(role=role, content=text)  # type: ignore[arg-type]


def test_a_window_is_legal_within_the_budget_and_counted_as_views_are() -> None:
    for window in windows(2_000):
        assert quire.check_legal(format_messages(window.messages, "openai"), "openai") == []
        assert window.tokens <= 2_000
        assert window.tokens == sum(count_message_tokens(message, COUNT) for message in window.messages)


def test_a_window_has_the_prompt_and_the_newest_messages_and_no_more_would_fit() -> None:
    for place, window in enumerate(windows(2_000)):
        assert window.messages[0] is PROMPT
        newest = window.messages[1:]
        seen = [n for n, message in enumerate(DEMO_TALK.messages) if message.role == "assistant"][place]
        assert list(newest) == list(DEMO_TALK.messages[seen - len(newest) : seen])
        left = DEMO_TALK.messages[: seen - len(newest)]
        if left:
            last = next(n for n in reversed(range(len(left))) if left[n].role != "tool")
            assert window.tokens + sum(count_message_tokens(message, COUNT) for message in left[last:]) > 2_000


def test_the_shared_prefix_ends_where_the_first_message_is_dropped() -> None:
    found = windows(2_000)
    prompt = count_message_tokens(PROMPT, COUNT)
    moved = [now for before, now in pairwise(found) if now.messages[1] is not before.messages[1]]
    grown = [now for before, now in pairwise(found) if now.messages[1] is before.messages[1]]
    assert moved
    assert all(window.shared == prompt for window in moved)
    assert grown
    assert all(window.shared > prompt for window in grown)
    assert found[0].shared == 0


def test_a_fact_counts_only_as_a_whole_word() -> None:
    side = Side()
    sought = [("6543", "6543"), ("周五", "周五 17:00")]
    assert side.reach(sought, [said("user", "port 65432, 必须在周五 17:00前")]) == Reach(1, 0, 2)
    assert side.reach(sought, [said("user", "端口6543。")]) == Reach(1, 0, 2)


def test_a_side_with_a_context_also_finds() -> None:
    context = quire.open("memory:")
    context.user("Use the replica on port 6543.")
    asked = [Question("", "replica port", "6543"), Question("", "replica port", "9999")]
    side = Side(context)
    side.call([PROMPT, said("user", "Which port?")], 100, 40, asked)
    assert side.answers == Reach(0, 1, 2)
    assert (side.calls, side.tokens, side.shared, side.openai_refusals) == (1, 100, 40, 0)
    assert side.cost == 0.1 * 40 + 60
    side.call([PROMPT], 10, 10, [])
    assert side.openai_refusals == 1


def test_facts_are_names_and_numbers_with_a_digit() -> None:
    text = "INV-20931 for cus_5Hq2: 74.90 EUR at 02:14:09.122, on 2026-03-11. Port 6543 (17 rows, mid-year plan)."
    assert extract_facts([said("user", text), said("assistant", text)]) == [
        "INV-20931",
        "cus_5Hq2",
        "74.90",
        "02:14:09.122",
        "2026-03-11",
        "6543",
    ]


def test_facts_of_a_long_text_without_blanks_are_found_in_one_pass() -> None:
    """A regular expression that looks ahead from every character would take minutes here."""
    assert extract_facts([said("user", f"订单ORD-1026{'退款' * 50_000}")]) == ["ORD-1026"]
