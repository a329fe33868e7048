"""The list of exclusions: each row has a fixed example, and a step of the redesign that mends it."""

from pathlib import Path

import pytest

from tests.exclusions import EXCLUSIONS, Exclusion, excluded
from tests.known_failures import FIRST_STEP

LAST_STEP = 6
"""The step after which the list is empty."""


@pytest.mark.parametrize("row", EXCLUSIONS, ids=lambda row: str(row.name))
def test_each_exclusion_has_a_fixed_example_and_a_known_step(row: Exclusion) -> None:
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    assert any(f'example_of="{row.name}"' in text for text in texts), "no `until_step(…, example_of=…)` names it"
    assert FIRST_STEP <= row.step <= LAST_STEP
    assert row.why


def test_each_exclusion_is_listed_once() -> None:
    names = [row.name for row in EXCLUSIONS]
    assert len(names) == len(set(names))


def test_only_what_is_listed_is_excluded() -> None:
    assert all(excluded(row.name) for row in EXCLUSIONS)
    assert not excluded("nothing")
