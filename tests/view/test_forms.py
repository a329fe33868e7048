"""The forms of a view are what the providers' own types want, whatever shape the messages came in."""

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
