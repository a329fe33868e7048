"""A value that is not a message is refused with its place and the accepted values."""

import datetime
import math
from typing import Any
from unittest.mock import MagicMock

import pytest

from quire import InvalidValue, Message
from quire.providers import format_messages, parse, parse_each

HI = {"role": "user", "content": "Hi"}
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


ANSWER = {"type": "tool_result", "tool_use_id": "a", "content": "1"}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def calling(call: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call]}


REFUSED: list[tuple[Any, str]] = [
    ("Hi", "message is 'Hi'"),
    (b"Hi", "message is b'Hi'"),
    (None, "message is None"),
    (7, "message is 7"),
    (object, "message is"),
    (MagicMock(), "nested too deeply"),
    ({}, "message is {}"),
    ({"content": "Hi"}, "message is {'content': 'Hi'}"),
    ({"role": "robot", "content": "Hi"}, "message.role is 'robot'"),
    ({"role": None, "content": "Hi"}, "message.role is None"),
    ({"role": ["user"], "content": "Hi"}, "message.role is ['user']"),
    ({"role": "user"}, "message.content is None"),
    ({"role": "user", "content": None}, "message.content is None"),
    ({"role": "user", "content": 7}, "message.content is 7"),
    ({"role": "user", "content": {"type": "text"}}, "message.content is"),
    ({"role": "user", "content": "Hi", "name": 7}, "message.name is 7"),
    ({"role": "user", "content": "Hi", "type": 7}, "message.type is 7"),
    (user("Hi"), "message.content[0] is 'Hi'"),
    (user({"text": "Hi"}), "message.content[0] is"),
    (user({"type": "text"}), "message.content[0].text is None"),
    (user({"type": ["text"]}), "message.content[0] is"),
    (user({"type": "tool_use", "id": "a", "name": "f", "input": {}}), "message.content[0].type is 'tool_use'; only"),
    (user({"type": "thinking", "thinking": "x"}), "only Anthropic messages with the role 'assistant' have such a part"),
    (user({"type": "redacted_thinking", "data": ""}), "message.content[0].type is 'redacted_thinking'"),
    (user(ANSWER, {"type": "thinking", "thinking": "x"}), "message.content[1].type is 'thinking'"),
    (user({**ANSWER, "content": [{"type": "tool_use", "name": "f"}]}), "message.content[0].content[0].type is"),
    ({"role": "assistant", "content": [ANSWER]}, "only Anthropic messages with the role 'user' have such a part"),
    ({"role": "system", "content": [ANSWER]}, "message.content[0].type is 'tool_result'"),
    ({**calling({"id": "a", "function": {"name": "f"}}), "content": [{"type": "tool_use"}]}, "content[0].type is"),
    (Message(role="user", content=[{"type": "thinking", "text": "x"}]), "message.content[0].type is 'thinking'"),
    (user({"type": "image_url"}), "message.content[0] is {'type': 'image_url'}; a part of the type 'image_url' has"),
    (user({"type": "image_url", "image_url": {}}), '{"image_url": {"url": "…"}}'),
    (user({"type": "image_url", "image_url": {"url": None}}), '{"image_url": {"url": "…"}}'),
    (user({"type": "input_audio", "input_audio": {"data": "x"}}), '"format"'),
    (user({"type": "file"}), '"file_data" or "file_id"'),
    (user({"type": "file", "file": {"filename": "a.pdf"}}), '"file_data" or "file_id"'),
    ({"role": "assistant", "content": [{"type": "refusal"}]}, '{"refusal": "…"}'),
    (user({"type": "input_image"}), '"image_url" or "file_id"'),
    (user({"type": "input_file", "filename": "a.pdf"}), '"file_url" or "file_id"'),
    (user({"type": "image"}), "a part of the type 'image' has"),
    (user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}), '"data"'),
    (user({"type": "document", "source": {"type": "text"}}), '"content"'),
    (user({"type": "document", "source": {"url": "https://example.com/a.pdf"}}), '"type"'),
    (user({"type": "search_result", "title": "x"}), '{"content": […]}'),
    ({"type": "text", "text": "Hi"}, "that is a part of a message"),
    ({"type": "tool_use", "name": "f"}, "that is a part of a message"),
    ({"type": ""}, "message is {'type': ''}"),
    ({"type": None}, "message is {'type': None}"),
    (calling("f"), "message.tool_calls[0] is 'f'"),
    (calling({"id": "a", "function": {"arguments": "{}"}}), "message.tool_calls[0].function.name is None"),
    (calling({"id": "a", "function": {"name": ""}}), "message.tool_calls[0].function.name is ''"),
    (calling({"id": 7, "function": {"name": "f"}}), "message.tool_calls[0].id is 7"),
    (calling({"id": "a", "function": {"name": "f", "arguments": 7}}), "message.tool_calls[0].function.arguments is 7"),
    ({"role": "assistant", "tool_calls": {"id": "a"}}, "message.tool_calls is"),
    ({"role": "assistant", "function_call": "f"}, "message.function_call is 'f'"),
    ({"role": "tool", "content": "1"}, "message.tool_call_id is None"),
    ({"role": "function", "content": "1"}, "message.name is None"),
    ({"type": "function_call", "call_id": "a"}, "message.name is None"),
    ({"type": "function_call", "call_id": 7, "name": "f"}, "message.call_id is 7"),
    ({"type": "message", "role": "tool", "content": "1"}, "message.tool_call_id is None"),
    ({"type": "message", "role": "robot", "content": "1"}, "message.role is 'robot'"),
    (user({"type": "tool_result", "content": "1"}), "message.content[0].tool_use_id is None"),
    (user({"type": "tool_result", "tool_use_id": "a", "content": 7}), "message.content[0].content is 7"),
    (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]},
        "message.content[0].name is None",
    ),
    ({"role": "robot", "content": [{"type": "thinking"}]}, "message.role is 'robot'"),
    ([HI, HI, user({"type": "text", "text": 7})], "messages[2].content[0].text is 7"),
    ([HI, "Ho"], "messages[1] is 'Ho'"),
    ([[HI]], "messages[0] is"),
    ({"choices": []}, "message.choices[0] is None"),
    ({"choices": [{"message": "Hi"}]}, "message.choices[0].message is 'Hi'"),
    ({"object": "response", "output": [HI, "Ho"]}, "message.output[1] is 'Ho'"),
    ({**HI, "x": math.nan}, "message.x is nan"),
    ({**HI, "x": [1, {"y": math.inf}]}, "message.x[1].y is inf"),
    ({**HI, "x": {1: 2}}, "message.x has the key 1"),
    ({**HI, "x": {"\ud800": 2}}, "message.x: the key contains the lone surrogate"),
    ({**HI, "x": b"y"}, "message.x is b'y'"),
    ({**HI, "x": datetime.date(2026, 1, 1)}, "message.x is datetime.date(2026, 1, 1)"),
    ({**HI, "x": {"y"}}, "message.x is {'y'}"),
    ({**HI, "x": 1 << 100_000}, "message.x is an integer of 100,001 bits"),
    ({**HI, "x": CYCLE}, "nested too deeply"),
    ({"role": "user", "content": "a\ud83d"}, "message.content contains the lone surrogate '\\ud83d' at character 1"),
]


@pytest.mark.parametrize(("value", "said"), REFUSED)
def test_what_is_no_message_is_refused_by_name(value: Any, said: str) -> None:
    with pytest.raises(InvalidValue) as error:
        parse(value)
    assert said in str(error.value)
    assert len(str(error.value)) < 1_000


def test_a_stream_gives_what_came_before_the_place_where_it_breaks() -> None:
    stream = parse_each([HI, HI, "Ho"])
    assert [next(stream).text, next(stream).text] == ["Hi", "Hi"]
    with pytest.raises(InvalidValue, match=r"messages\[2\] is 'Ho'"):
        next(stream)


def test_an_sdk_object_that_fails_is_refused() -> None:
    class Broken:
        def model_dump(self, **_: object) -> object:
            raise RuntimeError("no")

    with pytest.raises(InvalidValue, match="cannot be read"):
        parse(Broken())


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(InvalidValue, match="known are openai, responses, anthropic"):
        format_messages([], "gemini")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "x_new", "x": 1},
        {"type": "image", "source": {"type": "x_new", "x": 1}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
        {"type": "image_url", "image_url": "https://example.com/a.png"},
    ],
)
def test_a_part_of_a_new_form_goes_back_as_it_came(part: dict[str, Any]) -> None:
    for provider in ("openai", "anthropic"):
        if part["type"] in ("x_new", "image_url") or provider == "anthropic":
            assert format_messages(parse(user(part), provider), provider) == [user(part)]


def test_an_image_as_a_url_is_an_image_for_other_providers() -> None:
    [message] = parse(user({"type": "image_url", "image_url": "https://example.com/a.png"}))
    [sent] = format_messages([message], "anthropic")
    assert sent["content"] == [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]


def test_a_call_without_an_id_is_taken_in_with_an_empty_one() -> None:
    for value in (
        calling({"type": "function", "function": {"name": "f", "arguments": "{}"}}),
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]},
    ):
        assert [call.id for message in parse(value) for call in message.tool_calls] == [""]
