"""Usage reports of every provider."""

from types import SimpleNamespace
from typing import Any

import pytest

from quire import InvalidValue
from quire.providers.usage import BilledTokens, read_usage
from tests.providers.test_sdk import completion, reply, response

CHAT = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 80}}
RESPONSES = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 80}}
ANTHROPIC = {"input_tokens": 15, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 80, "output_tokens": 7}


@pytest.mark.parametrize("usage", [CHAT, RESPONSES, ANTHROPIC])
def test_every_provider_tells_what_went_in(usage: dict[str, Any]) -> None:
    assert read_usage(usage) == BilledTokens(100, 80, None)
    assert read_usage({"model": "m", "usage": usage}) == BilledTokens(100, 80, "m")


def test_the_objects_of_the_sdks_are_read() -> None:
    assert read_usage(completion()) == BilledTokens(10, 8, "gpt-5")
    assert read_usage(completion().usage) == BilledTokens(10, 8, None)
    assert read_usage(response()) == BilledTokens(3, 0, "gpt-5")
    assert read_usage(reply()) == BilledTokens(3, 0, "claude-opus-5")
    types = pytest.importorskip("anthropic.types")
    assert read_usage(types.Usage(**ANTHROPIC)) == BilledTokens(100, 80, None)


def test_fields_that_are_not_told_are_zero() -> None:
    assert read_usage({"prompt_tokens": 9, "prompt_tokens_details": None}) == BilledTokens(9, 0, None)
    assert read_usage(SimpleNamespace(input_tokens=9)) == BilledTokens(9, 0, None)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        17,
        "usage",
        {},
        [],
        {"total_tokens": 5},
        {"usage": None, "model": "m"},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        {"prompt_tokens": "many"},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": 0},
        {"input_tokens": 5, "cache_read_input_tokens": "x"},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}},
    ],
)
def test_what_is_no_usage_is_refused_with_what_would_be(bad: object) -> None:
    with pytest.raises(InvalidValue, match="prompt_tokens, Responses and Anthropic have input_tokens"):
        read_usage(bad)
