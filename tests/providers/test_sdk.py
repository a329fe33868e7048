"""The real SDKs: their responses are read, and their types accept what is written."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from quire.providers import format_messages, parse
from tests.providers.histories import ALL, CASES, LONG, REASONING, Provider

PARAMS = {
    "openai": ("openai.types.chat", "ChatCompletionMessageParam"),
    "responses": ("openai.types.responses", "ResponseInputItemParam"),
    "anthropic": ("anthropic.types", "MessageParam"),
}
# Stored and returned, although the types of the SDKs do not know them.
BEYOND_THE_TYPES = {("openai", "unknown fields")}


@cache
def adapter(provider: Provider) -> Any:
    """Return pydantic's adapter for the SDK's type: creating it takes far longer than using it."""
    pydantic = pytest.importorskip("pydantic")
    module, name = PARAMS[provider]
    return pydantic.TypeAdapter(getattr(pytest.importorskip(module), name))


def check_types(values: list[dict[str, Any]], provider: Provider) -> None:
    """Check that every value fits the SDK's own type."""
    for value in values:
        _exhaust(adapter(provider).validate_python(value))


def _exhaust(value: Any) -> None:
    """Read everything: pydantic checks an `Iterable` only while it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            _exhaust(inner)
    elif isinstance(value, list) or (isinstance(value, Iterator) and not isinstance(value, str)):
        for inner in value:
            _exhaust(inner)


@pytest.mark.parametrize("target", list(PARAMS))
@pytest.mark.parametrize(("provider", "name"), CASES)
def test_every_form_is_what_the_sdk_types_want(provider: Provider, name: str, target: Provider) -> None:
    if (provider, name) in BEYOND_THE_TYPES and provider == target:
        pytest.skip("the history itself goes beyond the types")
    check_types(format_messages(parse(ALL[provider][name]), target), target)


def completion(**message: Any) -> Any:
    chat = pytest.importorskip("openai.types.chat")
    return chat.ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "logprobs": None,
                    "message": {"role": "assistant", "content": None, "refusal": None, "annotations": [], **message},
                }
            ],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": None},
            },
        }
    )


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_a_chat_completion_is_its_first_message() -> None:
    whole = completion(tool_calls=[CALL])
    [message] = parse(whole)
    assert message.raw is None
    assert message.meta == {
        "id": "chatcmpl-1",
        "model": "gpt-5",
        "stop_reason": "tool_calls",
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details.cached_tokens": 8,
        },
    }
    [bare] = parse(whole.choices[0].message)
    assert bare == parse({"role": "assistant", "content": None, "tool_calls": [CALL]})[0]
    assert format_messages([message], "openai") == [{"role": "assistant", "content": None, "tool_calls": [CALL]}]


def test_a_response_given_as_json_is_the_same_as_the_object() -> None:
    whole = completion(content="Hi", tool_calls=[CALL])
    assert parse(whole.model_dump(mode="json")) == parse(whole) == parse([whole])


def test_what_an_sdk_parsed_for_its_caller_is_not_sent_back() -> None:
    chat = pytest.importorskip("openai.types.chat")
    message = chat.ParsedChatCompletionMessage.model_validate(
        {"role": "assistant", "content": '{"a": 1}', "parsed": {"a": 1}, "tool_calls": None}
    )
    assert format_messages(parse(message), "openai") == [{"role": "assistant", "content": '{"a": 1}'}]


def response(*output: dict[str, Any], **more: Any) -> Any:
    responses = pytest.importorskip("openai.types.responses")
    return responses.Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1.0,
            "model": "gpt-5",
            "output": list(output),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "completed",
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 4,
                "output_tokens_details": {"reasoning_tokens": 2},
                "total_tokens": 7,
            },
            **more,
        }
    )


OUTPUT = (
    {**REASONING, "status": None, "content": None},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": LONG, "annotations": [], "logprobs": []}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "async": True},
    {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "f", "arguments": "{}", "status": "completed"},
)


def test_the_items_of_a_response_are_one_message_and_go_back_as_input() -> None:
    [message] = parse(response(*OUTPUT))
    assert [call.id for call in message.tool_calls] == ["c1", "c2"]
    assert message.text == LONG
    assert message.meta["model"] == "gpt-5"
    assert message.meta["usage"]["output_tokens_details.reasoning_tokens"] == 2
    items = format_messages([message], "responses")
    assert items == [REASONING, *OUTPUT[1:]]
    check_types(items, "responses")


def reply(*content: dict[str, Any]) -> Any:
    types = pytest.importorskip("anthropic.types")
    return types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5",
            "content": list(content),
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": None},
        }
    )


BLOCKS = (
    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
    {"type": "text", "text": "I look.", "citations": None},
    {"type": "text", "text": ""},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": None, "n": 2**70}, "caller": None},
)
SENT_BACK = [
    BLOCKS[0],
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": None, "n": 2**70}},
]


def test_an_anthropic_reply_goes_back_without_its_envelope() -> None:
    [message] = parse(reply(*BLOCKS))
    assert message.meta == {
        "id": "msg_1",
        "model": "claude-opus-5",
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    assert message.raw is None
    sent = format_messages([message], "anthropic")
    assert sent == [{"role": "assistant", "content": SENT_BACK}]
    check_types(sent, "anthropic")


def test_an_empty_reply_is_taken_in_and_not_sent_back() -> None:
    [message] = parse(reply())
    assert message.role == "assistant"
    for provider in PARAMS:
        assert format_messages([message], provider) in ([], [{"role": "assistant", "content": ""}])  # type: ignore[arg-type]
