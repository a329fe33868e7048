"""A history is written for its own provider exactly as it was read."""

import copy
import json
from typing import Any

import msgspec
import pytest

from quire import Message
from quire.model.messages import Provider
from quire.providers import anthropic, format_messages, parse, parse_each
from tests.providers.histories import ALL, ANTHROPIC, CASES, LONG, OPENAI, PDF, PNG, RESPONSES

each_history = pytest.mark.parametrize(("provider", "name"), CASES)


@each_history
def test_a_history_goes_back_as_it_came(provider: Provider, name: str) -> None:
    history = ALL[provider][name]
    assert format_messages(parse(history), provider) == history


@each_history
def test_a_history_goes_back_as_it_came_through_storage(provider: Provider, name: str) -> None:
    messages = parse(ALL[provider][name])
    for codec in (msgspec.msgpack, msgspec.json):
        stored = codec.decode(codec.encode(messages), type=list[Message])
        assert stored == messages
        assert format_messages(stored, provider) == ALL[provider][name]


@each_history
def test_a_history_read_as_a_stream_goes_back_as_it_came(provider: Provider, name: str) -> None:
    if name == "late system":
        pytest.skip("only a look ahead tells whose system message it is")
    messages = list(parse_each(iter(ALL[provider][name])))
    assert format_messages(messages, provider) == ALL[provider][name]


@each_history
def test_messages_one_at_a_time_go_back_as_they_came(provider: Provider, name: str) -> None:
    if name == "late system":
        pytest.skip("only a look ahead tells whose system message it is")
    messages = [message for value in ALL[provider][name] for message in parse(value)]
    assert format_messages(messages, provider) == ALL[provider][name]


@each_history
def test_what_comes_in_and_goes_out_is_copied(provider: Provider, name: str) -> None:
    history = copy.deepcopy(ALL[provider][name])
    messages = parse(history)
    _spoil(history)
    _spoil(format_messages(messages, provider))
    assert format_messages(messages, provider) == ALL[provider][name]


def _spoil(value: Any) -> None:
    inner = list(value.values()) if isinstance(value, dict) else list(value)
    for each in inner:
        if isinstance(each, dict | list):
            _spoil(each)
    value.clear()


@pytest.mark.parametrize(
    "history",
    [
        OPENAI["plain"],
        OPENAI["developer"],
        OPENAI["parallel calls"],
        OPENAI["custom tool"],
        RESPONSES["plain call"],
        RESPONSES["custom tool"],
        ANTHROPIC["plain"],
        ANTHROPIC["calls only, results apart"],
        ANTHROPIC["image as result"],
    ],
)
def test_ordinary_messages_carry_no_raw(history: list[dict[str, Any]]) -> None:
    assert [message for message in parse(history) if message.raw] == []


@each_history
def test_raw_repeats_no_long_text_of_the_message(provider: Provider, name: str) -> None:
    for message in parse(ALL[provider][name]):
        stored = msgspec.json.encode(message).decode()
        for text in (LONG, PNG, PDF):
            times = json.dumps(ALL[provider][name], ensure_ascii=False).count(text)
            assert stored.count(text) <= times


def test_the_items_of_one_go_are_one_message() -> None:
    roles = [
        (message.role, len(message.tool_calls)) for message in parse(RESPONSES["reasoning, text and calls in a row"])
    ]
    spoken = [("assistant", 0), ("assistant", 0)]
    assert roles == [("user", 0), ("assistant", 2), ("tool", 0), ("tool", 0), *spoken]


def test_results_and_words_of_one_user_message_are_joined() -> None:
    messages = parse(ANTHROPIC["thinking and parallel calls"][2])
    assert [(message.role, message.joined) for message in messages] == [("tool", False), ("tool", True), ("user", True)]
    assert messages[2].text == "And quickly.\nPlease."


def test_unknown_fields_of_a_message_taken_apart_come_back_once() -> None:
    value = {**ANTHROPIC["thinking and parallel calls"][2], "extra": {"a": [1, None]}}
    assert format_messages(parse(value), "anthropic") == [value]


def test_blank_texts_are_not_sent_back_to_anthropic() -> None:
    blank = {"type": "text", "text": " \n"}
    history = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [blank]}, blank]},
        {"role": "assistant", "content": [blank, {"type": "thinking", "thinking": "", "signature": "s"}]},
        {"role": "assistant", "content": [{**blank, "cache_control": {"type": "ephemeral"}}]},
    ]
    assert format_messages(parse(history), "anthropic") == [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": ""}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}]},
    ]


def test_the_anthropic_prompt_stands_apart() -> None:
    cached = {"role": "system", "content": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}]}
    plain = {"role": "system", "content": "B"}
    user = {"role": "user", "content": "C"}
    assert anthropic.system(parse([plain, user])) == "B"
    assert anthropic.system(parse([cached, user])) == cached["content"]
    assert anthropic.system(parse([cached, plain, user])) == [*cached["content"], {"type": "text", "text": "B"}]
    assert anthropic.system(parse([user])) == ""
    assert format_messages(parse([cached, plain, user]), "anthropic") == [user]


def test_role_and_text_alone_are_called_openai() -> None:
    assert parse({"role": "user", "content": "Hi"})[0] == Message(role="user", content="Hi")


def test_what_could_be_anyones_takes_after_the_rest_of_its_list() -> None:
    assert {message.origin for message in parse(ANTHROPIC["late system"])} == {"anthropic"}


def test_a_message_of_ours_passes_unchanged_but_for_its_index() -> None:
    message = Message(role="user", content="Hi", index=7, name="ada")
    assert parse([message, {"role": "user", "content": "Ho"}]) == [
        Message(role="user", content="Hi", name="ada"),
        Message(role="user", content="Ho"),
    ]
