"""The rules of each provider for a list of messages, broken and kept."""

from typing import Any

import pytest

from quire import InvalidValue, check_legal

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASK: dict[str, Any] = {"role": "user", "content": "q"}
CALLING: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": "r"}
USE: dict[str, Any] = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
USED: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]}


def rules(messages: Any, provider: str) -> list[str]:
    return [problem.rule for problem in check_legal(messages, provider)]


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        ([ASK], []),
        ([ASK, CALLING, RESULT], []),
        ([ASK, CALLING, RESULT, ASK, CALLING, RESULT], []),
        ([], ["empty list"]),
        ([ASK, "x"], ["not a message"]),
        ([{"role": "bot", "content": "x"}], ["unknown role"]),
        ([{"role": "system", "content": "x"}], ["only system messages"]),
        ([{"role": "user", "content": " "}], ["empty content"]),
        ([ASK, CALLING], ["unanswered call"]),
        ([ASK, CALLING, ASK], ["unanswered call"]),
        ([ASK, RESULT], ["orphaned result"]),
        ([ASK, CALLING, RESULT, RESULT], ["orphaned result"]),
        ([ASK, {**CALLING, "tool_calls": [CALL, CALL]}, RESULT], ["duplicate call id"]),
        ([ASK, {**CALLING, "tool_calls": [{"id": "c"}]}], ["malformed call"]),
        ([ASK, {"role": "assistant", "content": ""}], ["empty content"]),
    ],
)
def test_openai_chat(messages: Any, broken: list[str]) -> None:
    assert rules(messages, "openai") == broken


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        ([ASK, USE, USED], []),
        ([USE, USED], ["first role"]),
        ([ASK, USE], ["unanswered call"]),
        ([ASK, USE, ASK], ["unanswered call"]),
        ([ASK, USED], ["results first", "orphaned result"]),
        ([ASK, USE, USED, ASK], []),
        ([ASK, USE, ASK, USED], ["results first"]),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], ["empty content"]),
        ([{"role": "user", "content": []}], ["empty content"]),
        ([{"role": "user", "content": ["x"]}], ["malformed block"]),
        ([ASK, USE, {"role": "user", "content": [{"type": "text", "text": "a"}, *USED["content"]]}], ["results first"]),
        ([ASK, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}], ["unsigned thinking"]),
    ],
)
def test_anthropic(messages: Any, broken: list[str]) -> None:
    assert rules(messages, "anthropic") == broken


@pytest.mark.parametrize(
    ("items", "broken"),
    [
        ([ASK, {"type": "function_call", "call_id": "c"}, {"type": "function_call_output", "call_id": "c"}], []),
        ([ASK, {"type": "function_call", "call_id": "c"}], ["unanswered call"]),
        ([ASK, {"type": "function_call_output", "call_id": "c"}], ["orphaned result"]),
        ([ASK, {"type": "reasoning"}], ["lonely reasoning"]),
        ([ASK, {"type": "reasoning"}, ASK], ["lonely reasoning"]),
        ([ASK, {"type": "reasoning"}, {"role": "assistant", "content": "x"}], []),
        ([{"role": "user", "content": ""}], ["empty content"]),
        ([{"role": "tool", "content": "x"}], ["unknown role"]),
    ],
)
def test_openai_responses(items: Any, broken: list[str]) -> None:
    assert rules(items, "responses") == broken


@pytest.mark.parametrize(
    ("messages", "provider"), [([ASK], "mistral"), ([ASK], None), ("text", "openai"), (5, "openai")]
)
def test_what_cannot_be_checked_is_refused(messages: Any, provider: Any) -> None:
    with pytest.raises(InvalidValue):
        check_legal(messages, provider)


def test_anthropic_takes_every_call_id_once_in_a_request() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    result: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]}
    turn: list[dict[str, Any]] = [{"role": "assistant", "content": [call]}, result]
    messages = [{"role": "user", "content": "a"}, *turn, *turn]
    assert [found.rule for found in check_legal(messages, "anthropic")] == ["duplicate call id"]
