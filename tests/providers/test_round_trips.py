"""A history is written for its own provider exactly as it was read."""

import copy
from typing import Any

import pytest

from quire import Message
from quire.providers import anthropic, format_messages, parse, parse_each
from tests.providers.histories import ALL, CASES, Provider

each_history = pytest.mark.parametrize(("provider", "name"), CASES)


@each_history
def test_a_history_goes_back_as_it_came(provider: Provider, name: str) -> None:
    history = ALL[provider][name]
    assert format_messages(parse(history), provider) == history


@each_history
def test_a_history_read_as_a_stream_goes_back_as_it_came(provider: Provider, name: str) -> None:
    if name == "late system":
        pytest.skip("only a look ahead tells whose system message it is")
    messages = list(parse_each(iter(ALL[provider][name])))
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


def test_a_message_of_ours_passes_unchanged_but_for_its_index() -> None:
    message = Message(role="user", content="Hi", index=7, name="ada")
    assert parse([message, {"role": "user", "content": "Ho"}]) == [
        Message(role="user", content="Hi", name="ada"),
        Message(role="user", content="Ho"),
    ]
