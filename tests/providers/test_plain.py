"""Usual chat dicts are read by a shortcut. It returns what the general parser returns, or leaves the dict to it."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from quire import InvalidValue, providers
from quire.providers import responses

texts = st.one_of(st.sampled_from(("", "text", "文本", "{}", '{"a": 1}', "a\ud800")), st.text(max_size=8))
values = st.one_of(texts, st.none(), st.integers(0, 2), st.lists(texts, max_size=1))
called = st.fixed_dictionaries({"name": values, "arguments": values}, optional={"strict": st.booleans()})
calls = st.fixed_dictionaries(
    {"id": values, "type": st.sampled_from(("function", "custom", None)), "function": called},
    optional={"index": st.integers(0, 1)},
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "system", "tool", "developer", "other")), "content": values},
    optional={"tool_call_id": values, "tool_calls": st.one_of(values, st.lists(calls, max_size=2)), "name": values},
)


@settings(max_examples=300, deadline=None)
@given(message=messages)
def test_the_shortcut_reads_like_the_parser(message: dict[str, Any]) -> None:
    quick = providers._read_plain(message)
    if quick is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(providers, "_read_plain", lambda value: None)
            try:
                assert providers.parse(message) == [quick]
            except InvalidValue as error:
                pytest.fail(f"The parser refuses it: {error}")


items = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "system", "developer", "tool", 1)), "content": values},
    optional={"type": st.sampled_from(("message", "reasoning", None)), "id": values},
)


@settings(max_examples=300, deadline=None)
@given(history=st.lists(items, min_size=1, max_size=3))
def test_the_shortcut_for_items_reads_like_the_parser(history: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "_read_plain", lambda item: None)
        expected = outcome(history)
    assert outcome(history) == expected


def outcome(history: list[dict[str, Any]]) -> object:
    """Return the messages of items, or the text of the error."""
    try:
        return providers.parse(history, "responses")
    except InvalidValue as error:
        return str(error)


def test_a_usual_item_takes_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_format_items", None)  # the general parser calls it
    for role in ("user", "assistant", "system", "developer"):
        (message,) = providers.parse([{"role": role, "content": "阀门"}], "responses")
        assert (message.text, message.developer) == ("阀门", role == "developer")


def test_the_usual_messages_take_the_shortcut() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for message in (
        {"role": "user", "content": "阀门"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "open"},
        {"role": "tool", "tool_call_id": "c1", "content": "open", "name": "look"},
    ):
        assert providers._read_plain(message) is not None
