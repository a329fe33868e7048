"""Names of models."""

import pytest

from quire.providers.usage import is_same_model, strip_version


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("anthropic/Claude-Sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
        ("gpt-4-0613", "gpt-4"),
        ("通义千问-max", "通义千问-max"),
        ("", ""),
    ],
)
def test_an_alias_has_no_vendor_and_no_date(name: str, short: str) -> None:
    assert strip_version(name) == short


def test_a_date_tells_two_models_apart_only_if_both_have_one() -> None:
    assert is_same_model("gpt-5", "gpt-5-2025-08-07")
    assert is_same_model("gpt-5-latest", "gpt-5-2025-08-07")
    assert is_same_model("gpt-5-2025-08-07", "openai/gpt-5-2025-08-07")
    assert not is_same_model("gpt-5-2025-08-07", "gpt-5-2026-01-01")
    assert not is_same_model("gpt-5", "gpt-5-mini")
    assert not is_same_model("claude-opus-4", "claude-opus-4-5")
