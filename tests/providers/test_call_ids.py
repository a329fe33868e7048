"""Repeated call ids get new ids; earlier messages stay unchanged."""

from quire import Message, ToolCall
from quire.providers.rewrites import make_call_ids_distinct


def exchange(*ids: str) -> list[Message]:
    calls = tuple(ToolCall(call, "f") for call in ids)
    results = [Message(role="tool", tool_call_id=call, content=f"of {call}") for call in reversed(ids)]
    return [Message(role="assistant", tool_calls=calls), *results]


def ids_of(messages: list[Message]) -> list[str]:
    return [i for m in messages for i in ([call.id for call in m.tool_calls] or [m.tool_call_id or ""])]


def test_ids_that_differ_stay_as_they_are() -> None:
    messages = exchange("a", "b") + exchange("c")
    assert make_call_ids_distinct(messages) is messages


def test_a_reused_id_is_told_apart_with_its_result() -> None:
    messages = exchange("a", "b") + exchange("a", "a_2") + exchange("b", "a")
    told = list(make_call_ids_distinct(messages))
    assert ids_of(told) == ["a", "b", "b", "a", "a_2", "a_2_2", "a_2_2", "a_2", "b_2", "a_3", "a_3", "b_2"]
    assert [message.content for message in told] == [message.content for message in messages]


def test_what_stands_before_decides_alone() -> None:
    messages = [message for _ in range(5) for message in exchange("a", "b")]
    whole = list(make_call_ids_distinct(messages))
    for end in range(0, len(messages), 3):
        assert list(make_call_ids_distinct(messages[:end])) == whole[:end]
