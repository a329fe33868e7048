"""The benchmark's own count: the cost of a list, its cached part, and the rules it breaks."""

from typing import Any

import pytest

from bench.peers.accounting import (
    EMPTY,
    NO_CALL,
    NO_NEWEST,
    NO_RESULT,
    NO_SYSTEM,
    NOT_USER,
    billed,
    broken,
    shared,
    tokens,
)

Message = dict[str, Any]

SYSTEM: Message = {"role": "system", "content": "You are careful."}
ASKED: Message = {"role": "user", "content": "退款要多久？"}
CALLING: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"id":1}'}}],
}
RESULT: Message = {"role": "tool", "tool_call_id": "c1", "content": "three days"}
SAID: Message = {"role": "assistant", "content": "Three days."}
WHOLE = [SYSTEM, ASKED, CALLING, RESULT]


def test_a_list_that_only_grows_is_cached_up_to_where_it_ended() -> None:
    assert shared([], WHOLE) == 0
    assert shared(WHOLE[:2], WHOLE) == tokens(WHOLE[:2])
    assert shared(WHOLE, WHOLE[:2]) == tokens(WHOLE[:2])


def test_of_the_first_message_that_differs_only_the_beginning_of_its_text_is_cached() -> None:
    before: list[Message] = [SYSTEM, {"role": "user", "content": "one two three"}]
    now: list[Message] = [SYSTEM, {"role": "user", "content": "one two four"}, SAID]
    assert shared(before, now) == tokens([SYSTEM]) + 2
    assert shared(before, [SYSTEM, {"role": "assistant", "content": "one two three"}]) == tokens([SYSTEM])


def test_another_call_id_or_other_arguments_end_what_is_cached() -> None:
    other = {**CALLING, "tool_calls": [{**CALLING["tool_calls"][0], "id": "c2"}]}
    assert shared(WHOLE, [SYSTEM, ASKED, other, RESULT]) == tokens([SYSTEM, ASKED])


def test_a_cached_token_costs_a_tenth() -> None:
    assert billed(1_000, 0) == 1_000
    assert billed(1_000, 1_000) == pytest.approx(100)


@pytest.mark.parametrize(
    ("messages", "newest", "found"),
    [
        (WHOLE, RESULT, set()),
        ([SYSTEM, ASKED], ASKED, set()),
        ([SYSTEM, ASKED, SAID, ASKED, ASKED], ASKED, set()),
        ([SYSTEM, RESULT], RESULT, {NO_CALL, NOT_USER}),
        ([SYSTEM, ASKED, RESULT], RESULT, {NO_CALL}),
        ([SYSTEM, ASKED, CALLING, RESULT, RESULT], RESULT, {NO_CALL}),
        ([SYSTEM, ASKED, CALLING, ASKED], ASKED, {NO_RESULT}),
        ([SYSTEM, ASKED, CALLING], CALLING, {NO_RESULT}),
        ([SYSTEM, SAID, ASKED], ASKED, {NOT_USER}),
        ([ASKED], ASKED, {NO_SYSTEM}),
        ([SYSTEM], ASKED, {EMPTY}),
        ([], ASKED, {EMPTY, NO_SYSTEM}),
        ([SYSTEM, {"role": "user", "content": "退款…"}], ASKED, {NO_NEWEST}),
    ],
)
def test_every_broken_rule_is_named(messages: list[Message], newest: Message, found: set[str]) -> None:
    assert broken(messages, newest, budget=1_000) == found


def test_a_newest_message_that_could_not_fit_may_be_clipped() -> None:
    long = {"role": "user", "content": "word " * 500}
    clipped: list[Message] = [SYSTEM, {"role": "user", "content": "word word …"}]
    assert broken(clipped, long, budget=400) == set()
    assert broken(clipped, long, budget=1_000) == {NO_NEWEST}
