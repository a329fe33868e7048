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
SAID = {"type": "text", "text": "Yes."}
MARKED = {**SAID, "cache_control": {"type": "ephemeral"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
SEALED = {"type": "redacted_thinking", "data": "c2Vh"}


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "r"}


def calling(call_id: str, name: str = "f") -> dict[str, Any]:
    return {**CALLING, "tool_calls": [{**CALL, "id": call_id, "function": {"name": name, "arguments": "{}"}}]}


def renamed(use: dict[str, Any], used: dict[str, Any], call_id: str) -> list[dict[str, Any]]:
    return [
        {**use, "content": [{**use["content"][0], "id": call_id}]},
        {**used, "content": [{**used["content"][0], "tool_use_id": call_id}]},
    ]


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
        ([ASK, CALLING, {**RESULT, "content": None}], ["empty content"]),
        ([ASK, CALLING, {**RESULT, "content": ""}], []),
        ([ASK, {**CALLING, "tool_calls": [CALL, CALL]}, RESULT], ["duplicate call id"]),
        ([ASK, {**CALLING, "tool_calls": [{"id": "c"}]}], ["malformed call"]),
        ([ASK, {"role": "assistant", "content": ""}], ["empty content"]),
        ([{"role": "user", "content": [{"type": "text", "text": " "}]}], ["empty content"]),
        ([{"role": "user", "content": [{"type": "image_url"}]}], ["malformed part"]),
        ([{"role": "user", "content": [{"type": "file", "file": {}}, {"type": "x_new"}]}], ["malformed part"]),
        ([{**ASK, "name": "Ada Lovelace"}], ["illegal name"]),
        ([{**ASK, "name": "张伟"}], []),
        ([ASK, calling("c" * 41), {**RESULT, "tool_call_id": "c" * 41}], ["illegal call id"]),
        ([ASK, calling("functions.f:0"), {**RESULT, "tool_call_id": "functions.f:0"}], []),
        ([ASK, calling("c", "mcp.server/tool name"), RESULT], ["illegal name"]),
        ([ASK, calling("c", "f" * 65), RESULT], ["illegal name"]),
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
        ([{"role": "user", "content": [SAID, {"type": "image", "source": {"type": "url"}}]}], ["malformed block"]),
        ([{"role": "user", "content": [{"type": "image", "source": {"type": "x_new"}}]}], []),
        ([ASK, USE, {"role": "user", "content": [{"type": "text", "text": "a"}, *USED["content"]]}], ["results first"]),
        ([ASK, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, SAID]}], ["unsigned thinking"]),
        ([ASK, {"role": "assistant", "content": [THOUGHT]}], ["lonely thinking"]),
        ([ASK, {"role": "assistant", "content": [SEALED]}], ["lonely thinking"]),
        ([ASK, {"role": "assistant", "content": [THOUGHT, SAID, THOUGHT]}, ASK], ["lonely thinking"]),
        ([ASK, {"role": "assistant", "content": [THOUGHT, SAID]}], []),
        ([ASK, {"role": "assistant", "content": "Yes "}], ["trailing blanks"]),
        ([ASK, {"role": "assistant", "content": [{"type": "text", "text": "Yes\n"}]}], ["trailing blanks"]),
        ([ASK, {"role": "assistant", "content": "Yes "}, ASK], []),
        ([{"role": "user", "content": [SAID, THOUGHT]}], ["wrong block"]),
        ([ASK, {"role": "assistant", "content": USED["content"]}], ["orphaned result", "wrong block"]),
        ([ASK, *renamed(USE, USED, "a.b")], ["illegal call id"]),
        ([ASK, {"role": "assistant", "content": [{**USE["content"][0], "name": "a.b"}]}, USED], ["illegal name"]),
        ([ASK, {"role": "assistant", "content": [{**USE["content"][0], "name": "a" * 129}]}, USED], ["illegal name"]),
        ([ASK, {"role": "assistant", "content": [{**USE["content"][0], "name": "a" * 128}]}, USED], []),
        ([ASK, {"role": "assistant", "content": [{**USE["content"][0], "input": "x"}]}, USED], ["malformed block"]),
        ({"messages": [ASK]}, []),
        ({"messages": [ASK], "system": ""}, ["empty content"]),
        ({"messages": [ASK], "system": [{"type": "text", "text": " "}, SAID]}, ["empty content"]),
        ({"messages": [{"role": "user", "content": [{**SAID, "cache_control": {}}] * 5}]}, []),
        ({"messages": [{"role": "user", "content": [MARKED] * 4}], "system": [MARKED]}, ["cache marks"]),
        ({"messages": [{"role": "user", "content": [MARKED] * 3}], "system": [MARKED]}, []),
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
        (
            [ASK, {"type": "reasoning"}, {"type": "shell_call_output", "call_id": "c"}],
            ["lonely reasoning", "orphaned result"],
        ),
        ([ASK, {"type": "local_shell_call", "call_id": "c"}, {"type": "function_call_output", "call_id": "c"}], []),
        (
            [
                ASK,
                {"type": "local_shell_call", "id": "l", "call_id": "c"},
                {"type": "local_shell_call_output", "id": "l"},
            ],
            [],
        ),
        ([ASK, {"type": "shell_call", "call_id": "c"}], ["unanswered call"]),
        ([ASK, {"type": "reasoning"}, {"id": "msg_1"}], []),
        ([ASK, CALLED, {"type": "reasoning"}, OUTPUT], ["lonely reasoning"]),
        ([ASK, {**CALLED, "name": "a.b"}, OUTPUT], ["illegal name"]),
        ([ASK, CALLED, {**OUTPUT, "output": None}], ["empty content"]),
        ([ASK, {**CALLED, "call_id": "c" * 65}, {**OUTPUT, "call_id": "c" * 65}], ["illegal call id"]),
        ([ASK, {"type": "reasoning"}, {"role": "assistant", "content": "x"}], []),
        ([{"role": "user", "content": ""}], ["empty content"]),
        ([{"role": "tool", "content": "x"}], ["unknown role"]),
        ([{"role": "user", "content": [{"type": "input_image", "detail": "low"}]}], ["malformed part"]),
        ([ASK, CALLED, {**OUTPUT, "output": [{"type": "input_file"}]}], ["malformed part"]),
    ],
)
def test_openai_responses(items: Any, broken: list[str]) -> None:
    assert rules(items, "responses") == broken


@pytest.mark.parametrize("wrong", [["c"], {"c": 1}, 5])
def test_ids_and_types_that_are_no_text_are_reported(wrong: Any) -> None:
    unanswered = ["illegal call id", "orphaned result", "unanswered call"]
    assert rules([ASK, calling(wrong), RESULT], "openai") == unanswered
    assert rules([ASK, CALLING, {**RESULT, "tool_call_id": wrong}], "openai") == ["orphaned result", "unanswered call"]
    assert rules([ASK, {**CALLED, "call_id": wrong}, OUTPUT], "responses") == unanswered
    assert rules([ASK, {**CALLED, "type": wrong}], "responses") == ["malformed item"]
    assert rules([ASK, *renamed(USE, USED, wrong)], "anthropic")[0] == "illegal call id"
    broken = {"role": "user", "content": [{"type": wrong}]}
    assert rules([broken], "anthropic") == ["malformed block"]


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_a_call_and_an_output_of_the_responses_api_need_a_call_id(kind: str) -> None:
    call, output = {**CALLED, "type": kind}, {**OUTPUT, "type": f"{kind}_output"}
    assert rules([ASK, call, output], "responses") == []
    assert rules([ASK, {**call, "call_id": None}], "responses") == ["malformed item"]
    del output["call_id"]
    assert rules([ASK, call, output], "responses") == ["malformed item", "unanswered call"]


def test_a_call_of_anthropic_needs_an_id() -> None:
    block = {key: value for key, value in USE["content"][0].items() if key != "id"}
    found = rules([ASK, {**USE, "content": [block]}], "anthropic")
    assert found == ["illegal call id", "unanswered call"]


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
