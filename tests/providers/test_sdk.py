"""The real SDKs: their responses are read, and their types accept what is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from msgspec import Struct

from quire import Message
from quire.model.messages import Provider
from quire.providers import format_messages, parse
from tests.providers.histories import ALL, ANTHROPIC, CASES, LONG, REASONING

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


def test_a_spoken_answer_goes_back_by_its_id_and_elsewhere_in_words() -> None:
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 9, "transcript": "It is sunny."}
    messages = parse(completion(audio=audio))
    assert format_messages(messages, "openai") == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]
    assert format_messages(messages, "responses") == [{"role": "assistant", "content": "It is sunny."}]


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


def test_the_items_of_two_responses_stay_two_messages() -> None:
    first, second = response(OUTPUT[2]), response(OUTPUT[3], id="resp_2")
    messages = parse([first, second])
    assert [message.meta["id"] for message in messages] == ["resp_1", "resp_2"]


def test_usage_is_told_once_for_a_response_of_several_messages() -> None:
    shell = [item for item in ALL["responses"]["local tools"] if item.get("call_id") == "sh_1"]
    shell = [{"id": f"sh_{n}", "max_output_length": None, **item} for n, item in enumerate(shell)]
    messages = parse(
        {"id": "resp_1", "object": "response", "model": "m", "output": shell, "usage": {"total_tokens": 1}}
    )
    assert [message.role for message in messages] == ["assistant", "tool"]
    assert [message.meta for message in messages] == [
        {"id": "resp_1", "model": "m"},
        {"id": "resp_1", "model": "m", "usage": {"total_tokens": 1}},
    ]


def test_an_incomplete_response_says_why() -> None:
    [message] = parse(response(OUTPUT[1], incomplete_details={"reason": "max_output_tokens"}, status="incomplete"))
    assert message.meta["stop_reason"] == "max_output_tokens"


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


def test_a_reply_of_words_only_is_anthropics() -> None:
    assert parse(reply({"type": "text", "text": "Hi"}))[0].origin == "anthropic"


def test_an_empty_reply_is_taken_in_and_not_sent_back() -> None:
    [message] = parse(reply())
    assert message.role == "assistant"
    for provider in PARAMS:
        assert format_messages([message], provider) in ([], [{"role": "assistant", "content": ""}])  # type: ignore[arg-type]


def test_a_dict_may_hold_sdk_objects() -> None:
    whole = reply(*BLOCKS)
    message = {"role": "assistant", "content": whole.content[3:]}
    assert format_messages(parse(message), "anthropic") == [{"role": "assistant", "content": SENT_BACK[2:]}]
    chat = completion(tool_calls=[CALL]).choices[0].message
    assert parse({"role": "assistant", "content": None, "tool_calls": chat.tool_calls}) == parse(chat)


def test_dataclasses_and_structs_are_read_by_their_fields() -> None:
    @dataclass
    class Turn:
        role: str
        content: str
        name: str | None = None

    class Piece(Struct):
        role: str
        content: list[dict[str, str]]

    assert parse(Turn("user", "Hi")) == [Message(role="user", content="Hi")]
    assert parse(Piece("user", [{"type": "text", "text": "Hi"}]))[0].text == "Hi"


def test_history_of_anthropic_params_may_hold_tuples() -> None:
    value = {**ANTHROPIC["plain"][2], "content": tuple(ANTHROPIC["plain"][2]["content"])}
    assert format_messages(parse((value,)), "anthropic") == [ANTHROPIC["plain"][2]]


@pytest.mark.parametrize(
    ("provider", "value"),
    [
        (
            "openai",
            {"role": "tool", "tool_call_id": "x", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        ),
        ("responses", {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
        ("anthropic", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{}]}]}),
    ],
)
def test_the_check_against_the_types_bites(provider: Provider, value: dict[str, Any]) -> None:
    with pytest.raises(pytest.importorskip("pydantic").ValidationError):
        check_types([value], provider)
