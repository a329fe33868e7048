"""The forms of a view are what the providers' own types want, whatever shape the messages came in."""

from typing import Any

import pytest

import quire
from quire import check_legal
from quire.messages import Provider
from tests.providers.histories import ALL, CASES
from tests.providers.test_sdk import BEYOND_THE_TYPES, check_types


@pytest.mark.parametrize("budget", [100_000, 700])
@pytest.mark.parametrize(("provider", "name"), CASES)
def test_every_form_of_a_view_is_legal_and_fits_the_sdk_types(provider: Provider, name: str, budget: int) -> None:
    if (provider, name) in BEYOND_THE_TYPES:
        pytest.skip("the history itself goes beyond the types")
    ctx = quire.open("memory:", budget=budget)
    ctx.import_messages(ALL[provider][name])
    ctx.user("And now? " + "Please. " * 20)
    try:
        view = ctx.render()
    except quire.IrreducibleFloor:
        assert budget == 700
        return
    assert view.tokens <= budget
    check_types(view.openai(), "openai")
    check_types(view.responses(), "responses")
    check_types(view.anthropic(), "anthropic")
    assert check_legal(view.openai(), "openai") == []
    assert check_legal(view.responses(), "responses") == []
    assert check_legal(view.anthropic(), "anthropic") == []


@pytest.mark.parametrize(("provider", "name"), CASES)
def test_what_a_caller_does_to_a_form_harms_no_later_one(provider: Provider, name: str) -> None:
    ctx = quire.open("memory:", budget=100_000)
    ctx.import_messages(ALL[provider][name])
    before = ctx.render().openai()
    _spoil(ctx.render().openai())
    assert ctx.render().openai() == before
    assert all(type(message) is dict for message in before)


def _spoil(value: Any) -> None:
    """Empty everything in a value that can be emptied, from the inside out."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _spoil(inner)
        value.clear()
