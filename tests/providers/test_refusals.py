"""A value that is not a message is refused with its place and the accepted values."""

import datetime
import math
from typing import Any

import pytest

from quire import InvalidValue
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
    *((value, "message") for value in ("Hi", b"Hi", None, 7, object, {}, {"content": "Hi"}, {"type": ""})),
    ({"role": "robot", "content": "Hi"}, "message.role"),
    ({"role": "user"}, "message.content"),
    ({"role": "user", "content": 7}, "message.content"),
    ({**HI, "name": 7}, "message.name"),
    (user("Hi"), "message.content[0]"),
    (user({"type": "text"}), "message.content[0].text"),
    (user({"type": "tool_use", "id": "a", "name": "f", "input": {}}), "message.content[0].type"),
    (user(ANSWER, {"type": "thinking", "thinking": "x"}), "message.content[1].type"),
    (user({"type": "image_url", "image_url": {}}), "message.content[0]"),
    (user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}), "message.content[0]"),
    (calling("f"), "message.tool_calls[0]"),
    (calling({"id": "a", "function": {"arguments": "{}"}}), "message.tool_calls[0].function.name"),
    (calling({"id": 7, "function": {"name": "f"}}), "message.tool_calls[0].id"),
    ({"role": "tool", "content": "1"}, "message.tool_call_id"),
    ({"type": "function_call", "call_id": "a"}, "message.name"),
    (user({"type": "tool_result", "content": "1"}), "message.content[0].tool_use_id"),
    ([HI, HI, user({"type": "text", "text": 7})], "messages[2].content[0].text"),
    ([HI, "Ho"], "messages[1]"),
    ({"choices": [{"message": "Hi"}]}, "message.choices[0].message"),
    ({"object": "response", "output": [HI, "Ho"]}, "message.output[1]"),
    ({**HI, "x": [1, {"y": math.inf}]}, "message.x[1].y"),
    ({**HI, "x": {1: 2}}, "message.x"),
    ({**HI, "x": datetime.date(2026, 1, 1)}, "message.x"),
    ({**HI, "x": 1 << 100_000}, "message.x"),
    ({**HI, "x": CYCLE}, ""),
    ({"role": "user", "content": "a\ud83d"}, "message.content"),
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
    with pytest.raises(InvalidValue):
        next(stream)


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(InvalidValue):
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
